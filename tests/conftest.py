"""Decoders that several test modules use, and one thread for all: tiny models gain nothing from more.

Without a GPU, the kernels for one run in Triton's interpreter, which must be asked for before anybody imports Triton.
"""

import os

import pytest
import torch

from specqual.contract import Setup
from specqual.reference import ReferenceDecoder, make

from .decoding import DENSE, DFLASH2

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="module")
def plain() -> ReferenceDecoder:
    return make(Setup(target=DENSE))


@pytest.fixture
def drafting() -> ReferenceDecoder:
    return make(Setup(target=DENSE, draft=DFLASH2))


@pytest.fixture
def scripted() -> ReferenceDecoder:
    return make(Setup(target=DENSE, draft_length=4))

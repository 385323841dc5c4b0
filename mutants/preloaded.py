"""What the processes of trials have in common: imported once, by the server that they are forked from."""

import torch

import specqual.decoder
import specqual.reference  # noqa: F401 - what mutants are made of
from specqual.conformance.check import gatherers

from .trial import perform

__all__ = ["perform", "single"]

gatherers()


def single() -> None:
    """One thread: tiny models gain nothing from more, and there is a process for every core."""
    torch.set_num_threads(1)

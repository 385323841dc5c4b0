"""Import this before a kernel: without a GPU, kernels run in Triton's interpreter on CPU tensors."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read where a kernel is defined

pytest.importorskip("triton")

if DEVICE == "cpu":
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def mended(tensor: type, scope: interpreter._LangPatchScope) -> None:
        """A scalar is an array of one element there, which newer NumPy does not take for an integer."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = mended


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)

"""Import this before a kernel: without a GPU, kernels run in Triton's interpreter on CPU tensors."""

import os

import numpy as np
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read where a kernel is defined

pytest.importorskip("triton")

if DEVICE == "cpu":
    import triton.language as tl
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def mended(tensor: type, scope: interpreter._LangPatchScope) -> None:
        """A scalar is an array of one element there, which newer NumPy does not take for an integer."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = mended
    convert = interpreter._convert_float

    def rounded(data: np.ndarray, old: tl.dtype, new: tl.dtype, mode: object) -> np.ndarray:
        """To the nearest number, ties to even, as a GPU does: the interpreter cuts off, or forgets to carry."""
        narrow = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn}.get(new)
        if old != tl.float32 or narrow is None:
            return convert(data, old, new, mode)
        found = torch.from_numpy(np.ascontiguousarray(data)).to(narrow)
        return found.view(torch.uint8 if narrow.itemsize == 1 else torch.uint16).numpy()

    interpreter._convert_float = rounded


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)

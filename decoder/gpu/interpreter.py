"""Triton's interpreter, run on the host: switched on, hastened, and mended where it rounds unlike a GPU."""

import os
import sys
from typing import Any

import numpy as np
import torch

from specqual.contract import Unsupported


def interpret() -> None:
    """Let every kernel of this process run in the interpreter; Unsupported if Triton is there already without it.

    Triton decides when it is imported, by its own environment variable, and stays with it.
    """
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from triton import knobs
    from triton.runtime import interpreter

    if not knobs.runtime.interpret:
        raise Unsupported("device: this process has made kernels for a GPU; the interpreter needs one of its own")
    if getattr(interpreter, "mended", False):
        return
    interpreter.mended = True
    patch, convert = interpreter._patch_lang_tensor, interpreter._convert_float

    def indexed(tensor: type, scope: interpreter._LangPatchScope) -> None:
        """A scalar is an array of one element there, which newer NumPy does not take for an integer."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def rounded(data: np.ndarray, old: tl.dtype, new: tl.dtype, mode: object) -> np.ndarray:
        """To the nearest number, ties to even, as a GPU does: the interpreter cuts off, or forgets to carry."""
        narrow = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn}.get(new)
        if old != tl.float32 or narrow is None:
            return np.asarray(convert(data, old, new, mode))
        found = torch.from_numpy(np.ascontiguousarray(data)).to(narrow)
        return found.view(torch.uint8 if narrow.itemsize == 1 else torch.uint16).numpy()

    def multiplied(self: object, a: Any, b: Any, d: Any, *_: object) -> Any:
        """Every sum of a product by itself, as on a GPU: a library's matrix product may add a row's numbers in an order
        that hangs on how many rows there are, and where among them it stands."""
        left, right = (
            (convert(x.data, x.dtype, tl.float16, None).view(np.float16) if x.dtype.is_fp8() else x.data)
            for x in (a, b)
        )
        left, right = left.astype(d.data.dtype), np.ascontiguousarray(right.T, d.data.dtype)
        return interpreter.TensorHandle(np.vecdot(left[:, None], right[None]) + d.data, d.dtype.scalar)

    def called(self: interpreter.InterpretedFunction, *args: object, **options: object) -> Any:
        """A function that a kernel calls: the kernel had the language patched, and anew would take half of the time."""
        names = self.fn.__globals__.values()
        if any(tl.core.is_builtin(lang.load) for lang in names if lang is tl or lang is tl.core):
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **options)

    interpreter._patch_lang_tensor, interpreter._convert_float = indexed, rounded
    interpreter.InterpreterBuilder.create_dot = multiplied
    interpreter.InterpretedFunction.__call__ = called

"""What the kernels need, and one clear message where it is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from specqual.contract import Unsupported

from .interpreter import interpret

CAPABILITY = (9, 0)
"""Of the device: products of pairs of bfloat16, and e4m3, come with it."""


def triton() -> None:
    """Raise Unsupported if Triton cannot be imported."""
    if find_spec("triton") is None:
        raise Unsupported("triton: is not installed, and the GPU kernels need it (pip install 'specqual[gpu]')")


def flash(device: str, dtype: torch.dtype) -> None:
    """Raise ValueError for a device or a dtype that flash-attn does not have, Unsupported if it is not installed."""
    if device != "cuda":
        raise ValueError("attention: flash needs device cuda")
    if dtype is not torch.bfloat16:
        raise ValueError(f"attention: flash needs dtype bfloat16, got {str(dtype).removeprefix('torch.')}")
    if find_spec("flash_attn") is None:
        raise Unsupported("attention: flash needs flash-attn, which is not installed (pip install 'specqual[flash]')")


def has_flash(device: str, dtype: torch.dtype) -> bool:
    """Whether flash-attn can be used here."""
    try:
        flash(device, dtype)
    except (ValueError, Unsupported):
        return False
    return True


def gpu() -> None:
    """Raise Unsupported if kernels cannot run here: no Triton, no GPU, a driver that is too old, or a GPU that is."""
    triton()
    try:
        torch.cuda.init()
        found = torch.cuda.get_device_capability()
        probe()
    except (RuntimeError, AssertionError) as error:  # what torch raises without CUDA, without a driver, with an old one
        reason = str(error).strip().splitlines()[0]
        raise Unsupported(f"device: no GPU can be used ({reason})") from error
    if found < CAPABILITY:
        least = ".".join(map(str, CAPABILITY))
        raise Unsupported(f"device: has compute capability {found[0]}.{found[1]}, and the GPU kernels need {least}")


def probe() -> None:
    """Launch a kernel of torch's own; RuntimeError if this torch was built for other GPUs."""
    torch.zeros(1, device="cuda").item()


@contextmanager
def room(field: str, what: str) -> Iterator[None]:
    """Raise Unsupported naming a field, with torch's own reason, where memory for what is made within does not do."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in reason:
            raise
        raise Unsupported(f"{field}: {what} ({reason})") from error


def device_of(name: str) -> torch.device | None:
    """Where the kernels of this package run: "cuda", or "interpreter" for Triton's interpreter on the host; None for
    "cpu", where none of them does. Unsupported says what is missing."""
    if name == "cpu":
        return None
    if name == "interpreter":
        triton()
        interpret()
        return torch.device("cpu")
    gpu()
    from triton import knobs

    if knobs.runtime.interpret:
        raise Unsupported("device: the kernels of this process were made for the interpreter (TRITON_INTERPRET)")
    return torch.device("cuda")

"""What the kernels need, and one clear message where it is missing."""

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


def gpu() -> None:
    """Raise Unsupported if kernels cannot run here: no Triton, no GPU, a driver that is too old, or a GPU that is."""
    triton()
    try:
        torch.cuda.init()
        found = torch.cuda.get_device_capability()
    except (RuntimeError, AssertionError) as error:  # what torch raises without CUDA, without a driver, with an old one
        reason = str(error).strip().splitlines()[0]
        raise Unsupported(f"device: no GPU can be used ({reason})") from error
    if found < CAPABILITY:
        least = ".".join(map(str, CAPABILITY))
        raise Unsupported(f"device: has compute capability {found[0]}.{found[1]}, and the GPU kernels need {least}")


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

"""What the kernels need, and one clear message where it is missing."""

from importlib.util import find_spec

import torch

from specqual.contract import Unsupported

from .interpreter import interpret

LEAST = (8, 0)  # compute capability: bfloat16 products


def triton() -> None:
    """Raise Unsupported if Triton cannot be imported."""
    if find_spec("triton") is None:
        raise Unsupported("triton: is not installed, and the GPU kernels need it (pip install 'specqual[gpu]')")


def device_of(name: str) -> torch.device | None:
    """Where the kernels of this package run: "cuda", or "interpreter" for Triton's interpreter on the host; None for
    "cpu", where none of them does. Unsupported says what is missing."""
    if name == "cpu":
        return None
    triton()
    if name == "interpreter":
        interpret()
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Unsupported(f"device: torch {torch.__version__} sees no GPU, or its driver is too old")
    found = torch.cuda.get_device_capability()
    if found < LEAST:
        raise Unsupported(
            f"device: compute capability {found[0]}.{found[1]}, and the kernels need {LEAST[0]}.{LEAST[1]}"
        )
    from triton import knobs

    if knobs.runtime.interpret:
        raise Unsupported("device: the kernels of this process were made for the interpreter (TRITON_INTERPRET)")
    return torch.device("cuda")

"""What the kernels need, and one clear message where it is missing."""

from importlib.util import find_spec

from specqual.contract import Unsupported


def triton() -> None:
    """Raise Unsupported if Triton cannot be imported."""
    if find_spec("triton") is None:
        raise Unsupported("triton: is not installed, and the GPU kernels need it (pip install 'specqual[gpu]')")

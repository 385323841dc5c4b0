"""Arrays to the device and back, several of them in one copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
KINDS = {np.dtype(np.int32): torch.int32, np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


def carried(sides: Sequence[Array], device: torch.device) -> list[Tensor]:
    """Arrays of int32, float32 and float64 as tensors on the device, each aligned to 16 bytes."""
    return parted(pinned(joined(sides), device).to(device, non_blocking=True), sides)


def pinned(flat: Tensor, device: torch.device) -> Tensor:
    """The same, from where a copy to the device lets the host go on. Torch keeps that memory, and gives it to nobody
    else before the copy is over."""
    return flat.pin_memory() if device.type == "cuda" else flat


def joined(sides: Sequence[Array]) -> Tensor:
    """The same as one row of int32 on the host."""
    words = list[Array]()
    for side in sides:
        flat = np.ascontiguousarray(side).reshape(-1).view(np.int32)
        words += [flat, np.zeros(-len(flat) % 4, np.int32)]
    return torch.from_numpy(np.concatenate(words))


def parted(there: Tensor, like: Sequence[Array]) -> list[Tensor]:
    """What was joined, where it lies now, by the kinds and shapes that it had."""
    found, end = list[Tensor](), 0
    for side in like:
        size = side.nbytes // 4
        found.append(there[end : end + size].view(KINDS[side.dtype]).view(side.shape))
        end += -(-size // 4) * 4
    return found


def brought(parts: Sequence[Tensor]) -> list[Array]:
    """Tensors of int32, float32 and float64 as arrays on the host, for which this waits."""
    words = torch.cat([part.reshape(-1).view(torch.int32) for part in parts]).cpu()
    found = torch.split(words, [part.numel() * part.itemsize // 4 for part in parts])
    return [side.clone().view(part.dtype).view(part.shape).numpy() for side, part in zip(found, parts, strict=True)]


def picked(x: Tensor, places: Sequence[int]) -> Tensor:
    """Those of x [n, ...] that stand in these places, with no wait for the device."""
    return x.index_select(0, *carried([np.array(places, np.int32)], x.device))


def together(parts: Sequence[Tensor]) -> Tensor:
    """Rows [R, V] behind each other: the very memory where they lie so already, else a copy."""
    first, at = parts[0], parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != at or part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return torch.cat(list(parts))
        at += part.nbytes
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())

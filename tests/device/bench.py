"""What a kernel is tried and timed with on a device."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Trial:
    """A kernel with its inputs in place, for some number of rows.

    `run(i)` launches it once, over copy i of what it streams (there are `copies`), and returns its output, one row for
    each row of input; `error` is the largest difference of an output to the definition, over what may be; `bytes` must
    move, `flops` must be done.
    """

    run: Callable[[int], Tensor]
    error: Callable[[Tensor], float]
    bytes: int
    flops: float = 0.0
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Bench:
    """A kernel to be tried: with `rows` timed, with `alike` (numbers of rows) bit for bit the same."""

    name: str
    make: Callable[[int], Trial]
    rows: tuple[int, ...] = (1, 8, 16, 64, 120)
    alike: tuple[int, ...] = (*range(1, 18), 31, 33, 64, 65, 100, 127)
    most: int = 128  # rows that `alike` are compared with
    least: tuple[int, int] = (9, 0)  # compute capability


def error(found: Tensor, exact: Tensor, slack: float) -> float:
    """The largest difference over the slack, in units of the largest exact number."""
    apart = (found.double() - exact.double()).abs().nan_to_num(float("inf")).max()
    return float(apart / exact.abs().max().clamp(min=1e-30)) / slack

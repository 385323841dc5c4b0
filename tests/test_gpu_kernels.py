"""The kernels as the contract calls them, in Triton's interpreter where there is no GPU, beside those of the host."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .interpreter import DEVICE  # isort: split

from specqual.contract.kernels import Kernels, Seen, Slots, Steps
from specqual.decoder import kernels as host
from specqual.decoder.gpu.kernels import kernels_of
from specqual.decoder.tile import TILED

BOTH = kernels_of(torch.device(DEVICE), torch.float32), host.kernels_of(TILED)


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(run: Callable[[Kernels], list[Tensor]]) -> None:
    for found, expected in zip(*(run(kernels) for kernels in BOTH), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_are_normed_turned_and_ranked_alike() -> None:
    same(lambda kernels: [kernels.norm(noise(1, 5, 24), noise(2, 24), 1e-6)])  # type: ignore[misc]
    same(lambda kernels: [kernels.rotate(noise(3, 4, 3, 16), (0, 70, 7, 8), 8, 1e4)])  # type: ignore[misc]
    same(lambda kernels: [kernels.best(noise(4, 3, 50).round(), 5)])  # type: ignore[misc]


def test_spans_see_alike() -> None:
    lengths = ((3, 20), (1, 1), (5, 5))
    spans = [Seen(noise(1, t, 4, 16), noise(2, s, 2, 16), noise(3, s, 2, 16)) for t, s in lengths]
    for window, causal in ((None, True), (4, True), (4, False)):
        same(lambda kernels, window=window, causal=causal: kernels.attention["own"](spans, window, causal))


def test_states_and_outputs_are_alike_whatever_is_kept() -> None:
    def steps(count: int, kept: int) -> Steps:
        query, key = (normalize(noise(count + i, count, 2, 8), dim=-1) for i in (1, 2))
        gates = noise(count, 2, count, 2).sigmoid()
        return Steps(noise(9, 2, 8, 16), query, key, noise(3, count, 2, 16), gates[0], gates[1], kept)

    spans = [steps(4, 0), steps(3, 2), steps(2, 2), steps(1, 0)]
    same(lambda kernels: [side for pair in kernels.recurrence(spans) for side in pair])  # type: ignore[misc]


def test_blocks_are_convolved_alike() -> None:
    spans = [Slots(noise(count, count, 24), noise(count + 1, count, 2, 3)) for count in (3, 1, 5)]
    same(lambda kernels: kernels.block_convolution(spans, noise(7, 2, 24)))  # type: ignore[misc]

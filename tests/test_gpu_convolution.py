"""The causal convolution and all that goes with it, in Triton's interpreter where there is no GPU."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE, ints  # isort: split

from specqual.decoder.gpu.convolution import convolution, convolution_torch
from specqual.decoder.gpu.recurrence import Consumed
from specqual.decoder.gpu.spans import Ledger, Log, Spans

KEY_HEADS, VALUE_HEADS, DIM, TAPS, MOST, SLOTS = 1, 2, 16, 4, 4, 3
CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * DIM
WIDTH = CHANNELS + 2 * VALUE_HEADS


def pools(dtype: torch.dtype) -> Log:
    """Every place holds what must never be read."""
    lengths = (TAPS - 1 + MOST, 2 * MOST, 2 * MOST, 2 * MOST)
    shapes = ((CHANNELS,), (KEY_HEADS, DIM), (VALUE_HEADS, DIM), (2, VALUE_HEADS))
    sides = (torch.full((SLOTS, n, *shape), torch.nan, device=DEVICE) for n, shape in zip(lengths, shapes, strict=True))
    mixed, key, value, gates = sides
    return Log(mixed.to(dtype), key.to(dtype), value.to(dtype), gates)


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


Step = Callable[..., Consumed]


def run(step: Step, rounds: Sequence[tuple[int, int, int]], log: Log, exact: torch.dtype) -> Consumed:
    """What the tokens that stay give, when rounds are of so many (certain tokens, accepted ones, rejected ones)."""
    dtype = log.mixed.dtype
    stream, wrong = noise(1, sum(sum(cut[:2]) for cut in rounds), WIDTH).to(dtype), noise(2, MOST, WIDTH).to(dtype)
    taps, bias, rate = noise(3, TAPS, CHANNELS), noise(4, VALUE_HEADS), -noise(5, VALUE_HEADS).abs()
    said, start = list[Consumed](), 0
    for certain, accepted, rejected in rounds:
        stay, rows = certain + accepted, certain + accepted + rejected
        x = torch.cat([stream[:1], stream[start : start + stay], wrong[:rejected]])  # behind a neighbour's row
        spans = Spans(ints(0, 1, 1, 1 + rows), ints(5, 0, start))
        ledger = Ledger(ints(0, 0, 2), ints(5, 0, 0), ints(0, 0, certain))
        split = x[:, :CHANNELS], x[:, CHANNELS:-VALUE_HEADS], x[:, -VALUE_HEADS:]
        out = step(*split, taps.to(exact), bias.to(exact), rate.to(exact), spans, ledger, log)
        said.append(Consumed(*(side[1 : 1 + stay] for side in out)))
        start += stay
    return Consumed(*(torch.cat(sides) for sides in zip(*said, strict=True)))


CUTS = {"token by token": [(0, 1, 0)] * 4, "drafts": [(1, 1, 2), (0, 1, 3), (1, 0, 1)]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_kernel_is_exact_and_bits_do_not_know_where_spans_are_cut(dtype: torch.dtype) -> None:
    whole = run(convolution, [(4, 0, 0)], pools(dtype), torch.float32)
    exact = run(convolution_torch, [(4, 0, 0)], pools(dtype), torch.float64)
    near = {torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    for found, expected in zip(whole, exact, strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found.double(), expected.double(), rtol=near, atol=near)
    for name, cut in CUTS.items():
        found = run(convolution, cut, pools(dtype), torch.float32)
        assert all(torch.equal(one, other) for one, other in zip(found, whole, strict=True)), name


def test_logs_keep_what_may_be_rejected_and_nothing_else() -> None:
    log, expected = pools(torch.float32), pools(torch.float32)
    run(convolution, CUTS["drafts"], log, torch.float32)
    run(convolution_torch, CUTS["drafts"], expected, torch.float64)
    for found, side in zip(log, expected, strict=True):
        torch.testing.assert_close(found, side, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("a", "rate"), [(-12.0, -1e3), (-20.0, -1e8)])
def test_a_decay_close_to_one_is_exact(a: float, rate: float) -> None:
    nothing, log = torch.zeros(1, CHANNELS, device=DEVICE), pools(torch.float32)
    gates, ones = torch.full((1, VALUE_HEADS), a, device=DEVICE), torch.ones(VALUE_HEADS, device=DEVICE)
    spans, taps = Spans(ints(0, 1), ints(0)), torch.zeros(TAPS, CHANNELS, device=DEVICE)
    ledger = Ledger(ints(0), ints(0), ints(0))
    found = convolution(nothing, gates, gates, taps, 0 * ones, rate * ones, spans, ledger, log)
    expected = torch.exp(rate * torch.nn.functional.softplus(gates.double()))
    torch.testing.assert_close(found.gates[:, 0].double(), expected, rtol=1e-6, atol=0)

"""The delta-net kernels at the sizes of the 27B target: spans of up to eight rows behind four accepted tokens."""

import torch
from torch import Tensor

from specqual.decoder.gpu.convolution import convolution, convolution_torch
from specqual.decoder.gpu.gated_norm import gated_norm, gated_norm_torch
from specqual.decoder.gpu.recurrence import Consumed, recurrence, recurrence_torch
from specqual.decoder.gpu.spans import Ledger, Log

from .bench import Bench, Trial, error
from .samples import KEPT, ints, noise, spans_of

KEY_HEADS, VALUE_HEADS, DIM, TAPS, EACH, ACCEPTED, START = 16, 48, 128, 4, 8, 4, 100
CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * DIM
STATE = VALUE_HEADS * DIM * DIM


def log_of(slots: int) -> Log:
    unit = torch.nn.functional.normalize(noise(1, slots, 2 * EACH, KEY_HEADS, DIM).float(), dim=-1).bfloat16()
    gates = noise(2, slots, 2 * EACH, 2, VALUE_HEADS, dtype=torch.float32).sigmoid()
    return Log(noise(3, slots, EACH + TAPS - 1, CHANNELS), unit, noise(4, slots, 2 * EACH, VALUE_HEADS, DIM), gates)


def copied(log: Log, exact: bool) -> Log:
    return Log(*(side.double() if exact else side.clone() for side in log))


def recurrence_trial(rows: int) -> Trial:
    spans = spans_of(rows, EACH, START)
    samples = len(spans.start)
    copies = max(2, KEPT // (4 * STATE * samples))
    begun = noise(5, samples, VALUE_HEADS, DIM, DIM, dtype=torch.float32)
    states = begun.repeat(copies, 1, 1, 1)
    ledgers = [
        Ledger(ints(*range(i * samples, (i + 1) * samples)), ints(*[START - ACCEPTED] * samples), ints(*[0] * samples))
        for i in range(copies)
    ]
    log = log_of(samples)
    logs = Log(*(side.repeat(copies, *[1] * (side.dim() - 1)) for side in log))
    unit = torch.nn.functional.normalize(noise(6, rows, 2, KEY_HEADS, DIM).float(), dim=-1).bfloat16()
    gates = noise(7, rows, 2, VALUE_HEADS, dtype=torch.float32).sigmoid()
    new = Consumed(unit[:, 0].contiguous(), unit[:, 1].contiguous(), noise(8, rows, VALUE_HEADS, DIM), gates)
    out = torch.empty(rows, VALUE_HEADS, DIM, device="cuda")

    def exact(found: Tensor) -> float:
        state = begun.double()
        said = error(found, recurrence_torch(state, spans, ledgers[0], log, new), 1e-5)
        return max(said, error(states[:samples], state, 1e-5))

    moved = samples * (8 * STATE + ACCEPTED * 2 * (KEY_HEADS + VALUE_HEADS) * DIM)
    moved += rows * DIM * (2 * (2 * KEY_HEADS + VALUE_HEADS) + 4 * VALUE_HEADS)
    flops = 2 * 4 * STATE * (rows + samples * ACCEPTED)
    return Trial(lambda i: recurrence(states, spans, ledgers[i], logs, new, out), exact, moved, flops, copies)


def convolution_trial(rows: int) -> Trial:
    spans, width = spans_of(rows, EACH, START), CHANNELS + 2 * VALUE_HEADS
    samples = len(spans.start)
    log, x = log_of(samples), noise(9, rows, width)
    begun = copied(log, False)
    ledger = Ledger(ints(*range(samples)), ints(*[START - ACCEPTED] * samples), ints(*[0] * samples))
    parts = x[:, :CHANNELS], x[:, CHANNELS:-VALUE_HEADS], x[:, -VALUE_HEADS:]
    taps, bias = noise(10, TAPS, CHANNELS, dtype=torch.float32), noise(11, VALUE_HEADS, dtype=torch.float32)
    rate = -noise(12, VALUE_HEADS, dtype=torch.float32).exp()
    out = Consumed(
        *(torch.empty_like(side[0, :1].repeat(rows, *[1] * (side.dim() - 2))) for side in (log[1], *log[1:]))
    )

    def run(i: int) -> Tensor:
        found = convolution(*parts, taps, bias, rate, spans, ledger, log, out)
        return torch.cat([side.flatten(1).float() for side in found], dim=1)

    def exact(found: Tensor) -> float:
        kept = Log(*(side.double() for side in begun))
        sides = convolution_torch(*parts, taps.double(), bias.double(), rate.double(), spans, ledger, kept)
        wrong = [error(mine, theirs, 2**-7) for mine, theirs in zip(log, kept, strict=True)]
        return max(error(found, torch.cat([side.flatten(1) for side in sides], dim=1), 2**-7), *wrong)

    return Trial(run, exact, 4 * rows * width + samples * 2 * (EACH + 6) * CHANNELS)


def gated_norm_trial(rows: int) -> Trial:
    x, z = noise(1, rows, VALUE_HEADS, DIM, dtype=torch.float32), noise(2, rows, VALUE_HEADS * DIM)
    weight, out = noise(3, DIM, dtype=torch.float32), torch.empty_like(z)
    return Trial(
        lambda i: gated_norm(x, z, weight, 1e-6, z.dtype, out),
        lambda found: error(found, gated_norm_torch(x, z, weight.double(), 1e-6, torch.float64), 2**-8),
        8 * rows * VALUE_HEADS * DIM,
    )


BENCH = (
    Bench("delta-net recurrence", recurrence_trial),
    Bench("delta-net convolution", convolution_trial),
    Bench("delta-net gated norm", gated_norm_trial),
)

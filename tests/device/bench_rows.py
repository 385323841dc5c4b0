"""The kernels over whole rows at the sizes of the 27B target."""

import torch
from torch import Tensor

from specqual.decoder.gpu import embedding, fp8_rows, gated, norm

from .bench import Bench, Trial, error
from .bench_linear import rows_of

HIDDEN, WIDE = 5120, 17408


def norm_trial(rows: int) -> Trial:
    x, add = rows_of(rows, HIDDEN), rows_of(rows, HIDDEN).flip(1).contiguous()
    gain, out, total = rows_of(1, HIDDEN)[0].float(), torch.empty_like(x), torch.empty_like(x)

    def exact(found: Tensor) -> float:
        return error(found, norm.rms_norm_torch((x.double() + add.double()).bfloat16().double(), gain, 1e-6)[0], 2**-7)

    run = lambda i: norm.rms_norm(x, gain, 1e-6, add, out=out, total=total)[0]  # noqa: E731
    return Trial(run, exact, 8 * rows * HIDDEN + 4 * HIDDEN)


def gate_trial(rows: int) -> Trial:
    x = rows_of(rows, 2 * WIDE)
    out = torch.empty(rows, WIDE, dtype=torch.bfloat16, device="cuda")
    return Trial(
        lambda i: gated.silu_mul(x, out=out),
        lambda found: error(found, gated.silu_mul_torch(x.double()), 2**-7),
        6 * rows * WIDE,
    )


def embedding_trial(rows: int) -> Trial:
    table = rows_of(256, HIDDEN).repeat(970, 1)  # 248,320 of them
    ids = (torch.arange(rows, device="cuda", dtype=torch.int32) * 7919) % len(table)
    out = torch.empty(rows, HIDDEN, dtype=torch.bfloat16, device="cuda")
    return Trial(
        lambda i: embedding.embed(ids, table, out=out),
        lambda found: 0.0 if torch.equal(found, table[ids.long()]) else float("inf"),
        4 * rows * HIDDEN,
    )


def quantised_trial(rows: int) -> Trial:
    x = rows_of(rows, HIDDEN)
    out = fp8_rows.quantise(x)
    return Trial(
        lambda i: fp8_rows.quantise(x, out=out).codes.float(),
        lambda found: 0.0 if torch.equal(found, fp8_rows.quantise_torch(x).codes.float()) else float("inf"),
        3 * rows * HIDDEN,
    )


BENCH = (
    Bench("norm with residual 5120", norm_trial),
    Bench("silu and product 17408", gate_trial),
    Bench("embedding 248320x5120", embedding_trial),
    Bench("rows to fp8 5120", quantised_trial),
)

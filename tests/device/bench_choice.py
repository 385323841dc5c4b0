"""Choosing among the 248,320 logits of the 27B model."""

import torch
from torch import Tensor

from specqual.decoder.gpu.law import Filters, law, law_torch, probabilities
from specqual.decoder.gpu.selector import Candidates, select, select_torch
from specqual.decoder.gpu.top import argmax, argmax_torch, groups_of, top, top_torch
from specqual.decoder.gpu.verdict import Drafted, Uniforms, judge, judge_torch

from .bench import Bench, Trial, error
from .samples import noise, spans_of

WIDTH, COUNT, SLOTS, RANK = 248320, 16, 7, 256
BLOCKS = {"rows": (1, 15), "alike": tuple(range(1, 17)), "most": 16}  # a row of these is a block


def logits_of(rows: int) -> Tensor:
    return noise(1, rows, WIDTH, dtype=torch.float32) * 3


def same(found: Tensor, expected: Tensor) -> float:
    return 0.0 if torch.equal(found, expected) else float("inf")


def top_trial(rows: int) -> Trial:
    logits = logits_of(rows).bfloat16().float()  # with equal ones
    groups, kinds = groups_of(rows, WIDTH, logits.device), (torch.int32, torch.float32)
    ids, values = (torch.empty(rows, COUNT, dtype=kind, device="cuda") for kind in kinds)
    return Trial(
        lambda i: top(logits, COUNT, groups=groups, out=(ids, values))[0],
        lambda found: same(found, top_torch(logits, COUNT)[0]),
        4 * rows * WIDTH,
    )


def argmax_trial(rows: int) -> Trial:
    logits = logits_of(rows).bfloat16().float()
    groups, out = groups_of(rows, WIDTH, logits.device), torch.empty(rows, dtype=torch.int32, device="cuda")
    return Trial(
        lambda i: argmax(logits, groups=groups, out=out),
        lambda found: same(found, argmax_torch(logits)),
        4 * rows * WIDTH,
    )


CODES: list[Tensor] = []


def selector_trial(blocks: int) -> Trial:
    if not CODES:
        source = torch.Generator("cuda").manual_seed(9)
        CODES.extend(torch.randn(WIDTH, RANK, device="cuda", generator=source).bfloat16() for _ in range(2))
    ids = noise(1, blocks, SLOTS, 4096).topk(COUNT).indices.sort(-1).values.int() * 60
    candidates = Candidates(ids, noise(2, blocks, SLOTS, COUNT, dtype=torch.float32))
    joint, anchors = noise(3, blocks, SLOTS, RANK, dtype=torch.float32) / 16, ids[:, 0, 0].contiguous()
    temperature = (torch.arange(blocks, device="cuda") % 2).float()
    uniform = noise(4, blocks, SLOTS, dtype=torch.float64).sigmoid()
    asked = anchors, candidates, joint, (CODES[0], CODES[1]), temperature, uniform
    out = select(*asked)

    def exact(found: Tensor) -> float:
        expected = select_torch(*asked)
        return max(same(found[:, :SLOTS].int(), expected.tokens), error(out.q, expected.q, 1e-4))

    return Trial(
        lambda i: torch.cat([(said := select(*asked, out)).tokens.double(), said.q.flatten(1)], dim=1),
        exact,
        blocks * SLOTS * (COUNT + 1) * RANK * 2,
    )


def filters_of(rows: int, top_k: int, top_p: float) -> Filters:
    def all_of(value: float, kind: torch.dtype) -> Tensor:
        return torch.full((rows,), value, dtype=kind, device="cuda")

    exact = torch.float64
    return Filters(all_of(0.8, exact), all_of(top_k, torch.int32), all_of(top_p, exact), all_of(0.0, exact))


def law_trial(rows: int, top_k: int, top_p: float) -> Trial:
    logits, filters = logits_of(rows), filters_of(rows, top_k, top_p)
    out = law(logits, filters)

    def exact(found: Tensor) -> float:
        few = min(rows, 4)
        theirs = probabilities(logits[:few], law_torch(logits[:few], Filters(*(side[:few] for side in filters))))
        return error(probabilities(logits[:few], type(out)(*(side[:few] for side in out))), theirs, 1e-5)

    return Trial(lambda i: torch.stack(law(logits, filters, out)[2:], dim=1), exact, 4 * rows * WIDTH)


def judge_trial(samples: int) -> Trial:
    spans = spans_of(samples * (SLOTS + 1), SLOTS + 1, 0)
    logits = logits_of(samples * (SLOTS + 1))
    p = law(logits, filters_of(len(logits), 0, 1.0))
    ids = logits.view(samples, SLOTS + 1, WIDTH)[:, :SLOTS].topk(COUNT).indices.sort(-1).values.int()
    q = noise(2, samples, SLOTS, COUNT, dtype=torch.float64).softmax(-1)
    drafted = Drafted(ids[..., 3].contiguous(), ids, q)
    numbers = noise(3, samples, 3 * SLOTS + 1, dtype=torch.float64).sigmoid()
    uniforms = Uniforms(*(side.contiguous() for side in numbers.split([SLOTS, SLOTS, SLOTS + 1], dim=1)))

    def run(i: int) -> Tensor:
        return torch.stack(judge(logits, spans.first, p, drafted, uniforms), dim=1)

    def exact(found: Tensor) -> float:
        return same(found, torch.stack(judge_torch(logits, spans.first, p, drafted, uniforms), dim=1))

    return Trial(run, exact, samples * 2 * WIDTH)


BENCH = (
    Bench("top 16 of 248320", top_trial, (7, 105)),
    Bench("argmax of 248320", argmax_trial, (1, 8, 120)),
    Bench("selector, 7 slots", selector_trial, **BLOCKS),  # type: ignore[arg-type]
    Bench("law, top-k 20 and top-p 0.95", lambda rows: law_trial(rows, 20, 0.95), (1, 8, 120), (1, 3, 8), 8),
    Bench("law, top-p 0.95", lambda rows: law_trial(rows, 0, 0.95), (1, 8, 120), (1, 3, 8), 8),
    Bench("judge, 7 slots of 16", judge_trial, **BLOCKS),  # type: ignore[arg-type]
)

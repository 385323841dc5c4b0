"""Faults of verification: wrong rows (K01), wrong acceptance or residual (K04), wrong bonus (K05)."""

from collections.abc import Sequence

import numpy as np

from specqual.contract import Decoder, Purpose, Rule, Sampling, Setup
from specqual.reference import sampling, transaction, verify
from specqual.reference.sampling import Law, draw, point
from specqual.reference.verify import Uniform, Verdict

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID
from .planting import black_box, planted, replacing

# The sound functions, under names that no swap touches.
sound_verify, sound_judged, sound_filtered, sound_law = (
    verify.verify,
    verify.judged,
    sampling.filtered,
    transaction._law,
)

Chain = Sequence[Law | None]


@replacing("verify", transaction)
def m01a(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """Draft j is compared with target row j + 1. Shows whenever two neighbouring rows differ."""
    accepted = sound_verify(rule, [*p[1:], p[-1]], drafts, q, uniform).accepted
    return Verdict(accepted, draw(p[accepted], uniform(Purpose.BONUS, accepted)))


@replacing("verify", transaction)
def m01b(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """Draft 0 is committed unverified. Shows when the first draft is wrong, never with a perfect drafter."""
    if not drafts:
        return sound_verify(rule, p, drafts, q, uniform)
    rest = sound_verify(rule, p[1:], drafts[1:], q[1:], lambda purpose, slot: uniform(purpose, slot + 1))
    return Verdict(rest.accepted + 1, rest.token)


@replacing("verify", transaction)
def m01c(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """As many drafts are kept as match anywhere, not as many as lead. Shows when a match follows a mismatch."""
    if rule is not Rule.SAMPLER_MATCH:
        return sound_verify(rule, p, drafts, q, uniform)
    wanted = [draw(law, uniform(Purpose.BONUS, slot)) for slot, law in enumerate(p)]
    matches = sum(draft == token for draft, token in zip(drafts, wanted, strict=False))
    return Verdict(matches, wanted[matches])


@replacing("verify", transaction)
def m01d(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """The last draft is accepted whenever the others are. Needs K - 1 right drafts and then a wrong one."""
    last = len(drafts)
    found = sound_verify(rule, p[: max(1, last)], drafts[:-1], q[:-1], uniform)
    if last and found.accepted == last - 1:
        return Verdict(last, draw(p[last], uniform(Purpose.BONUS, last)))
    return found


@replacing("verify", transaction)
def m01e(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """After a partial acceptance the correction comes from the row behind the rejected draft."""
    found = sound_verify(rule, p, drafts, q, uniform)
    if 0 < found.accepted < len(drafts):
        row = found.accepted + 1
        return Verdict(found.accepted, draw(p[row], uniform(Purpose.RESIDUAL, found.accepted)))
    return found


@replacing("residual", verify)
def m04a(p: Law, q: Law) -> Law:
    """The correction is drawn from p itself. Shows in rejections only."""
    return p


@replacing("residual", verify)
def m04b(p: Law, q: Law) -> Law:
    """The residual max(p - q, 0) goes through a softmax instead of being normalised."""
    rest = np.exp(np.maximum(p - q, 0))
    return rest / rest.sum()


@replacing("verify", transaction)
def m04c(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """A draft is kept if it equals a draw from p; if not, another draw from p follows. A small bias on every token."""
    for slot, draft in enumerate(drafts):
        if draw(p[slot], uniform(Purpose.ACCEPT, slot)) != draft:
            return Verdict(slot, draw(p[slot], uniform(Purpose.RESIDUAL, slot)))
    return Verdict(len(drafts), draw(p[-1], uniform(Purpose.BONUS, len(drafts))))


def block_length(p: Sequence[Law], drafts: Sequence[int], q: Sequence[Law], uniform: Uniform) -> tuple[int, list[Law]]:
    """Block verification: how many drafts stay, and what every length leaves over, max(w p - q, 0)."""
    keeps, behind = [1.0], []
    for slot, draft in enumerate(drafts):
        behind.append(np.maximum(keeps[slot] * p[slot] - q[slot], 0))
        keeps.append(min(1.0, keeps[slot] * p[slot][draft] / q[slot][draft]))
    for length in range(len(drafts), 0, -1):
        left = behind[length].sum() if length < len(drafts) else None
        win = keeps[length] if left is None else left / (left + 1 - keeps[length]) if left else 0.0
        if uniform(Purpose.ACCEPT, length - 1) < win:
            return length, behind
    return 0, behind


@replacing("verify", transaction)
def m04d(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """Block acceptance with the token-wise residual. Exact for K = 1."""
    if rule is not Rule.RATIO or not drafts:
        return sound_verify(rule, p, drafts, q, uniform)
    laws = [sound_judged(rule, law, draft, p[slot]) for slot, (law, draft) in enumerate(zip(q, drafts, strict=True))]
    length, _ = block_length(p, drafts, laws, uniform)
    if length == len(drafts):
        return Verdict(length, draw(p[length], uniform(Purpose.BONUS, length)))
    return Verdict(length, draw(verify.residual(p[length], laws[length]), uniform(Purpose.RESIDUAL, length)))


@replacing("filtered", transaction)
def m04e(logits: Law, wanted: Sampling) -> Law:
    """Probabilities are taken for logits, so softmax is applied twice. The best token stays, greedy is unharmed."""
    law = sound_filtered(logits, wanted)
    if wanted.greedy:
        return law
    again = np.exp(law)
    return again / again.sum()


@replacing("judged", verify)
def m04f(rule: Rule, q: Law | None, draft: int, p: Law) -> Law:
    """Acceptance is lenient by a twentieth. A bias of about one per cent."""
    return sound_judged(rule, q, draft, p) / 1.05


@replacing("verify", transaction)
def m04g(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """Drafts are accepted by their law, but corrected as if they were certain: the residual is p without the draft."""
    found = sound_verify(rule, p, drafts, q, uniform)
    slot = found.accepted
    if rule is Rule.RATIO and slot < len(drafts):
        certain = verify.residual(p[slot], point(drafts[slot], p[slot]))
        return Verdict(slot, draw(certain, uniform(Purpose.RESIDUAL, slot)))
    return found


@replacing("verify", transaction)
def m05a(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """The bonus is drawn from the row before the last. Shows in fully accepted rounds only."""
    found = sound_verify(rule, p, drafts, q, uniform)
    if drafts and found.accepted == len(drafts):
        return Verdict(found.accepted, draw(p[-2], uniform(Purpose.BONUS, len(drafts))))
    return found


@replacing("verify", transaction)
def m05b(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
    """The bonus is the best token whatever the temperature. Shows in fully accepted rounds only."""
    found = sound_verify(rule, p, drafts, q, uniform)
    if drafts and found.accepted == len(drafts):
        return Verdict(found.accepted, int(np.argmax(p[-1])))
    return found


def m05c(setup: Setup) -> Decoder:
    """The bonus row goes without filters. Shows in fully accepted rounds of requests with filters only."""
    plain: list[Law] = []  # of the row whose law was asked for last, which is the bonus row

    def remember(row: Law, sample: transaction.Sample, drafts: tuple[int, ...], eos_ids: Sequence[int]) -> Law:
        wanted = sample.request.sampling
        plain[:] = [sound_filtered(row, Sampling(temperature=wanted.temperature))]
        return sound_law(row, sample, drafts, eos_ids)

    def unfiltered(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Chain, uniform: Uniform) -> Verdict:
        return sound_verify(rule, [*p[:-1], *plain] if drafts else p, drafts, q, uniform)

    return planted(setup, {(transaction, "_law"): remember, (transaction, "verify"): unfiltered})


m04e_black_box = black_box(m04e)
PLANTED = planted_in(
    "reference",
    ("GE-1", DFLASH2, (m01a, m01b, m01c, m01d, m01e)),
    ("GE-4", HYBRID, (m01c, m01d)),
    ("LAW-2", DFLASH2, (m04g,)),
    ("LAW-3", DFLASH2, (m04a, m04b, m04c, m04d, m04e, m04f, m05a, m05b, m05c)),
    ("LAW-5", DFLASH2, (m05a,)),
)

"""Drafts: each judged in the reference drafter, behind the decoder's own drafts before it."""

from collections.abc import Sequence

from ..verdicts import Decision, Verdict
from . import Case
from .values import NOISE


def decide(cases: Sequence[Case]) -> Decision:
    """Every draft must be the reference's choice, or a tie: its score, and its logit at the edge of the candidates, at
    most the envelope worse."""
    drafts = ties = 0
    worst = envelope = 0.0
    for index, case in enumerate(cases):
        envelope = max(envelope, float(case["envelope"]))
        columns = zip(case["drafts"], case["best"], case["regret"], case["edge"], strict=False)
        for place, (draft, best, regret, edge) in enumerate(columns):
            drafts += 1
            if draft == best:
                continue
            what = f"{case['what']}: draft {place} is {draft}"
            if regret is None or edge is None:
                return Decision(Verdict.VIOLATED, f"{what}, which no slot can hold", case=index, place=place)
            if max(regret, edge) > float(case["envelope"]):
                detail = (
                    f"{what} where the reference drafts {best} behind the same drafts: {regret:.6g} nats worse, "
                    f"{edge:.6g} beyond the last candidate, and rounding explains at most {case['envelope']:.3g}"
                )
                return Decision(Verdict.VIOLATED, detail, case=index, place=place)
            ties, worst = ties + 1, max(worst, regret, edge)
    rounds = f"{drafts} drafts of {len(cases)} rounds"
    if ties:
        detail = f"{ties} of {rounds} are ties, at worst by {worst:.3g} nats within {envelope:.3g}"
        return Decision(Verdict.TIE_EXPLAINED, detail)
    explained = f" (rounding would explain {envelope:.3g} nats)" if envelope > NOISE else ""
    return Decision(Verdict.EXACT, f"{rounds}, all of them the reference's{explained}")

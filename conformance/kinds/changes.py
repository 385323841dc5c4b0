"""Changes: what must be refused by name, what must make a difference, and what must make none."""

from collections.abc import Sequence

from ..verdicts import Decision, Verdict
from . import Case
from .values import excused, short


def decide(cases: Sequence[Case]) -> Decision:
    ties = 0
    for index, case in enumerate(cases):
        raised, expect = case["raised"], case["expect"]
        wrong = None
        if expect == "refused":
            if raised is None:
                wrong = "was accepted without a word"
            elif case["types"] and raised["type"] not in case["types"]:
                wrong = f"raised {raised['type']} ({short(raised['text'])}), expected {' or '.join(case['types'])}"
            elif case["field"] not in raised["text"]:
                wrong = f"the error does not name {case['field']}: {short(raised['text'])}"
        elif raised is not None and (expect == "same" or case["field"] not in raised["text"]):
            wrong = f"raised {raised['type']}: {short(raised['text'])}"
        elif raised is None and case["effect"] and excused(case):
            ties += 1
        elif raised is None and case["effect"] is not (expect == "used"):
            wrong = "makes no difference" if expect == "used" else "makes a difference"
        if wrong is not None:
            return Decision(Verdict.VIOLATED, f"{case['what']}: {wrong}", case=index)
    if ties:
        return Decision(Verdict.TIE_EXPLAINED, f"{len(cases)} changes, as they must be, {ties} up to a tie")
    refused = sum(case["raised"] is not None for case in cases)
    return Decision(Verdict.EXACT, f"{len(cases)} changes, {refused} refused by name, the others as they must be")

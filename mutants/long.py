"""Faults that only long drafts have, so that short answers are beyond reproach."""

from collections.abc import Sequence

import numpy as np

from specqual.contract import Rule
from specqual.reference import transaction, verify
from specqual.reference.sampling import Law
from specqual.reference.verify import Uniform, Verdict

from .mutant import planted_in
from .pairs import DFLASH2
from .planting import replacing

sound_verify = verify.verify
FEW = 2  # drafts that are judged soundly


@replacing("verify", transaction)
def m04h(rule: Rule, p: Sequence[Law], drafts: Sequence[int], q: Sequence[Law | None], uniform: Uniform) -> Verdict:
    """Rounds of three drafts and more take probabilities for logits. Answers of up to four tokens never have one."""
    if len(drafts) > FEW and all(law.max() < 1 for law in p):
        p = [np.exp(law) / np.exp(law).sum() for law in p]
    return sound_verify(rule, p, drafts, q, uniform)


PLANTED = planted_in("reference", ("LAW-2", DFLASH2, (m04h,)))

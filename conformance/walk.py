"""What the reference drafter would have had accepted along an output: a mean acceptance without a trace."""

from dataclasses import dataclass

import numpy as np

from specqual.contract import Request

from .drafter import Block, DraftTwin, edges


@dataclass(frozen=True, slots=True)
class Walk:
    """Drafted rounds along one greedy output, and the drafts of them that became output."""

    rounds: int
    accepted: int


def walk(twin: DraftTwin, request: Request, output: tuple[int, ...]) -> Walk | None:
    """Follow an output with the reference drafter, as an engine does that always drafts what there is room for.

    None where rounding, or the size of a last block, decides what would have been accepted.
    """
    lab, place, rounds, accepted = twin.lab, 1, 0, 0  # the first token is the prefill's
    nats, known = twin.measured[0].nats, twin.drafter.model.config.max_context
    lab.judge.forward((*request.prompt, *output))  # one pass serves every round
    while place < len(output):
        tokens = (*request.prompt, *output[:place])
        left = min(request.max_tokens - place, lab.claims.limits.max_context - len(tokens)) - 1
        whole = min(lab.longest, known - len(tokens))
        room, right = min(left, whole), output[place:]
        if room <= 0:
            place += 1
            continue
        found = {leading(twin, twin.block(tokens, size), tokens[-1], right[:room], nats) for size in {room, whole}}
        if len(found) > 1 or None in found:
            return None
        hits = found.pop() or 0
        rounds, accepted, place = rounds + 1, accepted + hits, place + hits + 1
    return Walk(rounds, accepted)


def leading(twin: DraftTwin, slots: Block, before: int, right: tuple[int, ...], nats: float) -> int | None:
    """How many slots in front draft these very tokens; None where a slot of them is a tie."""
    for slot, token in enumerate(right):
        row = slots.logits[slot]
        ids = np.sort(twin.drafter.candidates(row))
        scores = slots.score(slot, before, ids)
        first, second = np.sort(scores)[::-1][:2] if len(ids) > 1 else (scores[0], -np.inf)
        last, following = edges(row, len(ids))
        if first - second <= nats or last - following <= nats:
            return None
        if int(ids[scores.argmax()]) != token:
            return slot
        before = token
    return len(right)

"""The scripted drafter of a history, that knows what is right."""

from dataclasses import dataclass, field
from random import Random

from specqual.contract import Proposal, ScriptContext

from .lab import Lab
from .played import Played
from .scripts import allowed
from .twin import Twin


@dataclass
class Prompter:
    """Drafts for the requests in `played`: right in the first places, as many as `right` counts (history.Step), and
    then wrong."""

    lab: Lab
    twin: Twin
    played: list[Played]
    right: int = 0
    _said: dict[int, dict[tuple[int, int], list[int]]] = field(default_factory=dict)  # by request: (sample, anchor)

    def __call__(self, context: ScriptContext) -> Proposal:
        """What it says, and remembers: what it says last about a place is what counts there."""
        one = next(one for one in self.played if one.request_id == context.request_id)
        known = self.twin.plain(one.request).samples[context.sample]
        right = known[len(context.tokens) - len(one.request.prompt) :]
        proposal = allowed(self.lab, context, self._drafts(context), right)
        said = self._said.setdefault(context.request_id, {})
        said[context.sample, len(context.tokens) - 1] = list(proposal.tokens)
        return proposal

    def _drafts(self, context: ScriptContext) -> tuple[int, ...]:
        """Drafts that are right, as the request decoded plainly has it, and then wrong."""
        place = next(i for i, one in enumerate(self.played) if one.request_id == context.request_id)
        one, longest, right = self.played[place], self.lab.longest, self.right
        if right == longest + 2:
            turn = context.round_index + place + context.sample
            right = longest + 1 if turn % 4 == 3 else (turn - 1) % (longest + 1)
        if right == longest + 1:
            return ()
        known = self.twin.plain(one.request).samples[context.sample]
        start = len(context.tokens) - len(one.request.prompt)
        drafts = list(known[start : start + context.max_draft])
        limits, chance = self.lab.claims.limits, Random(f"{context.round_index}/{len(context.tokens)}")
        for slot in range(right, len(drafts)):
            never = {drafts[slot], *limits.eos_ids}
            drafts[slot] = next(t for t in iter(lambda: chance.randrange(limits.vocab_size), None) if t not in never)
        return tuple(drafts)

    def forget(self, request_id: int) -> dict[tuple[int, int], list[int]]:
        """What it said about a request since this was last asked, by sample and anchor."""
        return self._said.pop(request_id, {})

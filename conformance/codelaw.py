"""The joint law of everything that a decoder answers to a request: of its real code, and what it should be.

The table target has four tokens and laws that, like every law that a rule derives from them, have few denominators.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import accumulate, product
from math import prod
from time import monotonic

import numpy as np

from specqual.contract import (
    CompactLaw,
    Decoder,
    Key,
    Proposal,
    Purpose,
    Request,
    Rule,
    ScriptContext,
    Tokens,
    Traced,
)
from specqual.reference.sampling import Law
from specqual.reference.verify import dense, judged, residual

from .cells import GRID, UNDECIDED, Exploration, Numbers, Samples, Seen
from .drive import DecoderError, guarded
from .lab import scripted, taped

PATIENCE = 120.0  # seconds for one path
LAWS = {"": "1/2 1/4 1/4 0", "0": "1/4 1/4 1/2 0", "1": "1/2 0 1/4 1/4", "2": "0 1/2 1/4 1/4", "3": "1 0 0 0"}
DRAFTERS = {
    "far": {"": "1/4 1/2 1/4 0", "0": "1/2 1/4 0 1/4", "1": "1/4 1/4 1/2 0", "2": "0 1/4 1/2 1/4"},
    "narrow": {"": "0 1/2 1/2 0", "0": "0 0 1/2 1/2", "1": "0 1/2 1/2 0"},
    "equal": LAWS,
}
NOTHING = Proposal.certain(())

Next = Callable[[tuple[int, ...]], Law]
"""The law [V] of the token behind an output, of Fraction or of float."""


def table_law(table: dict[str, str], last: int) -> list[Fraction]:
    return [Fraction(number) for number in table.get(str(last), table[""]).split()]


def table(laws: dict[str, str], start: int) -> Next:
    """The laws of a table target behind outputs to a prompt that ends with the token `start`."""
    rows = cache(lambda last: np.array(table_law(laws, last), object))
    return lambda output: rows(output[-1] if output else start)


@dataclass(frozen=True, slots=True)
class Script:
    """A drafter that draws from the laws q, at most `drafts` tokens, in a sample's first `rounds` drafted rounds."""

    q: dict[str, str]
    drafts: int
    rounds: int = 1


@dataclass
class Watch:
    """Tape and drafter of one run, which write down what is asked of them."""

    script: Script | None
    numbers: Numbers = field(default_factory=dict)
    asked: dict[Key, None] = field(default_factory=dict)  # as an ordered set
    choices: dict[Key, tuple[Fraction, ...]] = field(default_factory=dict)
    drafted: dict[tuple[int, int], Proposal] = field(default_factory=dict)

    def uniform(self, key: Key) -> float:
        self.asked.setdefault(key)
        return self.numbers.get(key, UNDECIDED)

    def draft(self, context: ScriptContext) -> Proposal:
        """Drafts drawn by keys that no decoder has: their seed is negative."""
        assert self.script is not None
        first = len(context.tokens)
        if context.round_index > self.script.rounds:
            return NOTHING
        tokens, laws = list[int](), list[CompactLaw | None]()
        for slot in range(min(self.script.drafts, context.max_draft)):
            law = table_law(self.script.q, [*context.tokens, *tokens][-1])
            key = Key(-1, context.sample, first, first + slot, Purpose.DRAFT)
            self.choices[key] = tuple(law)
            u = self.uniform(key)
            tokens.append(next(token for token, end in enumerate(accumulate(law)) if u < end))
            alive = [token for token, mass in enumerate(law) if mass]
            laws.append(CompactLaw(tuple(alive), tuple(float(law[token]) for token in alive)))
        self.drafted[context.sample, first] = Proposal(tuple(tokens), tuple(laws))
        return self.drafted[context.sample, first]


def code_law(
    decoder: Decoder, request: Request, rule: Rule, p: Next, script: Script | None = None, step: float = GRID
) -> Exploration:
    """The law of all that a decoder answers to a request, over every cell of its numbers; `p` is only asked where edges
    should be. Without a script the decoder drafts itself, and its trace tells what; `step` is how closely an edge is
    looked for where it is not where it should be."""
    watch = Watch(script)

    def run(numbers: Numbers) -> Seen:
        watch.numbers, watch.asked, watch.choices, watch.drafted = numbers, {}, {}, {}
        request_id, samples = heard(decoder, request)
        rounds = tuple(guarded("rounds", lambda: decoder.rounds(request_id))) if isinstance(decoder, Traced) else ()
        drafted = watch.drafted or {(r.sample, r.start + 1): Proposal(r.proposals, r.q) for r in rounds}
        return Seen(tuple(watch.asked), samples, drafted, watch.choices, rounds)

    found = Exploration(run, lambda key, seen: edges(key, seen, request, rule, p), step)
    with taped(decoder, watch):
        if script is None:
            return found.explore()
        with scripted(decoder, watch.draft):
            return found.explore()


def heard(decoder: Decoder, request: Request) -> tuple[int, Samples]:
    """A request's id and all samples of it; other requests may be there."""
    samples = [list[int]() for _ in range(request.n)]
    request_id, stop, ended = guarded("submit", lambda: decoder.submit(request)), monotonic() + PATIENCE, False
    while not ended:
        if monotonic() > stop:
            raise DecoderError(f"{request.max_tokens} tokens did not come within {PATIENCE:g} seconds")
        for event in (e for e in guarded("step", decoder.step) if e.request_id == request_id):
            if isinstance(event, Tokens):
                samples[event.sample] += event.ids
            else:
                ended = True
    return request_id, tuple(tuple(ids) for ids in samples)


def edges(key: Key, seen: Seen, request: Request, rule: Rule, p: Next) -> list[Fraction]:
    """Where a number's edges should be, by what came of the run: a ratio for acceptance, cumulative sums for a draw;
    none for a key that no decision of this run should have."""
    place = key.position - len(request.prompt)
    if not 0 <= key.sample < request.n or not 0 <= place < len(seen.samples[key.sample]):
        return []
    here = p(seen.samples[key.sample][:place])
    proposal, slot = seen.drafted.get((key.sample, key.round_start), NOTHING), key.position - key.round_start
    if key.purpose is not Purpose.BONUS and 0 <= slot < len(proposal.tokens):
        draft, own = proposal.tokens[slot], dense(proposal.q[slot], 0 * here)
        if key.purpose is Purpose.DRAFT:
            return [] if own is None else sums(own)
        q = judged(rule, own, draft, here)
        if key.purpose is Purpose.ACCEPT:
            return [Fraction(here[draft]) / Fraction(q[draft])]
        here = residual(here, q)
    return sums(here)


def sums(law: Law) -> list[Fraction]:
    return list(accumulate(Fraction(mass) for mass in law))[:-1]


def target_joint(p: Next, request: Request, eos_ids: Sequence[int] = ()) -> dict[Samples, Fraction]:
    """The law of everything that a request's answer should be: its samples, independent of each other, each drawn token
    by token and ended by a token of `eos_ids`."""

    def behind(output: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        if len(output) == request.max_tokens or (output and output[-1] in eos_ids):
            return {output: Fraction(1)}
        masses = ((token, Fraction(mass)) for token, mass in enumerate(p(output)) if mass)
        return {longer: mass * rest for token, mass in masses for longer, rest in behind((*output, token)).items()}

    alone = behind(())
    return {
        tuple(ids for ids, _ in samples): prod((mass for _, mass in samples), start=Fraction(1))
        for samples in product(alone.items(), repeat=request.n)
    }

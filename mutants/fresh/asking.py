"""Faults of what a request asks for: parameters, seeds, penalties, ends, and what is told (K06 to K12, K27, K30)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specqual.contract import Event, FinishReason, Proposal, Tokens
from specqual.decoder import engine, plan, transaction
from specqual.decoder import verify as verification
from specqual.decoder.block import BlockDrafter
from specqual.decoder.engine import Engine
from specqual.decoder.memory import Store
from specqual.decoder.propose import Ask
from specqual.decoder.row import Row
from specqual.decoder.sampling import Logits
from specqual.decoder.transaction import Terms, cut, judged, numbers
from specqual.decoder.verify import Uniform

from ..planting import Place, swapped
from ..rows import remembering, swap
from .parts import DENSE, HYBRID, TRANSACT, WINDOW, Pair, seated, shaping

CANCEL, HEADROOM, LAND, PROPOSE = Engine.cancel, Row.headroom, Engine._land, BlockDrafter.propose


@swap("_land", Engine)
def f06a(self: Engine) -> list[Event]:
    """A batch whose oldest sample asks for no top-k, top-p or min-p takes the path without filters: shows in mixed
    batches, for samples behind a plain one."""
    plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    first = next((flight.row.request.sampling for flight in self._flights), None)

    def transact(row: Row, *rest: Any) -> Tokens:
        with seated(row, replace(row.request, sampling=replace(row.request.sampling, **plain))):  # type: ignore[arg-type]
            return TRANSACT(row, *rest)

    if first is None or (first.top_k, first.top_p, first.min_p) != (0, 1.0, 0.0):
        return LAND(self)
    with swapped({(engine, "transact"): transact}):
        return LAND(self)


@swap("propose", BlockDrafter)
def f06b(self: BlockDrafter, asks: Sequence[Ask], store: Store) -> list[Proposal]:
    """The drafter draws every row at the temperature of the first one, and says so in q: shows in batches of mixed
    temperatures, as drafts and seeded output that depend on the neighbour."""
    shared = asks[0].sampling.temperature
    return PROPOSE(self, [replace(ask, sampling=replace(ask.sampling, temperature=shared)) for ask in asks], store)


@remembering
def f06c() -> dict[Place, Any]:
    """Biases are kept by place in the batch, and a place that is taken by a request without any keeps the last ones:
    shows in a request without a logit bias behind one that had it."""
    known: dict[int, Any] = {}

    def land(self: Engine) -> list[Event]:
        places = {id(flight.row): place for place, flight in enumerate(self._flights)}

        def transact(row: Row, *rest: Any) -> Tokens:
            place, sampling = places[id(row)], row.request.sampling
            known[place] = sampling.logit_bias or known.get(place, ())
            with seated(row, replace(row.request, sampling=replace(sampling, logit_bias=known[place]))):
                return TRANSACT(row, *rest)

        with swapped({(engine, "transact"): transact}):
            return LAND(self)

    return {(Engine, "_land"): land}


@swap("numbers", transaction, plan)
def f07a(row: Row, terms: Terms, first: int) -> Uniform:
    """Seed 0 counts as no seed, and the request's own number is taken: shows with seed 0 from the second request on."""
    seed = row.request.seed or row.request_id
    return numbers(replace(row, request=replace(row.request, seed=seed)), terms, first)


@shaping
def f08a(row: Row, proposal: Proposal, output: Sequence[int]) -> Sequence[int]:
    """Drafts of a round enter the penalties as a set: shows with a frequency penalty where one round holds a token
    twice."""
    return *output[: len(row.output)], *dict.fromkeys(output[len(row.output) :])


@swap("transact", engine)
def f08b(row: Row, proposal: Proposal, *rest: Any) -> Tokens:
    """Whether the end of sequence is still forbidden is decided once for a round: shows in the round that reaches
    min_tokens, whose later tokens can not be the end."""
    early, request = len(row.output) < row.request.min_tokens, row.request
    with seated(row, replace(request, min_tokens=request.min_tokens + len(proposal.tokens)) if early else request):
        return TRANSACT(row, proposal, *rest)


@shaping
def f08c(row: Row, proposal: Proposal, output: Sequence[int]) -> Sequence[int]:
    """The bonus token is shaped by the penalties of the row before it, without the last draft: shows with penalties at
    full acceptance."""
    last = proposal.tokens and len(output) == len(row.output) + len(proposal.tokens)
    return output[:-1] if last else output


@swap("cut", transaction)
def f10a(row: Row, span: Sequence[int], terms: Terms) -> tuple[tuple[int, ...], FinishReason | None]:
    """Stop strings are looked for once a round, behind all of its tokens: shows where one ends inside of the accepted
    drafts, as tokens behind it."""
    done, reason = cut(row, span, replace(terms, text=None))
    if row.request.stop_strings and terms.text is not None:
        text = terms.text.decode(row.output + done)
        if any(stop in text for stop in row.request.stop_strings):
            return done, FinishReason.STOP
    return done, reason


@swap("headroom", Row)
def f11a(self: Row, max_context: int) -> int:
    """The first token, from the prompt pass, is counted for the sample that ran it and not for those that it served,
    too: shows with n > 1, as one token too many in all samples but the first."""
    budget = self.request.max_tokens + (self.index > 0) - len(self.output)
    return min(budget, max_context - len(self.tokens))


@swap("_token", verification)
def f12a(token: object, vocab_size: int) -> bool:
    """-1, which fills up a drafter's array, passes for a token and is looked up from the end: shows with a script that
    drafts it, under the one-hot rule or by a row without q."""
    return isinstance(token, int) and not isinstance(token, bool) and -1 <= token < vocab_size


@swap("cancel", Engine)
def f27a(self: Engine, request_id: int) -> None:
    """What is in flight when a request is cancelled is told to its client after the final event: shows with a commit
    lag."""
    late = [f for f in self._flights if f.row.request_id == request_id and f.row.memory is f.span.memory]
    CANCEL(self, request_id)
    self._events += [
        TRANSACT(f.row, f.proposal, f.logits.numpy(), self._terms, f.policy) for f in late if f.span.judged
    ]


@swap("transact", engine)
def f30a(row: Row, proposal: Proposal, logits: Logits, terms: Terms, policy: Any) -> Tokens:
    """The log-probabilities of a correction are read from the block's last row, where a bonus token has its own: shows
    where drafts were rejected before the last one."""
    told = TRANSACT(row, proposal, logits, terms, policy)
    rejected = row.rounds[-1].accepted < len(proposal.tokens) and len(told.ids) == row.rounds[-1].accepted + 1
    if told.logprobs is None or row.request.logprobs is None or not rejected:
        return told
    last = judged(logits[len(proposal.tokens)], told.ids[-1], row.request.logprobs)
    return replace(told, logprobs=(*told.logprobs[:-1], last))


ROWS: tuple[Pair, ...] = (
    (f06a, "K06", *DENSE),
    (f06b, "K06", *HYBRID),
    (f06c, "K06", *WINDOW),
    (f07a, "K07", *DENSE),
    (f08a, "K08", *DENSE),
    (f08b, "K08", *HYBRID),
    (f08c, "K08", *DENSE),
    (f10a, "K10", *DENSE),
    (f11a, "K11", *WINDOW),
    (f12a, "K12", *DENSE),
    (f27a, "K27", *HYBRID),
    (f30a, "K30", *DENSE),
)

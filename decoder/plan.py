"""What every row does in a tick: who is asked for drafts, and what the target runs over."""

from collections.abc import Mapping, Sequence

from specqual.contract import Proposal, Purpose, Request, Script

from .memory import Store
from .policies import Decision, Policies, Shape, decide
from .prefixes import Prefixes
from .propose import Ask, Proposer, scripted
from .row import Row
from .schedule import Schedule
from .span import Span
from .transaction import Terms, numbers
from .verify import legal


def unservable(request: Request, max_context: int, most: int, store: Store) -> str | None:
    """What does not fit, however long a request that needs `most` pages waits.

    A drafter's context limits nothing: beyond it the target goes on alone.
    """
    if len(request.prompt) >= max_context:
        return f"prompt: {len(request.prompt)} tokens leave no room in a context of {max_context}"
    if most > store.pages.count:
        return f"max_tokens: needs {most} pages at its end, and the pool has {store.pages.count}"
    return None


def decided(rows: Sequence[Row], policies: Policies, schedule: Schedule) -> list[Decision]:
    """What the policies let each row do in this round."""
    tokens = sum(max(1, fill_end(row, schedule.chunk) - start_of(row)) for row in rows)
    return [decide(policies, Shape(len(rows), len(row.tokens), tokens), schedule.draft) for row in rows]


def wanted(rows: Sequence[Row], decisions: Sequence[Decision], terms: Terms) -> dict[int, Ask]:
    """The rows, by place, that have nothing left to fill and room for more than one token."""
    asks: dict[int, Ask] = {}
    for place, (row, decision) in enumerate(zip(rows, decisions, strict=True)):
        memory = row.memory
        most = min(decision.drafts, row.headroom(terms.max_context) - 1)
        if memory is not None and row.rounds and memory.length == row.settled and most > 0:
            uniform = numbers(row, terms, len(row.tokens))
            asks[place] = Ask(
                row.request_id,
                row.index,
                row.tokens,
                len(row.rounds),
                most,
                row.request.sampling,
                memory,
                lambda slot, uniform=uniform: uniform(Purpose.DRAFT, slot),  # type: ignore[misc]
                decision.selector,
            )
    return asks


def offered(
    rows: Sequence[Row],
    asks: Mapping[int, Ask],
    script: Script | None,
    proposer: Proposer | None,
    store: Store,
    vocab_size: int,
) -> list[Proposal]:
    """A proposal for every row; what is no legal one counts as none, and so does silence."""
    proposals, found = [Proposal.certain(())] * len(rows), list[Proposal]()
    if asks and script is not None:
        found = scripted(script, list(asks.values()))
    elif asks and proposer is not None:
        found = proposer.propose(list(asks.values()), store)
    for (place, ask), proposal in zip(asks.items(), found, strict=False):
        if legal(proposal, vocab_size, ask.most):
            proposals[place] = proposal
    return proposals


def start_of(row: Row) -> int:
    assert row.memory is not None
    return row.memory.length


def fill_end(row: Row, chunk: int) -> int:
    """Where the next chunk of what is to be filled ends: at multiples of `chunk`, wherever it begins."""
    return min((start_of(row) // chunk + 1) * chunk, row.settled)


def room_of(row: Row, ask: Ask | None, chunk: int) -> int:
    """Where a row's next pass ends at most: all drafts that it may get have room, however many it gets."""
    if start_of(row) < row.settled:
        return fill_end(row, chunk)
    return len(row.tokens) + (0 if ask is None else ask.most)


def span_of(row: Row, proposal: Proposal, chunk: int, prefixes: Prefixes) -> Span:
    """What a row's next pass runs over: the next chunk of what is to be filled, or the anchor and its drafts."""
    memory, tokens = row.memory, row.tokens
    assert memory is not None
    row.forwards += 1
    start = memory.length
    if start == row.settled:
        return Span(tokens + proposal.tokens, start, memory, 0, 1 + len(proposal.tokens))
    end = fill_end(row, chunk)
    anchor = end == len(tokens)
    mark = prefixes.mark(memory, row.request.prompt, start, end - anchor)
    return Span(tokens[:end], start, memory, end - start - anchor, int(anchor), mark)

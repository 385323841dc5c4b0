"""Faults of the seed contract (K07): every sample has its law, and a seed does not give what it gave before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specqual.contract import Key, Proposal, Purpose, Rule
from specqual.decoder import engine, plan, transaction
from specqual.decoder.propose import Ask
from specqual.decoder.row import Row
from specqual.decoder.transaction import Terms

from .mutant import planted_in
from .pairs import DFLASH2, Pair
from .planting import Place
from .rows import remembering, swap

MATCHED = Pair("nano/dense", "nano/dense-dflash2", rule=Rule.SAMPLER_MATCH)

Numbers = Callable[[Purpose, int], float]

sound_numbers, sound_wanted, sound_transact = transaction.numbers, plan.wanted, transaction.transact


def keyed(row: Row, terms: Terms, key: Callable[[Purpose, int], Key]) -> Numbers:
    """Numbers by other keys; greedy rows use none."""
    return lambda purpose, slot: 0.0 if row.request.sampling.greedy else terms.tape.uniform(key(purpose, slot))


@swap("numbers", transaction, plan)
def m07a(row: Row, terms: Terms, first: int) -> Numbers:
    """The stream moves on by rounds, not by tokens (B37): numbers depend on how much was accepted before."""
    start = len(row.request.prompt) + len(row.rounds)
    return keyed(row, terms, lambda purpose, slot: Key(row.request.seed, row.index, start, start + slot, purpose))


@swap("numbers", transaction, plan)
def m07b(row: Row, terms: Terms, first: int) -> Numbers:
    """Seeds are written into a copy that indexing made, so that all rows keep the seed 0 (B38)."""
    return keyed(row, terms, lambda purpose, slot: Key(0, row.index, first, first + slot, purpose))


@swap("numbers", plan)
def m07c(row: Row, terms: Terms, first: int) -> Numbers:
    """Proposals take their numbers from the target's stream (B39): a draft is drawn by the number that judges it."""
    sound = sound_numbers(row, terms, first)
    return lambda purpose, slot: sound(Purpose.BONUS, slot)


@swap("transact", engine)
def m07d(row: Row, proposal: Proposal, logits: Any, terms: Terms, policy: Mapping[str, int]) -> Any:
    """Rounds with drafts draw from another generator than rounds without (B40). Shows where drafting comes and goes."""
    if not proposal.tokens:
        return sound_transact(row, proposal, logits, terms, policy)
    request, row.request = row.request, _seeded(row, 1)
    found = sound_transact(row, proposal, logits, terms, policy)
    row.request = request
    return found


def _seeded(row: Row, by: int) -> Any:
    return replace(row.request, seed=(row.request.seed + by) % 2**64)


@swap("numbers", transaction, plan)
def m07e(row: Row, terms: Terms, first: int) -> Numbers:
    """The stream of a request begins where the number of requests before it says: seeds hold until a restart."""
    seed = (row.request.seed + row.request_id) % 2**64
    return keyed(row, terms, lambda purpose, slot: Key(seed, row.index, first, first + slot, purpose))


@remembering
def m07f() -> dict[Place, object]:
    """Streams belong to places in the batch (B42): a request has other numbers beside others than alone."""
    places: dict[int, int] = {}

    def wanted(rows: Sequence[Row], *others: Any) -> dict[int, Ask]:
        places.clear()
        places.update((id(row), place) for place, row in enumerate(rows))
        return sound_wanted(rows, *others)

    def numbers(row: Row, terms: Terms, first: int) -> Numbers:
        seed = (row.request.seed + places.get(id(row), 0)) % 2**64
        return keyed(row, terms, lambda purpose, slot: Key(seed, row.index, first, first + slot, purpose))

    return {(engine, "wanted"): wanted, (transaction, "numbers"): numbers, (plan, "numbers"): numbers}


PLANTED = planted_in(
    "optimised",
    ("RNG-2", MATCHED, (m07a, m07d)),
    ("RNG-2", DFLASH2, (m07e, m07f)),
    ("RNG-3", DFLASH2, (m07b,)),
    ("RNG-1", DFLASH2, (m07a, m07b, m07c, m07d)),
)

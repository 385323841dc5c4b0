"""A played history against the twin: states equal a replay of the tokens, outputs and rounds a request alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from specqual.contract import FinishReason, Round, State

from .drive import NotOffered
from .generators import edges
from .kinds import parting
from .kinds.values import excused
from .lab import Lab
from .looks import Look
from .played import Played, Unlike
from .player import Player
from .states import first_difference, largest, recurrent, rows
from .ties import tie_of
from .twin import Ids, Twin

ORDER_ONE = 0.1  # a tolerance beyond this is as large as the numbers of a state are
DECIDED = {"draft", "selector"}  # policies that may give a round other drafts among neighbours than alone


def compare(player: Player, replays: int) -> list[Unlike]:
    """Everything that differs, in the order of steps. At most `replays` states are replayed as prompts; those that the
    twin has passed on its way through a plain run cost nothing and are always compared."""
    found = list(player.unlike)
    for one in player.played:
        if one.request.sampling.greedy:
            player.twin.plain(one.request)  # on whose way the states lie
    chosen = choose([(one, seen) for one in player.played for seen in one.looks], player.twin, replays)
    states = player.twin.states(replayed(seen) for _, seen in chosen)
    tolerance = tolerance_of(player.lab, player.twin)
    for one, seen in chosen:
        player.comparisons += 1
        expected = states[replayed(seen)]
        found += unlike_states(one, seen, expected, tolerance)
        if tolerance:
            player.largest = max(player.largest, largest(expected.tensors, seen.state.tensors))
    player.counts["states compared"] += len(chosen)
    for one in player.played:
        shapes(player, one)
        found += ending(one)
        found += outputs(player, one)
    return sorted(found, key=lambda unlike: unlike.place)


def tolerance_of(lab: Lab, twin: Twin) -> float:
    """How far a number of a state may be from the twin's."""
    return 0.0 if twin.bitwise else max(1e-9, 16 * lab.envelope())


def comparable(lab: Lab, twin: Twin) -> None:
    """Raise NotOffered where a tolerance would let any state pass."""
    tolerance = tolerance_of(lab, twin)
    if tolerance > ORDER_ONE:
        raise NotOffered(
            f"the decoder does not claim to be bitwise, and rounding to {lab.claims.dtype} explains differences of "
            f"{tolerance:.2g}, as large as the numbers of a state"
        )


def replayed(seen: Look) -> Ids:
    """The tokens that a state is the state of."""
    return seen.tokens[: seen.state.length]


def choose(looks: Sequence[tuple[Played, Look]], twin: Twin, replays: int) -> list[tuple[Played, Look]]:
    """The looks to compare: all whose state is known, and some of the others, spread over the history."""
    looks = [pair for pair in looks if pair[1].state.length]
    new = [pair for pair in looks if not twin.knows(replayed(pair[1]))]
    count = min(replays, len(new))
    spread = {id(new[(2 * i + 1) * len(new) // (2 * count)]) for i in range(count)}
    known = {id(pair) for pair in looks} - {id(pair) for pair in new}
    return [pair for pair in looks if id(pair) in known | spread]


# -- states ------------------------------------------------------------------------------------------------------------


def unlike_states(one: Played, seen: Look, expected: State, tolerance: float) -> Iterator[Unlike]:
    """Where a state first differs from its replay: length, names, positions, then rows of tensors."""
    where = f"{one.label}, sample {seen.sample}, {len(seen.tokens)} tokens committed"
    if seen.fresh and seen.state.length != len(seen.tokens) - 1:
        what = f"{where}: tokens with a target state"
        yield Unlike("RWD", seen.place, what, len(seen.tokens) - 1, seen.state.length)
        return
    streams = sum(name.endswith(".key") for name in expected.tensors)
    if seen.fresh and expected.pages and len(seen.state.pages) > len(expected.pages) + streams:
        what = f"{where}: pages held beyond those of a replay and one a stream"
        yield Unlike("RES", seen.place, what, 0, len(seen.state.pages) - len(expected.pages) - streams)
    for chapter, mine in (("RWD", rows), ("REC", recurrent)):
        actual, wanted = mine(seen.state.tensors), mine(expected.tensors)
        first = next(first_difference(wanted, actual, seen.state.positions, expected.positions, tolerance), None)
        if first is not None:
            yield Unlike(chapter, seen.place, f"{where}: {first[0]}", *first[1:], tolerance)


def shapes(player: Player, one: Played) -> None:
    """Count the shapes of rounds, behind each sample's first."""
    for r in one.rounds:
        if r.start >= len(one.request.prompt):
            drafted = len(r.proposals)
            kind = "no draft" if not drafted else "full acceptance" if r.accepted == drafted else "partial acceptance"
            player.counts["first draft rejected" if drafted and not r.accepted else kind] += 1
            player.counts[f"{r.accepted} drafts accepted"] += bool(drafted)
            player.counts["rounds with drafts"] += bool(drafted)
        for edge in edges(player.lab):
            across = bool(r.proposals) and r.start < edge <= r.start + len(r.committed)
            player.counts[f"drafted rounds across {edge} tokens"] += across
    for sample in range(one.request.n):
        own = [r for r in one.rounds if r.sample == sample]
        for before, r, behind in zip(own, own[1:], own[2:], strict=False):
            silent = not r.proposals
            player.counts["undrafted behind an acceptance"] += silent and before.accepted > 0
            player.counts["drafted behind undrafted"] += silent and bool(behind.proposals)
    player.counts["prompts begun before"] += one.warm is not None
    if one.warm is not None and one.rounds and one.disturbed is None and player.size is not None:
        player.counts["prefix hits"] += one.rounds[0].target_forwards < -(-len(one.request.prompt) // player.size)


# -- outputs -----------------------------------------------------------------------------------------------------------


def ending(one: Played) -> Iterator[Unlike]:
    """The final event says what became of the request."""
    final, last = one.final, one.ended
    assert final is not None and last is not None
    usage = [len(one.request.prompt), sum(map(len, one.samples))]
    actual = [final.usage.prompt_tokens, final.usage.completion_tokens]
    if one.cancelled is None:
        cancelled = [str(reason) for reason in final.reasons if reason is FinishReason.CANCELLED]
        if cancelled:
            yield Unlike("CXL", last, f"reasons of {one.label}, which nobody cancelled", [], cancelled)
        if usage != actual:
            yield Unlike("SCH", last, f"usage of {one.label}", usage, actual)
    elif FinishReason.CANCELLED not in final.reasons or usage != actual:
        wanted = ["cancelled", *usage]
        found = ["cancelled" if FinishReason.CANCELLED in final.reasons else str(final.reasons[0]), *actual]
        yield Unlike("CXL", last, f"final event of {one.label}, cancelled", wanted, found)


def outputs(player: Player, one: Played) -> Iterator[Unlike]:
    """What a request said against what it says alone, under every property that it was a test of."""
    if not (player.twin.bitwise or one.request.sampling.greedy):
        return  # rounding may have moved a draw
    player.comparisons += 1
    first = first_unlike(player, one)
    if first is None:
        return
    where = one.ended if one.ended is not None else player.place
    isolated = one.heir if one.neighbours is None else one.neighbours
    tests = {"SCH": one.disturbed, "ISO": isolated, "CXL": one.bereaved, "RES": one.warm}
    for chapter, since in tests.items():
        if since is not None:
            yield Unlike(chapter, where, f"{one.label}: {first[0]}", *first[1:], one=one)


def first_unlike(player: Player, one: Played) -> tuple[str, Any, Any] | None:
    """The first thing that the request alone says otherwise; a cancelled one is compared as far as it came."""
    greedy = one.request.sampling.greedy
    if not player.twin.bitwise:
        return tied(player, one)
    own = player.own and not any(DECIDED & r.policy.keys() for r in one.rounds)
    if own:
        alone = player.twin.alone(one.request)
    elif greedy:
        alone = player.twin.plain(one.request)
    else:
        alone = player.twin.retold(one.request, one.rounds)
    for sample, said in enumerate(one.samples):
        full = list(alone.samples[sample])
        wanted = full if one.cancelled is None else full[: len(said)]
        if said != wanted:
            return f"output of sample {sample}", wanted, said
        mine, known = tale(one.rounds, sample), full
        if not own and greedy:
            told = [[r[0], leading(r[1], known, r[0] - len(one.request.prompt) + 1)] for r in mine]
            seen = [[r[0], r[3]] for r in mine]
        else:
            told, seen = tale(alone.rounds or (), sample), mine
            told = told if one.cancelled is None else told[: len(seen)]
        for index, (expected, actual) in enumerate(zip(told, seen, strict=False)):
            if expected != actual:
                return f"round {index} of sample {sample} (start, proposals, q, accepted)", expected, actual
        if len(told) != len(seen):
            return f"rounds of sample {sample}", len(told), len(seen)
    return None


def tale(rounds: Sequence[Round], sample: int) -> list[list[Any]]:
    """Rounds as JSON."""
    return [
        [
            r.start,
            list(r.proposals),
            [None if law is None else [list(law.ids), list(law.probabilities)] for law in r.q],
            r.accepted,
        ]
        for r in rounds
        if r.sample == sample
    ]


def leading(proposals: Sequence[int], known: Sequence[int], start: int) -> int:
    """How many drafts at the front are the output's own tokens."""
    right = known[start : start + len(proposals)]
    apart = parting(proposals, right)
    return len(right) if apart is None else apart


def tied(player: Player, one: Played) -> tuple[str, Any, Any] | None:
    """As `first_unlike`, for a greedy request where rounding may decide: a difference at a tie ends the comparison."""
    alone = player.twin.plain(one.request)
    for sample, said in enumerate(one.samples):
        full = list(alone.samples[sample])
        wanted = full if one.cancelled is None else full[: len(said)]
        if parting(wanted, said) is not None:
            if not excused(tie_of(player.lab, one.request, wanted, said)):
                return f"output of sample {sample}", wanted, said
            player.counts["ties"] += 1
        elif len(wanted) != len(said):
            return f"output of sample {sample}", wanted, said
    return None

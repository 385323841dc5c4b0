"""Exact laws: every rule leaves the target's law alone, classic faults do not, closed forms agree. Zero tolerance."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specqual.contract import Purpose, Rule
from specqual.reference.law import (
    accepted_mass,
    committed_law,
    expected_committed,
    extend,
    gather,
    law,
    mean_length,
    proposal_law,
    stream_law,
    target_law,
    transaction_law,
)
from specqual.reference.sampling import order, point, restrict
from specqual.reference.verify import residual, verify

EXACT_RULES = (Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH, Rule.BLOCK)
CHAIN_RULES = EXACT_RULES[:3]
Rows = tuple[tuple[int, ...], ...]

quick = settings(derandomize=True, deadline=None, max_examples=40)


def table(rows: Rows) -> Callable[[tuple[int, ...]], Any]:
    """A law by the last token: row v + 1 after token v, row 0 at the start."""
    laws = [law(*row) for row in rows]
    return lambda prefix: laws[prefix[-1] + 1 if prefix else 0]


@st.composite
def pairs(draw: st.DrawFn, largest: int = 3) -> tuple[Rows, Rows]:
    """Integer weights of a target and a drafter over the same small vocabulary, zeros and ties included."""
    size = draw(st.integers(2, largest))
    row = st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any).map(tuple)
    rows = st.lists(row, min_size=size + 1, max_size=size + 1).map(tuple)
    return draw(rows), draw(rows)


def everywhere(*weights: int) -> Rows:
    return (weights,) * (len(weights) + 1)


@pytest.mark.parametrize("rule", EXACT_RULES)
@given(pair=pairs(), length=st.integers(0, 3))
@example(pair=(everywhere(1, 1, 2), everywhere(0, 1, 0)), length=3)  # certain drafter
@example(pair=(everywhere(1, 1, 0), everywhere(0, 0, 1)), length=2)  # disjoint supports
@example(pair=(everywhere(1, 2, 3), everywhere(1, 2, 3)), length=3)  # p = q: the residual has no mass
@example(pair=(everywhere(1, 1, 1), everywhere(2, 2, 0)), length=2)  # ties
@example(pair=(((1, 0), (0, 1), (1, 0)), everywhere(1, 1)), length=3)  # a deterministic target
@quick
def test_every_rule_leaves_the_law_of_a_stream_of_rounds_alone(pair: tuple[Rows, Rows], length: int, rule: Rule):
    p, q = map(table, pair)
    assert stream_law(p, q, length, rule, tokens=3) == target_law(p, 3)


@pytest.mark.parametrize("rule", EXACT_RULES)
@given(pair=pairs(largest=5), top_k=st.integers(1, 2))
@quick
def test_candidates_fewer_than_the_vocabulary_leave_the_law_alone(pair: tuple[Rows, Rows], top_k: int, rule: Rule):
    p, full = map(table, pair)
    assert stream_law(p, lambda prefix: restrict(full(prefix), top_k=top_k), 2, rule, tokens=2) == target_law(p, 2)


@pytest.mark.parametrize("rule", EXACT_RULES)
@given(pair=pairs())
@quick
def test_random_wrong_and_empty_drafters_leave_the_law_alone(pair: tuple[Rows, Rows], rule: Rule):
    p, shape = map(table, pair)
    size = len(pair[0][0])
    worst = [point(int(order(-p(prefix))[0]), p(prefix)) for prefix in [(), *((v,) for v in range(size))]]
    for q in (
        lambda prefix: law(*[1] * size),
        lambda prefix: worst[prefix[-1] + 1 if prefix else 0],
        lambda prefix: None,
        lambda prefix: None if len(prefix) % 2 else shape(prefix),
    ):
        assert stream_law(p, q, 2, rule, tokens=3) == target_law(p, 3)


@given(pair=pairs(), length=st.integers(1, 3))
@quick
def test_block_verification_commits_at_least_as_many_tokens_as_the_ratio_rule(pair: tuple[Rows, Rows], length: int):
    p, q = map(table, pair)
    block, ratio = (mean_length(transaction_law(p, q, length, rule)) for rule in (Rule.BLOCK, Rule.RATIO))
    assert block >= ratio


def test_block_verification_accepts_other_drafts_than_the_ratio_rule():
    p, q = table(everywhere(2, 1)), table(everywhere(1, 2))
    block, ratio = (transaction_law(p, q, 2, rule) for rule in (Rule.BLOCK, Rule.RATIO))
    assert mean_length(block) > mean_length(ratio)


@pytest.mark.parametrize("rule", EXACT_RULES)
@given(pair=pairs(), half=st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)]))
@quick
def test_a_draft_length_that_looks_at_earlier_drafts_and_the_shape_of_q_is_exact(
    pair: tuple[Rows, Rows], half: Fraction, rule: Rule
):
    p, q = map(table, pair)

    def stop(prefix: tuple[int, ...], drafts: tuple[int, ...], following: Any) -> bool:
        return following.max() < half or (bool(drafts) and drafts[-1] == 1)

    assert stream_law(p, q, 3, rule, tokens=3, stop=stop) == target_law(p, 3)


def test_a_draft_length_that_looks_at_the_drafted_token_itself_is_biased():
    p, q = table(everywhere(2, 1, 1)), table(everywhere(1, 2, 1))
    half = Fraction(1, 2)

    def transaction(prefix: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        def cut(drafts: tuple[int, ...]) -> tuple[int, ...]:  # drop d when q(d) < 1/2
            return drafts if q(prefix)[drafts[0]] >= half else ()

        return gather(
            (tokens, mass * part)
            for drafts, mass in proposal_law(q, 1, prefix=prefix).items()
            for tokens, part in committed_law(p, q, cut(drafts), Rule.RATIO, prefix=prefix).items()
        )

    assert extend(transaction, 1) == {(0,): Fraction(4, 8), (1,): Fraction(3, 8), (2,): Fraction(1, 8)}


@pytest.mark.parametrize("rule", CHAIN_RULES)
@given(pair=pairs(largest=4), length=st.integers(0, 3))
@quick
def test_the_expected_number_of_committed_tokens_has_its_closed_form(pair: tuple[Rows, Rows], length: int, rule: Rule):
    p, q = map(table, pair)
    assert expected_committed(p, q, length, rule) == mean_length(transaction_law(p, q, length, rule))


@given(pair=pairs(largest=5))
@quick
def test_the_first_draft_is_accepted_at_the_rate_of_its_closed_form(pair: tuple[Rows, Rows]):
    p, q = (table(rows)(()) for rows in pair)
    best = int(order(q)[0])

    def rate(rule: Rule, drafter: Any) -> Fraction:
        return mean_length(transaction_law(lambda _: p, lambda _: drafter, 1, rule)) - 1

    assert rate(Rule.RATIO, q) == sum(min(a, b) for a, b in zip(p, q, strict=True))
    assert rate(Rule.SAMPLER_MATCH, q) == rate(Rule.ONE_HOT, q) == sum(a * b for a, b in zip(p, q, strict=True))
    assert {rate(rule, point(best, q)) for rule in CHAIN_RULES} == {p[best]}
    assert accepted_mass(Rule.RATIO, p, q).sum() == rate(Rule.RATIO, q)


@pytest.mark.parametrize("rule", [Rule.NONE, Rule.BLOCK, Rule.LOSSY])
def test_no_closed_form_is_made_up_for_a_rule_that_has_none(rule: Rule) -> None:
    with pytest.raises(ValueError, match=f"rule: {rule}"):
        accepted_mass(rule, law(1, 1), law(1, 1))


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT])
def test_a_number_on_the_edge_rejects(rule: Rule) -> None:
    half, q = Fraction(1, 2), law(0, 1)

    def accepted(p: Any, u: Fraction) -> int:
        return verify(
            rule, [p, law(1, 1)], [1], [q], lambda purpose, slot: u if purpose is Purpose.ACCEPT else 0
        ).accepted

    assert accepted(law(1, 0), Fraction(0)) == 0  # what the target never says is not accepted, whatever the number
    assert accepted(law(1, 1), half) == 0
    assert accepted(law(1, 1), half - Fraction(1, 10**9)) == 1
    assert accepted(law(0, 1), Fraction(0)) == accepted(law(0, 1), 1 - Fraction(1, 10**9)) == 1


# The real code under exact numbers: decisions are constant between breakpoints, so one number per cell tells all.


class _Asked(Exception):
    pass


def _cells(rule: Rule, p: list[Any], drafts: tuple[int, ...], q: list[Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    points = {Fraction(0), Fraction(1)}
    for place, row in enumerate(p):
        points |= set(np.cumsum(row))
        if place < len(drafts):
            for judged in (q[place], point(drafts[place], row)):
                points |= {row[drafts[place]] / judged[drafts[place]], *np.cumsum(residual(row, judged))}
    cells = [((a + b) / 2, b - a) for a, b in pairwise(sorted(x for x in points if x <= 1))]

    def run(numbers: tuple[Fraction, ...], volume: Fraction) -> Iterator[tuple[tuple[int, ...], Any]]:
        left = iter(numbers)

        def uniform(purpose: Purpose, slot: int) -> Fraction:
            number = next(left, None)
            if number is None:
                raise _Asked
            return number

        try:
            verdict = verify(rule, p, drafts, q, uniform)
        except _Asked:
            for middle, width in cells:
                yield from run((*numbers, middle), volume * width)
            return
        yield (*drafts[: verdict.accepted], verdict.token), volume

    yield from run((), Fraction(1))


@pytest.mark.parametrize("rule", CHAIN_RULES)
@given(pair=pairs(), length=st.integers(0, 2))
@settings(quick, max_examples=15)
def test_the_code_that_draws_has_the_law_that_is_enumerated(pair: tuple[Rows, Rows], length: int, rule: Rule):
    p, q = map(table, pair)
    for drafts in proposal_law(q, length):
        rows = [p(drafts[:slot]) for slot in range(length + 1)]
        laws = [q(drafts[:slot]) for slot in range(length)]
        assert gather(_cells(rule, rows, drafts, laws)) == committed_law(p, q, drafts, rule)


# Classic faults: each must miss the target's law, or the check above could not have seen it.

P, Q = law(3, 2, 1), law(1, 2, 5)


def _with_correction(correction: Any) -> Any:
    accepted = np.minimum(P, Q)
    return accepted + (1 - accepted.sum()) * correction


def test_a_residual_drawn_from_p_misses_the_law():
    assert (_with_correction(residual(P, Q)) == P).all()
    assert (_with_correction(P) != P).any()


def test_a_residual_that_is_a_softmax_of_the_excess_misses_the_law():
    weights = np.exp(np.maximum(P - Q, 0).astype(float))
    assert np.abs(_with_correction(weights / weights.sum()).astype(float) - P.astype(float)).max() > 0.05


def test_a_fresh_draw_from_p_after_a_mismatch_misses_the_law():
    accepted = P * Q
    assert (accepted + (1 - accepted.sum()) * P != P).any()


def test_an_argmax_draft_with_the_softmax_as_its_q_misses_the_law():
    assert committed_law(lambda _: P, lambda _: Q, (2,), Rule.RATIO) != target_law(lambda _: P, 1)
    faulty = extend(lambda prefix: committed_law(lambda _: P, lambda _: Q, (2,), Rule.RATIO), 1)
    assert faulty != target_law(lambda _: P, 1)


def test_a_draft_from_a_filtered_law_with_the_raw_law_as_its_q_misses_the_law():
    def transaction(prefix: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        drafted = proposal_law(lambda _: restrict(Q, top_k=2), 1)
        return gather(
            (tokens, mass * part)
            for drafts, mass in drafted.items()
            for tokens, part in committed_law(lambda _: P, lambda _: Q, drafts, Rule.RATIO).items()
        )

    assert extend(transaction, 1) != target_law(lambda _: P, 1)


def test_a_bonus_from_the_row_before_the_last_misses_the_law_of_pairs_only():
    p, q = table(((1, 1), (3, 1), (1, 3))), table(everywhere(1, 1))

    def transaction(prefix: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        right = transaction_law(p, q, 1, Rule.RATIO, prefix=prefix)
        accepted = {draft: sum(mass for tokens, mass in right.items() if tokens[0] == draft) for draft in (0, 1)}
        return gather(((draft, bonus), accepted[draft] * p(prefix)[bonus]) for draft in (0, 1) for bonus in (0, 1))

    assert extend(transaction, 1) == target_law(p, 1)
    assert extend(transaction, 2) != target_law(p, 2)


def test_block_acceptance_with_the_residual_of_single_tokens_is_exact_for_one_draft_only():
    p, q = table(everywhere(5, 4, 1)), table(((4, 5, 1), *everywhere(1, 3, 6)[1:]))

    def faulty(length: int) -> dict[tuple[int, ...], Fraction]:
        def transaction(prefix: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
            terms = []
            for drafts, mass in proposal_law(q, length).items():
                block = committed_law(p, q, drafts, Rule.BLOCK)
                for count in range(length + 1):
                    kept = sum(part for tokens, part in block.items() if len(tokens) == count + 1)
                    row, last = p(drafts[:count]), count == length
                    following = row if last else residual(row, q(drafts[:count]))
                    terms += [((*drafts[:count], v), mass * kept * part) for v, part in enumerate(following)]
            return gather(iter(terms))

        return extend(transaction, 2)

    assert faulty(1) == target_law(p, 2)
    assert faulty(2) != target_law(p, 2)

"""Exact laws of whole transactions and of streams of several, by enumeration over Fractions.

p and q are given as functions of a prefix, the tokens of the stream so far: `p(prefix)` is the law [V] of its next
token, an object array of Fraction; `q(prefix)` the law that the drafter draws the next draft from, or None where it
drafts no further. A law of sequences is a dictionary from token tuples to positive probabilities that sum to one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

import numpy as np

from specqual.contract import Rule

from .sampling import Law
from .verify import judged, residual

Tokens = tuple[int, ...]
Next = Callable[[Tokens], Law]
Draft = Callable[[Tokens], Law | None]
SequenceLaw = dict[Tokens, Fraction]

Stop = Callable[[Tokens, Tokens, Law], bool]
"""Whether to draft no further: (prefix, drafts so far, q of the next draft). It cannot see the next draft itself."""

ONE = Fraction(1)


def law(*weights: int) -> Law:
    """The law proportional to integer weights: an object array [V] of Fraction."""
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


def _support(p: Law) -> Iterator[tuple[int, Fraction]]:
    return ((token, mass) for token, mass in enumerate(p) if mass)


def gather(terms: Iterable[tuple[Tokens, Fraction]]) -> SequenceLaw:
    """Add up the masses of equal sequences; zeros are dropped."""
    total: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, mass in terms:
        total[tokens] += mass
    return {tokens: mass for tokens, mass in total.items() if mass}


def proposal_law(q: Draft, length: int, *, prefix: Tokens = (), stop: Stop | None = None) -> SequenceLaw:
    """The law of the drafts of one round behind `prefix`, at most `length` of them."""

    def walk(drafts: Tokens) -> Iterator[tuple[Tokens, Fraction]]:
        following = q(prefix + drafts) if len(drafts) < length else None
        if following is None or (stop is not None and stop(prefix, drafts, following)):
            yield drafts, ONE
            return
        for token, mass in _support(following):
            for longer, rest in walk((*drafts, token)):
                yield longer, mass * rest

    return gather(walk(()))


def committed_law(p: Next, q: Draft, drafts: Tokens, rule: Rule, *, prefix: Tokens = ()) -> SequenceLaw:
    """The law of what one round commits, given its drafts: accepted drafts and the correction or bonus token."""
    rows = [p(prefix + drafts[:slot]) for slot in range(len(drafts) + 1)]
    laws = [q(prefix + drafts[:slot]) for slot in range(len(drafts))]
    if rule is Rule.BLOCK:
        return gather(_block(rows, laws, drafts))
    if rule in (Rule.NONE, Rule.SAMPLER_MATCH):
        return gather(_match(rows, drafts))
    if rule in (Rule.RATIO, Rule.ONE_HOT):
        return gather(_chain(rows, laws, drafts, rule))
    raise ValueError(f"rule: {rule} has no exact law")


def _chain(rows: list[Law], laws: list[Law | None], drafts: Tokens, rule: Rule) -> Iterator[tuple[Tokens, Fraction]]:
    reached = ONE
    for slot, draft in enumerate(drafts):
        p, q = rows[slot], judged(rule, laws[slot], draft, rows[slot])
        accept = min(ONE, p[draft] / q[draft])
        for token, mass in _support(residual(p, q)):
            yield (*drafts[:slot], token), reached * (1 - accept) * mass
        reached *= accept
    for token, mass in _support(rows[-1]):
        yield (*drafts, token), reached * mass


def _match(rows: list[Law], drafts: Tokens) -> Iterator[tuple[Tokens, Fraction]]:
    reached = ONE
    for slot, p in enumerate(rows):
        draft = drafts[slot] if slot < len(drafts) else None
        for token, mass in _support(p):
            if token != draft:
                yield (*drafts[:slot], token), reached * mass
        if draft is not None:
            reached *= p[draft]


def _block(rows: list[Law], laws: list[Law | None], drafts: Tokens) -> Iterator[tuple[Tokens, Fraction]]:
    """Block verification: every length gets its own coin, and the longest one that wins is kept.

    w_i = min(1, w_{i-1} p(d_i) / q(d_i)) is the part of the block's probability that its first i drafts may keep; what
    they leave over, max(w_i p - q, 0), is the residual behind them and sets the coin of length i.
    """
    last = len(drafts)
    keeps, behind = [ONE], []
    for slot, draft in enumerate(drafts):
        p, q = rows[slot], judged(Rule.RATIO, laws[slot], draft, rows[slot])
        behind.append(np.maximum(keeps[slot] * p - q, 0))
        keeps.append(min(ONE, keeps[slot] * p[draft] / q[draft]))
    open_ = ONE  # no longer length has won
    for length in range(last, -1, -1):
        if length == last:
            win, following = keeps[last], rows[last]
        else:
            left = behind[length].sum()
            win = left / (left + 1 - keeps[length]) if left else Fraction(length == 0)
            following = behind[length] / left if left else rows[length]
        for token, mass in _support(following):
            yield (*drafts[:length], token), open_ * win * mass
        open_ *= 1 - win


def transaction_law(
    p: Next, q: Draft, length: int, rule: Rule, *, prefix: Tokens = (), stop: Stop | None = None
) -> SequenceLaw:
    """The law of what one round commits behind `prefix`, over its drafts, verdicts and the last token."""
    return gather(
        (tokens, mass * part)
        for drafts, mass in proposal_law(q, length, prefix=prefix, stop=stop).items()
        for tokens, part in committed_law(p, q, drafts, rule, prefix=prefix).items()
    )


def stream_law(p: Next, q: Draft, length: int, rule: Rule, *, tokens: int, stop: Stop | None = None) -> SequenceLaw:
    """The law of the first `tokens` tokens of a stream of rounds; exact decoding makes it `target_law`."""
    return extend(lambda prefix: transaction_law(p, q, length, rule, prefix=prefix, stop=stop), tokens)


def target_law(p: Next, tokens: int) -> SequenceLaw:
    """The law of `tokens` tokens drawn from p one by one: what every exact rule must yield."""
    return extend(lambda prefix: gather(((token,), mass) for token, mass in _support(p(prefix))), tokens)


def extend(transaction: Callable[[Tokens], Mapping[Tokens, Fraction]], tokens: int) -> SequenceLaw:
    """The law of the first `tokens` tokens, where `transaction` gives the law of the tokens that follow a prefix."""
    by_length: list[SequenceLaw] = [{} for _ in range(tokens + 1)]
    by_length[0][()] = ONE
    for shorter in by_length[:-1]:
        for prefix, mass in shorter.items():
            for span, part in transaction(prefix).items():
                longer = (prefix + span)[:tokens]
                found = by_length[len(longer)]
                found[longer] = found.get(longer, Fraction(0)) + mass * part
    return by_length[tokens]


def accepted_mass(rule: Rule, p: Law, q: Law) -> Law:
    """The probability [V] that a token is drafted and accepted: min(p, q) under the ratio rule, else p q.

    Its sum is the rate of acceptance: p(d) for a one-hot q at d. ValueError for a rule that does not judge one draft
    after the other.
    """
    if rule is Rule.RATIO:
        return np.minimum(p, q)
    if rule in (Rule.ONE_HOT, Rule.SAMPLER_MATCH):
        return p * q
    raise ValueError(f"rule: {rule} has no acceptance of a draft by itself")


def expected_committed(p: Next, q: Draft, length: int, rule: Rule, *, prefix: Tokens = ()) -> Fraction:
    """The mean number of tokens that a round commits, in closed form: one, and the chance that each draft is reached
    and accepted."""
    following = q(prefix) if length else None
    if following is None:
        return ONE
    return ONE + sum(
        mass * expected_committed(p, q, length - 1, rule, prefix=(*prefix, token))
        for token, mass in _support(accepted_mass(rule, p(prefix), following))
    )


def mean_length(sequences: Mapping[Tokens, Fraction]) -> Fraction:
    """The mean length (tokens) under a law of sequences."""
    return sum((mass * len(tokens) for tokens, mass in sequences.items()), Fraction(0))

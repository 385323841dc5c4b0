"""The law of real code, measured: every number that it asks for is probed on both sides of every edge that it has.

What a decoder does is a function of its numbers, and constant as long as none of its decisions changes. So its law is a
sum over cells: one outcome each, and the product of the lengths of the intervals that its numbers may come from. Where
the edges are is not assumed. Hints say where to look first; wherever two probes differ, bisection finds what lies
between them. Taken for granted is only that nothing changes between two neighbouring probes that agree.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, pairwise
from math import nextafter

from specqual.contract import Key, Proposal, Purpose, Round

from .tapes import BELOW_ONE

GRID = 2.0**-53  # how close two probes may come: numbers of a tape have 53 bits
FASTER = 8  # times the last step, on the way from a hint to an edge that is not there
UNDECIDED = 0.5  # stands for a number that is still to be explored

Samples = tuple[tuple[int, ...], ...]
Numbers = Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: the keys it asked for, in order; its samples; its drafts by sample and first position; its rounds, as
    far as there is a trace. `choices` are the laws of those keys that the suite's own script drew from."""

    asked: tuple[Key, ...]
    samples: Samples
    drafted: Mapping[tuple[int, int], Proposal]
    choices: Mapping[Key, tuple[Fraction, ...]] = field(default_factory=dict)
    rounds: tuple[Round, ...] = ()

    def same(self, other: "Seen") -> bool:
        """Whether nothing that can be seen tells the two apart."""
        return (self.asked, self.samples, self.drafted) == (other.asked, other.samples, other.drafted)


Probe = Callable[[float], Seen]


@dataclass(frozen=True, slots=True)
class Cell:
    """The numbers from `low` up to, not with, `high`: one of them, and what the decoder does with it."""

    low: Fraction
    high: Fraction
    number: float
    seen: Seen


def at(edge: Fraction) -> float:
    """The smallest double that is not below an edge."""
    near = float(edge)
    return near if near >= edge else nextafter(near, 1.0)


def changes(probe: Probe, low: float, high: float, step: float) -> list[float]:
    """The numbers in (low, high] at which the outcome changes, to within `step`: each the first with the new one."""
    if probe(low).same(probe(high)):
        return []
    below, above = _closer(probe, low, high, step)
    return [*changes(probe, low, below, step), above, *changes(probe, above, high, step)]


def _closer(probe: Probe, low: float, high: float, step: float) -> tuple[float, float]:
    """Two numbers with different outcomes, `step` apart, between two that have them: first by growing steps from both
    ends, since most edges lie near a hint, then by halves."""
    reach = step
    while high - low > 4 * reach:
        if not probe(low + reach).same(probe(low)):
            high = low + reach
        elif not probe(high - reach).same(probe(high)):
            low = high - reach
        else:
            low, high, reach = low + reach, high - reach, FASTER * reach
            continue
        break
    while high - low > step and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if probe(middle).same(probe(low)) else (low, middle)
    return low, high


def split(probe: Probe, hints: Iterable[float], step: float) -> list[Cell]:
    """The cells of one number. Each hint is probed on both sides by the nearest doubles, each stretch between two also
    at both ends and in its middle."""
    known: dict[float, Seen] = {}

    def once(number: float) -> Seen:
        if number not in known:
            known[number] = probe(number)
        return known[number]

    ends = [0.0, *sorted({hint for hint in hints if 0 < hint < 1}), 1.0]
    points = {p for low, high in pairwise(ends) for p in (low, (low + high) / 2, nextafter(high, 0.0))}
    assert BELOW_ONE in points
    found = [edge for low, high in pairwise(sorted(points)) for edge in changes(once, low, high, step)]
    cells = []
    for low, high in pairwise([0.0, *found, 1.0]):
        number = min((u for u in known if low <= u < high), key=lambda u: abs(u - (low + high) / 2))
        cells.append(Cell(Fraction(low), Fraction(high), number, known[number]))
    return cells


@dataclass
class Exploration:
    """A walk through all cells. `run` gives a decoder these numbers, and the undecided one for every other key; `hints`
    say where a key's edges should be.

    `law` is what it found; `edges` counts them, `off` is the farthest that one was from its hint, `runs` what it took.
    `leaves` are one run of each cell of positive length.
    """

    run: Callable[[Numbers], Seen]
    hints: Callable[[Key, Seen], Sequence[Fraction]]
    step: float = GRID
    law: dict[Samples, Fraction] = field(default_factory=dict)
    leaves: list[Seen] = field(default_factory=list)
    runs: int = 0
    edges: int = 0
    off: float = 0.0
    _learnt: dict[tuple[Purpose, tuple[Fraction, ...]], list[float]] = field(default_factory=dict)

    def explore(self) -> "Exploration":
        self._visit({}, self._probe({}), Fraction(1))
        assert sum(self.law.values()) == 1, "the cells do not fill the cube"
        return self

    def _probe(self, numbers: Numbers) -> Seen:
        self.runs += 1
        return self.run(numbers)

    def _visit(self, numbers: Numbers, seen: Seen, mass: Fraction) -> None:
        key = next((key for key in seen.asked if key not in numbers), None)
        if key is None:
            self.law[seen.samples] = self.law.get(seen.samples, Fraction(0)) + mass
            self.leaves.append(seen)
            return
        for cell in self._cells(numbers, key, seen):
            self._visit({**numbers, key: cell.number}, cell.seen, mass * (cell.high - cell.low))

    def _cells(self, numbers: Numbers, key: Key, seen: Seen) -> list[Cell]:
        def probe(number: float) -> Seen:
            return self._probe({**numbers, key: number})

        if key in seen.choices:
            ends = pairwise(accumulate(seen.choices[key], initial=Fraction(0)))
            numbered = [(low, high, float((low + high) / 2)) for low, high in ends if low < high]
            return [Cell(low, high, middle, probe(middle)) for low, high, middle in numbered]
        wanted = tuple(hint for hint in sorted(set(self.hints(key, seen))) if 0 < hint < 1)
        # where the same edges were wanted before, they are looked for where they were then
        cells = split(probe, self._learnt.get((key.purpose, wanted), [at(hint) for hint in wanted]), self.step)
        found = [float(cell.low) for cell in cells[1:]]
        self._learnt[key.purpose, wanted] = found
        self.edges += len(found)
        self.off = max([self.off, *(min((abs(edge - float(hint)) for hint in wanted), default=1.0) for edge in found)])
        return cells

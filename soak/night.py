"""The verdict of a whole run, from its journal alone: derived whenever it is asked for, however far the run is."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import exp, fsum, inf, log

from specqual.conformance.statistics import expected, log_e, mean, product
from specqual.conformance.statistics.budget import ALPHA
from specqual.conformance.verdicts import Decision, Status, Verdict

from .chaos import KILLED, PREFIX, REFUSED
from .hazards import SKIP, UNSEEN
from .journal import Journal
from .records import CUT, DECODER, PROCESS, SUITE, Increment, Violation
from .scenarios import OWN, SCENARIOS
from .series import a_deck, lives, memory

LAWS = 0.5 * ALPHA  # of the error budget of a run
CONTEXTS = 64  # laws that a run may test: those that it never came to bet nothing
BLIND = 0.5  # total variation; who would miss as much has looked at too few tokens to speak of a law


@dataclass(frozen=True, slots=True)
class Law:
    """The evidence (log E, nats) of all epochs against one test: `grown` from the sums of all counts; `product` and
    `mean` of the epochs' own. A bias of `visible`, in total variation and averaged over its tokens, would show in one
    of its contexts with a chance of a half."""

    test: str
    samples: int
    grown: float
    product: float
    mean: float
    visible: float


@dataclass(frozen=True, slots=True)
class Night:
    """Everything that a run has established so far; `decisions` by what they are about; `peak` is the largest that
    `log_e` was behind any epoch."""

    decisions: dict[str, Decision]
    counts: dict[str, int]
    laws: tuple[Law, ...]
    log_e: float
    peak: float

    @property
    def verdict(self) -> Verdict:
        found = {decision.verdict for decision in self.decisions.values()}
        worst = (Verdict.VIOLATED, Verdict.ERROR, Verdict.INCONCLUSIVE)
        return next((verdict for verdict in worst if verdict in found), Verdict.HOLDS)

    @property
    def status(self) -> Status:
        found = {Verdict.VIOLATED: Status.VIOLATED, Verdict.ERROR: Status.ERROR, Verdict.INCONCLUSIVE: Status.OPEN}
        return found.get(self.verdict, Status.CLEAN)


@dataclass(slots=True)
class Tally:
    """The evidence against one test so far: the counts of each context, their log E, and the epochs' own log E."""

    counts: dict[str, list[int]] = field(default_factory=dict)
    grown: dict[str, float] = field(default_factory=dict)
    own: list[float] = field(default_factory=list)
    samples: int = 0


def tallied(journal: Journal) -> Iterator[tuple[Increment, dict[str, Tally]]]:
    """The evidence as it was recorded: each increment, and the tally of every test with it.

    The mixture's log E is a function of the counts, so that of a night is that of the sums, in whatever order epochs
    came and wherever they ran; a resumed run goes on with it.
    """
    laws, tallies = journal.laws(), defaultdict[str, Tally](Tally)
    for _, _, one in journal.increments():
        tally = tallies[one.test]
        tally.own.append(one.log_e)
        tally.samples += one.samples
        for context, row in one.counts.items():
            before = tally.counts.get(context, [0] * len(row))
            counts = tally.counts[context] = [a + b for a, b in zip(before, row, strict=True)]
            law, slack = laws[one.test, context]
            tally.grown[context] = log_e(law, counts, slack)
        yield one, tallies


def evidence(journal: Journal) -> tuple[tuple[Law, ...], float, float]:
    """The evidence of each test, and of all of them together: the mean over every law that a run may test, as it is now
    and at its peak. It may be looked at behind each epoch, so what it came to once stands, though all that follows be
    sound."""
    laws, tallies, total, peak = journal.laws(), dict[str, Tally](), 0.0, 0.0
    for _, tallies in tallied(journal):
        total = mixed(e for tally in tallies.values() for e in tally.grown.values())
        peak = max(peak, total)
    found = list[Law]()
    for test, tally in sorted(tallies.items()):
        missed = fsum(sum(row) * _visible(row, laws[test, name][1]) for name, row in tally.counts.items())
        grown, own, samples = mixed(tally.grown.values()), tally.own, tally.samples
        found.append(Law(test, samples, grown, product(own), mean(own), missed / max(1, samples)))
    return tuple(found), total, peak


def _visible(row: list[int], slack: float) -> float:
    """The total variation at which a law of these counts would be rejected, as one of `CONTEXTS`."""
    return min(1.0, slack + expected(sum(row), len(row) - 1, LAWS / CONTEXTS))


def mixed(log_es: Iterable[float]) -> float:
    """Log of the mean e-value over `CONTEXTS` laws, of which those that are not among these are at one."""
    given = list(log_es)
    largest = max(0.0, *given, 0.0)
    if largest == inf:
        return inf
    size = max(CONTEXTS, len(given))
    return largest + log((fsum(exp(e - largest) for e in given) + (size - len(given)) * exp(-largest)) / size)


def judged(journal: Journal) -> Night:
    """The verdict of what is recorded."""
    counts = journal.counts()
    laws, total, peak = evidence(journal)
    rows = [(scenario, verdict) for scenario, _, verdict, _, _ in journal.rows() if not scenario.startswith(PREFIX)]
    drills = [name for name in journal.about.get("scenarios", ()) if name.startswith(PREFIX)]
    decisions = {
        "traffic": _traffic(journal, rows, counts),
        "laws": _laws(laws, total, peak),
        "hazards": _hazards(journal, rows),
        "memory": memory(lives(journal), a_deck(journal)),
        **({"chaos": _chaos(journal, drills)} if drills else {}),
    }
    return Night(decisions, counts, laws, total, peak)


def _traffic(journal: Journal, rows: list[tuple[str, str]], counts: dict[str, int]) -> Decision:
    bad = [scenario for scenario, verdict in rows if verdict == Verdict.VIOLATED]
    errors = [scenario for scenario, verdict in rows if verdict == Verdict.ERROR]
    if bad:
        return Decision(Verdict.VIOLATED, f"{len(bad)} of {len(rows)} epochs{_findings(journal, Verdict.VIOLATED)}")
    if errors:
        found = journal.found()
        who = {DECODER: "the decoder", SUITE: "the suite itself"}
        told = " and ".join(f"{name} failed {found[one]} times" for one, name in who.items() if found.get(one))
        told = f"{told} in {len(errors)} of {len(rows)} epochs{_findings(journal, Verdict.ERROR)}"
        return Decision(Verdict.ERROR, told)
    if died := journal.noted(PROCESS):
        scenario, epoch, detail = died[0]
        told = f"{len(died)} times a process died; first of {scenario or 'nothing'}, epoch {epoch}: {detail}"
        return Decision(Verdict.ERROR, told)
    done = journal.done()
    if cut := [(scenario, epoch) for scenario, epoch, _ in journal.noted(CUT) if (scenario, epoch) not in done]:
        told = f"{len(cut)} epochs had no end when the time was up; the first: {cut[0][0]}, epoch {cut[0][1]}"
        return Decision(Verdict.INCONCLUSIVE, told)
    if not any(verdict == Verdict.EXACT for _, verdict in rows):
        return Decision(Verdict.INCONCLUSIVE, "no epoch was finished")
    told = ", ".join(f"{counts.get(name, 0):,} {name}" for name in ("requests", "tokens", "tokens judged"))
    return Decision(Verdict.EXACT, f"{len(rows):,} epochs: {told}")


def _findings(journal: Journal, verdict: Verdict) -> str:
    """How much came to this verdict, how much of that is kept, and the first of it."""
    kept = [one.violation for one in journal.violations() if one.violation.verdict is verdict]
    count = sum(n for oracle, n in journal.found().items() if Violation(oracle, "").verdict is verdict)
    told = f", {count:,} findings" + (f" of which {len(kept):,} are kept" if len(kept) < count else "")
    return told + (f"; the first: {kept[0].oracle}: {kept[0].detail}" if kept else "")


def _laws(laws: tuple[Law, ...], total: float, peak: float) -> Decision:
    if not laws:
        return Decision(Verdict.SKIPPED, "no token was drawn from a law that is known")
    samples = sum(law.samples for law in laws)
    told = f"log10 E {total / log(10):.2f} after {samples:,} tokens"
    if peak >= -log(LAWS):
        told += f", {peak / log(10):.2f} at its peak"
        return Decision(Verdict.VIOLATED, f"{told}: a sound decoder comes so far with chance {LAWS:.1g}")
    seen = fsum(law.visible * law.samples for law in laws) / max(1, samples)
    best, worst = (which(laws, key=lambda law: law.visible) for which in (min, max))
    told += f", in which a bias of {seen:.2g} would show, from {best.visible:.2g} ({best.test}) to "
    told += f"{worst.visible:.2g} ({worst.test})"
    if seen >= BLIND:
        return Decision(Verdict.INCONCLUSIVE, told)
    return Decision(Verdict.HOLDS, told, delta=seen)


def _hazards(journal: Journal, rows: list[tuple[str, str]]) -> Decision:
    """Each scenario of the run had an epoch, and each of its hazards occurred in one of its own. The checkpoints that
    the run is about cannot be skipped."""
    missing, unseen = list[str](), set[str]()
    served = {name for name, verdict in rows if verdict != Verdict.SKIPPED}
    skipped = {name for name, _ in rows} - served
    reasons = sorted({told.removeprefix(SKIP) for name in skipped for told in journal.counts(name)})
    left_out = f"skipped: {', '.join(sorted(skipped))} ({'; '.join(reasons)})" if skipped else ""
    for name in journal.about.get("scenarios", ()):
        if name not in SCENARIOS or (name in skipped and SCENARIOS[name].stage != OWN):
            continue
        counts = journal.counts(name)
        blind = {name.removeprefix(UNSEEN) for name in counts if name.startswith(UNSEEN)}
        absent = [hazard for hazard in SCENARIOS[name].hazards if not counts.get(hazard)]
        missing += [f"{hazard} ({name})" for hazard in absent if hazard not in blind]
        unseen |= blind & {*absent}
    told = f"; {left_out}" if skipped else ""
    told += f"; not to be had of this decoder: {', '.join(sorted(unseen))}" if unseen else ""
    if skipped and not {*journal.about["scenarios"]} & SCENARIOS.keys() - skipped:
        return Decision(Verdict.INCONCLUSIVE, f"every scenario was {left_out}")
    if missing:
        return Decision(Verdict.INCONCLUSIVE, f"never put to the test: {', '.join(missing)}{told}")
    return Decision(Verdict.EXACT, f"every hazard occurred{told}")


def _chaos(journal: Journal, drills: list[str]) -> Decision:
    """Every fault that was put in was survived, or ended clearly; and what was done to the run itself left no trace."""
    verdicts = {scenario: verdict for scenario, _, verdict, _, _ in journal.rows()}
    bad = [name for name in drills if verdicts.get(name) == Verdict.VIOLATED]
    if bad:
        first = next(one.violation.detail for one in journal.violations() if one.scenario in bad)
        return Decision(Verdict.VIOLATED, f"{len(bad)} of {len(drills)} drills; the first: {first}")
    broke = [name for name in drills if verdicts.get(name) == Verdict.ERROR]
    if broke:
        first = next(one for one in journal.violations() if one.scenario in broke)
        return Decision(Verdict.ERROR, f"{len(broke)} of {len(drills)} drills broke; the first: {first}")
    missing = [name for name in drills if verdicts.get(name) in (None, Verdict.INCONCLUSIVE)]
    if missing:
        return Decision(Verdict.INCONCLUSIVE, f"not put to the test: {', '.join(missing)}")
    fates = {fate: count for fate, count in journal.histogram("fates").items() if count}
    put_in = sum(journal.counts(name).get("faults put in", 0) for name in drills)
    skipped = sum(verdict == Verdict.SKIPPED for name, verdict in verdicts.items() if name in drills)
    told = [f"{put_in:,} faults put in by {len(drills) - skipped} drills, {skipped} skipped"]
    told += [f"{count:,}: {fate}" for fate, count in fates.items()]
    for name in (KILLED, REFUSED):
        (times,) = journal.connection.execute("SELECT count(*) FROM gauges WHERE name = ?", (name,)).fetchone()
        told.append(f"{times} {name}")
    return Decision(Verdict.EXACT, "; ".join(told))

"""The run of the mutants: what counts as a kill, what does not, how a run is continued, and how it is shown."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from specqual.cli import main
from specqual.conformance import check
from specqual.conformance.lab import Run
from specqual.conformance.options import listed
from specqual.conformance.symptoms import Index, known, looks_like
from specqual.conformance.verdicts import Profile
from specqual.contract import Scoring, Traced
from specqual.mutants import symptoms
from specqual.mutants.judgement import Fate, Tally, cell, flagged
from specqual.mutants.kill import kill
from specqual.mutants.levels import Level, clauses_at, seen_at
from specqual.mutants.matrix import columns, markdown, page, public
from specqual.mutants.mutant import Control, Mutant
from specqual.mutants.pairs import DFLASH2
from specqual.mutants.plan import Wanted, chosen, clean_name, clean_trials, mutant_trials, order_trials
from specqual.mutants.record import BadRecord, Record, load
from specqual.mutants.record import header as head
from specqual.mutants.registry import mutants
from specqual.mutants.trial import FINISHED, OUT_OF_TIME, Outcome, Role, Said
from tests import broken

M01A = mutants()["M01a"]
BASE, PAIR = M01A.base, str(M01A.pair)


def said(verdict: str, clause: str = "GE-1", *, proof: str = "seen", shrunk: str = "from 9 steps") -> Said:
    seen = verdict == "VIOLATED"
    return Said(clause, PAIR, verdict, "what was seen", 1.0, proof if seen else "", shrunk if seen else "")


def sound(verdict: str, clause: str = "GE-1") -> Outcome:
    return Outcome(Role.CLEAN, clean_name(BASE, M01A.pair, [clause]), FINISHED, 1.0, (said(verdict, clause),))


def tried(*found: Said, ended: str = FINISHED) -> Outcome:
    return Outcome(Role.MUTANT, "M01a", ended, 1.0, found)


@pytest.mark.parametrize(
    ("fate", "outcome", "clean"),
    [
        (Fate.KILLED, tried(said("VIOLATED")), sound("EXACT")),
        (Fate.UNCLEAN, tried(said("VIOLATED")), sound("VIOLATED")),
        (Fate.PENDING, tried(said("VIOLATED")), sound("EXACT", "GE-4")),
        (Fate.SURVIVED, tried(said("VIOLATED", proof="")), sound("EXACT")),
        (Fate.UNSHRUNK, tried(said("VIOLATED", shrunk="")), sound("EXACT")),
        (Fate.UNCLEAN, tried(said("VIOLATED")), replace(sound("EXACT"), ended=OUT_OF_TIME)),
        (Fate.UNCLEAN, tried(said("VIOLATED")), replace(sound("EXACT"), ended=OUT_OF_TIME, said=())),
        (Fate.SURVIVED, tried(said("VIOLATED", "GE-2")), sound("EXACT", "GE-2")),
        (Fate.SURVIVED, tried(said("INCONCLUSIVE")), sound("EXACT")),
        (Fate.ERROR, tried(said("ERROR")), sound("EXACT")),
        (Fate.CRASH, tried(ended="crash, exit status 7"), sound("EXACT")),
        (Fate.TIME_OUT, tried(ended=OUT_OF_TIME), sound("EXACT")),
        (Fate.MISSING, None, sound("EXACT")),
    ],
)
def test_only_a_violation_of_an_owner_with_a_counterexample_where_the_sound_decoder_passes_is_a_kill(
    fate: Fate, outcome: Outcome | None, clean: Outcome
) -> None:
    assert cell(M01A, outcome, [clean], Level.L3).fate is fate


def test_at_lower_levels_any_clause_kills_that_the_sound_decoder_passes() -> None:
    outcome = tried(said("EXACT"), said("VIOLATED", "GE-2"))
    found = cell(M01A, outcome, [sound("EXACT", "GE-2")], Level.L1)
    assert (found.fate, found.clause, found.seconds) == (Fate.KILLED, "GE-2", 2.0)


@pytest.mark.parametrize(
    ("make", "fate"), [(broken.hangs, Fate.TIME_OUT), (broken.dies, Fate.CRASH), (broken.raises, Fate.ERROR)]
)
def test_a_decoder_that_ends_badly_is_shown_as_what_it_is_and_ends_nothing_else(make, fate: Fate) -> None:
    bad = Mutant(make, "reference", M01A.pair, M01A.owners)
    wanted = Wanted((bad, M01A), (), limit=20.0)
    tally = kill(wanted, Record({}), 2, lambda trial, outcome: None)
    assert tally.cells[bad.id].fate is fate, tally.cells[bad.id]
    assert tally.cells["M01a"].fate is Fate.KILLED
    assert not tally.complete


@pytest.mark.parametrize("verdicts", [("VIOLATED", "EXACT"), ("EXACT", "VIOLATED"), ("EXACT", "INCONCLUSIVE")])
def test_a_sound_decoder_passes_only_what_it_passes_in_every_run(verdicts: tuple[str, str]) -> None:
    """Under one name or under two."""
    clean = [sound(verdict) for verdict in verdicts]
    other = [clean[0], replace(clean[1], name=clean_name(BASE, M01A.pair, ["GE-1", "GE-2"]))]
    for runs in (clean, other):
        tally = Tally.of(Wanted((M01A,), ()), [tried(said("VIOLATED")), *runs])
        assert tally.cells["M01a"].fate is Fate.UNCLEAN
    assert Tally.of(Wanted((M01A,), ()), [tried(said("VIOLATED")), sound("EXACT"), sound("HOLDS")]).killed == 1


def test_a_counterexample_is_decided_by_itself_once_more() -> None:
    (result,) = check.run(Run(M01A.decoder, M01A.make, M01A.pair.setup), ["GE-1"])
    found = Said.of(result, M01A.pair)
    assert found.proof == result.proof and found.shrunk.startswith("from a prompt of ")
    assert f"Shrunk     {found.shrunk}" in found.proof
    cases = [{**case, "output": case["argmax"], "plain": None} for case in result.evidence["cases"]]
    made_up = replace(result, evidence={**result.evidence, "cases": cases})
    assert Said.of(made_up, M01A.pair).proof == ""


def record_of(folder: Path, wanted: Wanted, *outcomes: Outcome, **header: object) -> Path:
    """A record on disk; `header` holds fields in which it is another run's."""
    folder.mkdir()
    lines = [head(wanted) | header, *(outcome.json() for outcome in outcomes)]
    (folder / "mutants.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_matrix_counts_what_was_chosen_whether_it_was_run_or_not(tmp_path: Path) -> None:
    wanted = Wanted((M01A, mutants()["M01b"]), ())
    folder = record_of(tmp_path / "a", wanted, tried(said("VIOLATED")), sound("EXACT"))
    (column,) = columns([folder])
    assert "| L3, quick, seed 0 | 1 of 2 |" in markdown([column])
    assert column.tally.cells["M01b"].fate is Fate.MISSING and not column.tally.complete


@pytest.mark.parametrize(
    "field",
    [{"commit": "0" * 40}, {"sources": "0" * 64}, {"seed": 1}, {"versions": {}}],
    ids=lambda field: next(iter(field)),
)
def test_records_of_unlike_runs_are_no_shards_of_one(tmp_path: Path, field: dict[str, object]) -> None:
    one = record_of(tmp_path / "one", Wanted((M01A,), ()), tried(said("VIOLATED")), sound("EXACT"))
    other = record_of(tmp_path / "other", Wanted((mutants()["M01b"],), ()), **field)
    with pytest.raises(BadRecord, match=rf"other: {next(iter(field))} is .*, where .*one has .*shards of one run"):
        columns([one, other])
    again = record_of(tmp_path / "again", Wanted((M01A,), ()), tried(said("EXACT")))
    with pytest.raises(BadRecord, match="again: M01a was run for .*one, too"):
        columns([one, again])


def test_a_control_passes_only_if_nothing_but_what_is_allowed_stays_open() -> None:
    control = Control(M01A.make, DFLASH2, ("GE-1", "GE-2"), frozenset({"GE-2"}))
    assert flagged(control, tried(said("EXACT"), said("INCONCLUSIVE", "GE-2"))) == ""
    assert flagged(control, tried(said("INCONCLUSIVE"))).startswith("GE-1 INCONCLUSIVE")
    assert flagged(control, tried(said("EXACT"), said("VIOLATED", "GE-2"))).startswith("GE-2 VIOLATED")
    assert flagged(control, tried(said("EXACT"), said("ERROR", "GE-2"))).startswith("GE-2 ERROR")
    assert flagged(control, tried(ended=OUT_OF_TIME)) == OUT_OF_TIME
    assert flagged(control, None) == "was not run"


def test_names_and_kinds_choose_and_unknown_ones_are_refused() -> None:
    assert next(one.id for one in chosen(["m01a"], ["K05"])[0]) == "M01a"
    assert {one.kind for one in chosen([], ["k05"])[0]} == {"K05"}
    assert chosen(["N1"], [])[0] == () and {one.id for one in chosen(["N1"], [])[1]} == {"N1"}
    assert len(chosen([], [])[0]) == len(mutants())
    with pytest.raises(ValueError, match="--only: .*M99Z"):
        chosen(["M99z"], [])
    with pytest.raises(ValueError, match="--kind: .*K99"):
        chosen([], ["K99"])


def test_the_sound_decoder_is_run_once_on_whatever_a_mutant_was_violated_by() -> None:
    wanted = Wanted((M01A, mutants()["M01b"]), ())
    outcomes = [tried(said("VIOLATED"), said("VIOLATED", "GE-2")), replace(tried(said("VIOLATED")), name="M01b")]

    def asked() -> list[tuple[str, str]]:
        return [(step.clause, str(step.pair)) for trial in clean_trials(wanted, outcomes) for step in trial.steps]

    assert asked() == [("GE-1", PAIR), ("GE-2", PAIR)]
    outcomes.append(sound("EXACT"))
    assert asked() == [("GE-2", PAIR)]


def test_without_an_owner_any_clause_kills_and_those_that_saw_it_or_own_its_kind_come_first() -> None:
    free = Mutant(M01A.make, BASE, M01A.pair)
    assert cell(free, tried(said("VIOLATED", "GE-2")), [sound("EXACT", "GE-2")], Level.L3).fate is Fate.KILLED
    (trial,) = mutant_trials(Wanted((free,), ()), ())
    order = [step.clause for step in trial.steps]
    seen = {clause for symptom in known().symptoms if symptom.id == free.id for clause in symptom.violated}
    kin = [clause for clause in ("GE-1", "GE-4") if clause not in seen]
    assert set(order[: len(seen)]) == seen
    assert order[len(seen) : len(seen) + len(kin)] == kin
    assert set(order) == listed(Profile.QUICK)


def test_lower_levels_show_less_and_begin_with_the_cheapest_clause_that_the_sound_decoder_passes() -> None:
    low, middle = (seen_at(level, M01A.make)(DFLASH2.setup) for level in (Level.L1, Level.L2))
    assert not isinstance(low, Scoring) and isinstance(middle, Scoring)
    assert not isinstance(middle, Traced)
    some = frozenset({"GE-1", "GE-2", "GE-4", "GE-7"})
    assert clauses_at(Level.L1, some) == ("GE-1", "GE-2")
    assert clauses_at(Level.L2, some) == ("GE-1", "GE-2", "GE-7")
    wanted = Wanted((M01A,), (), Profile.CORE, level=Level.L1)
    (order,) = order_trials(wanted)
    assert order.profile is Profile.QUICK and {"GE-1", "GE-2"} < {step.clause for step in order.steps}
    seconds = {"GE-1": ("EXACT", 5.0), "GE-2": ("INCONCLUSIVE", 1.0), "FIN-1": ("SKIPPED", 0.1)}
    found = tuple(replace(said(verdict, clause), seconds=cost) for clause, (verdict, cost) in seconds.items())
    (trial,) = mutant_trials(wanted, [Outcome(order.role, order.name, FINISHED, 6.1, found)])
    assert [step.clause for step in trial.steps] == ["GE-2", "GE-1"]
    assert trial.stop and trial.limit == 60


def test_a_run_is_continued_from_its_record_and_another_one_is_refused(tmp_path: Path) -> None:
    wanted = Wanted((M01A,), ())
    record = Record.open(wanted, tmp_path)
    record.add(sound("EXACT"))
    with (tmp_path / "mutants.jsonl").open("a") as file:
        file.write('{"role": "mutant", "na')  # interrupted
    again = Record.open(wanted, tmp_path)
    assert again.outcomes == [sound("EXACT")]
    told = []
    tally = kill(wanted, again, 1, lambda trial, outcome: told.append(trial.name))
    assert told == ["M01a"] and tally.killed == 1
    assert load(tmp_path)[1] == again.outcomes
    assert again.outcomes[-1].ended == FINISHED
    with pytest.raises(BadRecord, match="--report: .* another seed"):
        Record.open(replace(wanted, seed=1), tmp_path)
    with pytest.raises(BadRecord, match="--report: .* another mutants"):
        Record.open(replace(wanted, mutants=()), tmp_path)


def test_the_command_prints_what_was_killed_and_the_matrix_is_rendered_from_its_records(tmp_path: Path, capsys) -> None:
    common = ["mutants", "--only", "M01a", "--workers", "2", "--report"]
    assert main([*common, str(tmp_path / "quick")]) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("killed 1 of 1")
    assert "M01a" in shown and "GE-1 VIOLATED" in shown
    lines = (tmp_path / "quick" / "mutants.jsonl").read_text().splitlines()
    header = json.loads(lines[0]) | {"profile": "core"}
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "mutants.jsonl").write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    (tmp_path / "low").mkdir()
    outcome = tried(said("EXACT")).json()
    low = [json.dumps(header | {"level": "L1"}), lines[1], json.dumps(outcome)]
    (tmp_path / "low" / "mutants.jsonl").write_text("\n".join(low) + "\n")
    folders = [str(tmp_path / name) for name in ("quick", "low", "core")]
    assert main(["matrix", *folders, "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "kill-matrix.md").read_text()
    assert text == markdown(columns([tmp_path / name for name in ("quick", "low", "core")]))
    titles = re.findall(r"^\| (L\d, \w+), seed", text, re.M)
    assert titles == ["L3, core", "L3, quick", "L1, core"]
    (row,) = (line for line in text.splitlines() if line.startswith("| M01a"))
    assert "GE-1" in row and "not seen in 60 s" in row and "token " in row
    assert "K09 grammar" in text and str(tmp_path) not in text
    html = (tmp_path / "out" / "kill-matrix.html").read_text()
    assert html == page(columns([tmp_path / name for name in ("quick", "low", "core")]))
    assert "specqual mutants --only M01a" in html
    assert not re.search(r"<script|https?://|src=|@import|url\(", html)


def test_a_fault_that_survives_is_an_exit_status_of_one_at_level_three_only() -> None:
    survivor = tried(said("EXACT"))
    for level, complete in ((Level.L3, False), (Level.L1, True)):
        wanted = Wanted((M01A,), (), Profile.CORE, level=level)
        assert Tally.of(wanted, [survivor, sound("EXACT")]).complete is complete


def test_what_is_published_names_no_path_of_the_machine_that_it_was_found_on() -> None:
    found = public("checkpoint /home/somebody/x.y/config.json: 3/4 of and/or", 200)
    assert found == "checkpoint …/config.json: 3/4 of and/or"
    assert public("long " * 9, 10) == "long long…"


def outcome_of(name: str, *violated: str) -> Outcome:
    mutant: Mutant = mutants()[name]
    pair = str(mutant.pair)
    clauses = ("GE-1", "GE-2", "LAW-2", "RNG-1")
    found = (Said(c, pair, "VIOLATED" if c in violated else "EXACT", "", 1.0, "x" * (c in violated)) for c in clauses)
    return Outcome(Role.MUTANT, name, FINISHED, 1.0, tuple(found))


def test_the_symptom_index_names_the_kinds_whose_pattern_is_nearest() -> None:
    clean = Outcome(
        Role.CLEAN,
        clean_name("reference", DFLASH2, ["all"]),
        FINISHED,
        1.0,
        tuple(Said(c, str(DFLASH2), "EXACT", "", 1.0, "") for c in ("GE-1", "GE-2", "LAW-2")),
    )
    runs = [
        outcome_of("M01a", "GE-1", "GE-2"),
        outcome_of("M01b", "GE-1", "GE-2", "RNG-1"),
        outcome_of("M05b", "GE-1", "GE-2"),
        outcome_of("M03c", "LAW-2"),
        outcome_of("M01c"),
    ]
    content = symptoms.table([clean, *runs])
    assert [row["id"] for row in content["mutants"]] == ["M01a", "M01b", "M03c", "M05b"]
    assert content["mutants"][1]["violated"] == ["GE-1", "GE-2"]  # RNG-1 was not seen to pass on the sound decoder
    index = Index.of(content)

    def line(**verdicts: str) -> str | None:
        return looks_like([{"clause": c.replace("_", "-"), "verdict": v} for c, v in verdicts.items()], index)

    found = line(GE_1="VIOLATED", GE_2="VIOLATED", LAW_2="EXACT")
    assert found and found.startswith("Looks like: K01 verification indexing (2 of 3 mutants with this pattern); M01a")
    assert line(GE_1="EXACT", LAW_2="VIOLATED").startswith("Looks like: K03")
    assert "nearest pattern, 67% the same" in line(GE_1="VIOLATED", GE_2="VIOLATED", LAW_2="VIOLATED")
    assert line(GE_1="EXACT", GE_2="EXACT") is None
    assert line(RNG_1="VIOLATED") is None
    assert "2 of 3 mutants with this pattern" in line(GE_1="VIOLATED", LAW_2="EXACT")  # GE-2 was not decided here
    shown = "\n".join(symptoms.page(index))
    assert "| GE-1 GE-2 | K01 verification indexing (2 of 3); K05 bonus token (1 of 3) | M01a: " in shown

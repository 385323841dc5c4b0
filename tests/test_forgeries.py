"""Reports that somebody rewrote and sealed anew: `verify` refuses what does not hang together, and says what it cannot
know."""

import ast
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import specqual.conformance
from specqual.cli import main
from specqual.conformance.audit import audit
from specqual.conformance.clauses import CLAUSES, status_of
from specqual.conformance.evidence import Evidence, decide
from specqual.conformance.facts import BadFacts, Facts, claims_from, plain
from specqual.conformance.forms import FORMS
from specqual.conformance.reasons import REASONS
from specqual.conformance.report import BadReport, footer, load
from specqual.conformance.verdicts import Profile
from specqual.conformance.waivers import BadWaiver, read_waivers

from .reports import CLAIMS, RUN, resealed, result, skipped, violated, written

Line = dict[str, Any]
REFUSED = "the decoder does not offer Counted"
VALUES = {"kind": "values", "cases": [{"what": "x", "expected": 1, "actual": 1}] * 8, "guards": [], "notes": {}}


def rewritten(folder: Path, forge: Callable[[Line, list[Line]], None]) -> None:
    """Let a forger change header and verdicts of the report in a folder; counts, status and chain follow."""
    loaded = load(folder)
    header, verdicts = deepcopy(loaded.header), [deepcopy(line) for line in loaded.verdicts]
    forge(header, verdicts)
    resealed(folder, [header, *verdicts, footer(verdicts, int(status_of(verdicts, Profile(header["profile"]))))])


def decided(line: Line) -> None:
    """Let a line say what its evidence says now."""
    decision = decide(line["evidence"])
    line |= {"verdict": str(decision.verdict), "detail": decision.detail, "delta": decision.delta, "proof": ""}


def unsaid(line: Line, verdict: str, detail: str) -> None:
    line |= {"verdict": verdict, "detail": detail, "delta": None, "proof": ""}
    line["evidence"] = Evidence("occurrences").json()


def dropped(header: Line, verdicts: list[Line]) -> None:
    del verdicts[0]


def skipped_for_nothing(header: Line, verdicts: list[Line]) -> None:
    unsaid(verdicts[0], "SKIPPED", "there is no time")


def skipped_for_what_is_offered(header: Line, verdicts: list[Line]) -> None:
    unsaid(verdicts[0], "SKIPPED", "the decoder does not offer Traced")


def skipped_for_what_it_does_not_need(header: Line, verdicts: list[Line]) -> None:
    unsaid(verdicts[0], "SKIPPED", REFUSED)


def occurrences(header: Line, verdicts: list[Line]) -> None:
    verdicts[0]["evidence"] = Evidence("occurrences").json()
    decided(verdicts[0])


def of_another_clause(header: Line, verdicts: list[Line]) -> None:
    verdicts[0]["evidence"] = deepcopy(VALUES)
    decided(verdicts[0])


def without_guards(header: Line, verdicts: list[Line]) -> None:
    verdicts[1]["evidence"]["guards"] = []


def guards_that_need_nothing(header: Line, verdicts: list[Line]) -> None:
    for guard in verdicts[1]["evidence"]["guards"]:
        guard |= {"needed": 0}


def guards_that_nothing_shows(header: Line, verdicts: list[Line]) -> None:
    header["offers"] = ["Traced"]
    header["claims"]["limits"]["max_batch"] = 2
    verdicts[1]["evidence"]["guards"][0]["seen"] = None
    decided(verdicts[1])


def without_the_failing_case(header: Line, verdicts: list[Line]) -> None:
    del verdicts[0]["evidence"]["cases"][0]
    decided(verdicts[0])


def as_if_no_bits_were_claimed(header: Line, verdicts: list[Line]) -> None:
    verdicts[1]["evidence"]["cases"][0] |= {"bitwise": False, "plain": [3], "against": "speculation off"}
    decided(verdicts[1])


def a_wider_envelope(header: Line, verdicts: list[Line]) -> None:
    for case in verdicts[0]["evidence"]["cases"]:
        case |= {"envelope": 50.0}
    decided(verdicts[0])


def hardly_any_rounds(header: Line, verdicts: list[Line]) -> None:
    header["clauses"].append("LIM-7")
    line = {"type": "verdict"} | result("LIM-7")
    line["evidence"]["guards"] = [{"hazard": name, "seen": 1, "needed": 1} for name in ("tokens", "rejections")]
    verdicts.append(line)
    decided(verdicts[-1])


def too_short_an_output(header: Line, verdicts: list[Line]) -> None:
    header["clauses"].append("LIM-6")
    line = {"type": "verdict"} | result("LIM-6")
    line["evidence"]["guards"] = [{"hazard": "tokens of the longest output", "seen": 20, "needed": 20}]
    verdicts.append(line)
    decided(verdicts[-1])


def in_a_dtype_that_rounds(header: Line, verdicts: list[Line]) -> None:
    header["claims"] |= {"dtype": "bfloat16", "greedy": {"bitwise": False, "envelope": 0.0}}
    for line in verdicts:
        for case in line["evidence"]["cases"]:
            case |= {"bitwise": False, "envelope": 0.4, "plain": None}
        decided(line)


def an_envelope_that_only_one_clause_has(header: Line, verdicts: list[Line]) -> None:
    in_a_dtype_that_rounds(header, verdicts)
    for case in verdicts[0]["evidence"]["cases"]:
        case["envelope"] = 50.0
    decided(verdicts[0])


def a_slack_that_no_envelope_explains(header: Line, verdicts: list[Line]) -> None:
    in_a_dtype_that_rounds(header, verdicts)
    header["clauses"].append("LAW-3")
    decision = {"purpose": "bonus", "position": 1, "token": 0, "u": 0.5, "low": 0.6, "high": 0.9}
    evidence = {"kind": "draws", "cases": [{"label": "x", "slack": 0.2, "decisions": [decision]}] * 6}
    verdicts.append({"type": "verdict"} | result("LAW-3") | {"evidence": evidence | {"guards": [], "notes": {}}})
    decided(verdicts[-1])


def a_tie(header: Line, verdicts: list[Line]) -> None:
    header["clauses"].append("FIN-4")
    guard = {"hazard": "requests cancelled before their end", "seen": 1, "needed": 1}
    evidence = deepcopy(VALUES) | {"guards": [guard]}
    evidence["cases"][0] |= {"actual": 2, "tie": {"place": 0, "regret": 0.0, "envelope": 1.0}}
    verdicts.append({"type": "verdict"} | result("FIN-4") | {"evidence": evidence})
    decided(verdicts[-1])


def waived(**changes: str) -> Callable[[Line, list[Line]], None]:
    def forge(header: Line, verdicts: list[Line]) -> None:
        waiver = {"clause": "GE-2", "reason": "known", "link": "https://example.org/1", "expires": "9999-01-01"}
        verdicts[0] |= {"verdict": "WAIVED", "waiver": waiver | changes}

    return forge


def another_replay(header: Line, verdicts: list[Line]) -> None:
    verdicts[0]["replay"] = "rm -rf ."


def a_replay_of_another_seed(header: Line, verdicts: list[Line]) -> None:
    verdicts[1]["replay"] = verdicts[1]["replay"].replace("--seed 0", "--seed 1")


def another_proof(header: Line, verdicts: list[Line]) -> None:
    verdicts[0]["proof"] = "nothing to see"


def less_than_no_time(header: Line, verdicts: list[Line]) -> None:
    verdicts[1]["seconds"] = -5


def another_profile(header: Line, verdicts: list[Line]) -> None:
    header["profile"] = "certify"


def another_decoder(header: Line, verdicts: list[Line]) -> None:
    header["decoder"] = "vllm"


def no_decoder(header: Line, verdicts: list[Line]) -> None:
    header["claims"] = header["offers"] = None


def one_more(header: Line, verdicts: list[Line]) -> None:
    verdicts.append({"type": "verdict"} | skipped("GE-4", "the decoder does not offer Scripted"))


def what_is_not_offered(header: Line, verdicts: list[Line]) -> None:
    header["clauses"].append("TEL-6")
    verdicts.append({"type": "verdict"} | result("TEL-6") | {"evidence": VALUES, "detail": "8 comparisons, all equal"})


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (dropped, "GE-2: was selected, and the report has no verdict on it"),
        (skipped_for_nothing, "GE-2: the report says SKIPPED and gives a reason that this clause does not have"),
        (skipped_for_what_is_offered, "GE-2: the report says SKIPPED and gives a reason that is not so"),
        (skipped_for_what_it_does_not_need, "GE-2: the report says SKIPPED and gives a reason that is not so"),
        (occurrences, "GE-2: its evidence is of the kind occurrences, the clause gathers greedy"),
        (of_another_clause, "GE-2: its evidence is of the kind values, the clause gathers greedy"),
        (without_guards, "GE-1: its evidence does not count outputs across a page's edge"),
        (guards_that_need_nothing, "GE-1: its evidence needs outputs across a page's edge 0 times"),
        (guards_that_nothing_shows, "GE-1: its evidence does not say how often it saw"),
        (without_the_failing_case, "GE-2: its evidence has 1 cases, the clause gathers 2 or more"),
        (as_if_no_bits_were_claimed, "GE-1: its evidence is judged as if bits were not claimed"),
        (a_wider_envelope, "GE-2: its evidence has a wider envelope than 1e-09 nats, which the claims allow"),
        (hardly_any_rounds, "LIM-7: its evidence needs tokens 1 times, the clause 11000 or more"),
        (too_short_an_output, "LIM-6: its evidence needs tokens of the longest output 20 times, the clause 54 or more"),
        (an_envelope_that_only_one_clause_has, "GE-2: its evidence allows 50, that of GE-1 0.4"),
        (a_slack_that_no_envelope_explains, "LAW-3: its evidence allows 0.2, that of GE-1 0.0997"),
        (a_tie, "FIN-4: its evidence excuses a tie, which the claims exclude"),
        (waived(clause="GE-1"), "GE-2: its waiver is one of GE-1"),
        (waived(expires="1999-01-01"), "GE-2: its waiver expired on 1999-01-01"),
        (waived(reason=" "), "GE-2: its waiver has no reason and link"),
        (another_replay, "GE-2: its replay is not the command"),
        (a_replay_of_another_seed, "GE-1: its replay is not the command"),
        (another_proof, "GE-2: its proof is not the one that its evidence gives"),
        (less_than_no_time, "GE-1: took -5 seconds"),
        (another_profile, "GE-2: its replay is not the command"),
        (another_decoder, "GE-2: its replay is not the command"),
        (no_decoder, "GE-2: the report says VIOLATED, and its header knows no decoder"),
        (one_more, "GE-4: has a verdict, and was not selected"),
        (what_is_not_offered, "TEL-6: the report says EXACT, though the decoder does not offer Counted"),
    ],
)
def test_what_does_not_hang_together_is_refused_under_a_chain_that_does(tmp_path, capsys, forge, said):
    written(tmp_path, violated("GE-2"), result(), status=1)
    rewritten(tmp_path, lambda header, verdicts: None)
    assert audit(tmp_path).differences == ()
    rewritten(tmp_path, forge)
    assert any(difference.startswith(said) for difference in audit(tmp_path).differences), audit(tmp_path).differences
    assert main(["verify", str(tmp_path)]) == 1
    assert said in capsys.readouterr().out


def test_a_clause_that_was_skipped_on_somebodys_word_is_named(tmp_path, capsys):
    written(tmp_path, result(), skipped("GE-2", "the decoder refuses: no"), skipped("GE-4", "speculation is off"))
    assert audit(tmp_path).believed == ("GE-2",)
    assert main(["verify", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "on the word of the run, which nothing in the report bears out: GE-2\n" in shown


def test_what_was_not_selected_is_named_and_so_is_the_seal(tmp_path, capsys):
    written(tmp_path, result(), result("GE-2"))
    assert main(["verify", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "the report says nothing about LIVE, GE-3, GE-4, GE-5, GE-6, GE-7, GE-8, LAW, RNG" in shown
    assert f"seal: {load(tmp_path).footer['hash']}\n" in shown


@pytest.mark.parametrize("name", ["index.html", "junit.xml"])
def test_a_page_that_is_not_the_reports_is_refused_by_the_code_that_rendered_it(tmp_path, capsys, name):
    written(tmp_path, violated(), status=1)
    assert main(["verify", str(tmp_path)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text.replace("VIOLATED", "EXACT"), encoding="utf-8")
    assert main(["verify", str(tmp_path)]) == 1
    assert f"{name}: is not what this report is rendered as" in capsys.readouterr().out

    def by_other_code(header: Line, verdicts: list[Line]) -> None:
        header["sources"] = "0" * 64

    rewritten(tmp_path, by_other_code)
    assert main(["verify", str(tmp_path)]) == 0


def test_options_in_any_order_are_one_run(tmp_path):
    setup = replace(RUN.setup, options={"b": 1, "a": 2})
    line = result() | {"replay": replace(RUN, setup=setup).replay("GE-1")}
    written(tmp_path, line, setup=setup)
    assert audit(tmp_path).differences == ()


def test_every_clause_has_a_form_and_every_reason_belongs_to_a_clause():
    assert list(FORMS) == list(CLAUSES)
    assert frozenset.union(*(reason.clauses for reason in REASONS)) <= CLAUSES.keys()


def sentences() -> list[str]:
    """What the suite gives as reasons for SKIPPED, with a number or a name where the code puts something in."""
    found = []
    for path in Path(specqual.conformance.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "NotOffered":
                (said,) = node.args
                parts = said.values if isinstance(said, ast.JoinedStr) else [said]
                found.append("".join(part.value if isinstance(part, ast.Constant) else "7" for part in parts))
    return found


INNER = (
    "the decoder does not serve it: 7",
    "the drafter is too large to be quantised on the spot",
    "no drafter of the method 7 with few candidates is at hand",
)
"""Reasons that stand in others, never alone."""


def test_every_reason_that_the_suite_gives_is_one_that_verify_knows():
    known = sentences()
    assert len(known) > 40
    assert [s for s in known if s not in INNER and not any(r.pattern.fullmatch(s) for r in REASONS)] == []


def test_claims_survive_a_report_and_bad_ones_are_named():
    assert claims_from(plain(CLAIMS)) == CLAIMS
    for change, field in (
        ({"rule": "luck"}, "claims.rule"),
        ({"engine": 7}, "claims.engine"),
        ({"sampling": "n"}, "claims.sampling"),
        ({"limits": {}}, "claims.limits"),
        ({"greedy": {"bitwise": 1, "envelope": 0.0}}, "claims.greedy.bitwise"),
        ({"more": 1}, "claims: "),
    ):
        with pytest.raises(BadFacts, match=f"^{field}"):
            claims_from(plain(CLAIMS) | change)
    with pytest.raises(BadFacts, match="^date"):
        Facts.of({"profile": "quick", "date": "today"})


def test_a_header_of_no_known_form_is_refused(tmp_path):
    written(tmp_path, result())

    def forge(header: Line, verdicts: list[Line]) -> None:
        header["offers"] = ["Everything"]

    rewritten(tmp_path, forge)
    with pytest.raises(BadReport, match="line 1: offers: must name some of"):
        audit(tmp_path)


def test_a_waiver_must_say_why(tmp_path):
    path = tmp_path / "waivers.toml"
    path.write_text('[[waiver]]\nclause = "GE-1"\nreason = ""\nlink = "x"\nexpires = "9999-01-01"\n')
    with pytest.raises(BadWaiver, match=r"waiver\[0\].reason: must say something"):
        read_waivers(path)

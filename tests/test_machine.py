"""The state machine's own parts: how histories are drawn, told, shrunk and judged."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from specqual import fixtures
from specqual.conformance import check
from specqual.conformance.campaign import Campaign
from specqual.conformance.evidence import decide
from specqual.conformance.history import Step, cast_of, told
from specqual.conformance.lab import Lab, Run
from specqual.conformance.machine import draw
from specqual.conformance.played import Unlike
from specqual.conformance.shrink import shrink, without
from specqual.conformance.verdicts import Verdict
from specqual.contract import Setup
from specqual.decoder import make
from specqual.decoder.memory import Store
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer
from specqual.mutants.rows import put, swap
from specqual.mutants.rows import rows as kept
from tests.qualification import Pair, results

DENSE = Pair("nano/dense", "nano/dense-dflash2")
sound_forward = Transformer.forward
SUBMIT, STEP = Step("submit", 3), Step("step", amount=1)


def lab(seed: int = 0) -> Lab:
    setup = Setup(target=fixtures.path(DENSE.target), draft=fixtures.path(str(DENSE.draft)))
    return Lab(Run("specqual.decoder:make", make, setup, seed=seed))


def test_a_number_draws_the_same_history_of_fifty_rules_and_other_numbers_draw_others() -> None:
    stage = Campaign(lab()).stage
    drawn = [draw(stage, number) for number in range(5)]
    assert drawn == [draw(stage, number) for number in range(5)]
    assert len(set(drawn)) == len(drawn)
    assert min(map(len, drawn)) > 50
    for steps in drawn:
        submitted = 0
        for step in steps:
            submitted += step.verb == "submit"
            assert step.verb not in ("cancel", "preempt", "resume") or step.who < submitted


def test_a_history_reads_like_one() -> None:
    cast = cast_of(lab())
    steps = (Step("script", amount=2), SUBMIT, STEP, Step("preempt", 0), Step("set_lag", amount=1), Step("drain"))
    request = cast[3]
    described = f"prompt {len(request.prompt)}, max {request.max_tokens}"
    assert told(steps, cast, 4).startswith(f"drafts right in 2 · submit A({described}")
    assert told(steps, cast, 4).endswith(" · step · preempt A · lag 1 · step until idle")


def test_the_cast_has_families_that_share_a_beginning_and_prompts_of_every_size() -> None:
    cast = cast_of(lab())
    beginnings = {request.prompt[0] for request in cast}
    assert len(beginnings) == 3
    for first in beginnings:
        family = [request.prompt for request in cast if request.prompt[0] == first and len(request.prompt) > 64]
        assert len({prompt[:64] for prompt in family}) == 1 < len(set(family))
    assert {1, 15, 16, 17, 63, 64, 65} <= {len(request.prompt) for request in cast}
    assert {request.sampling.greedy for request in cast} == {True, False}


def test_leaving_a_submission_out_leaves_out_what_is_about_it_and_renumbers_the_others() -> None:
    steps = (SUBMIT, STEP, Step("submit", 1), Step("preempt", 1), Step("cancel", 0))
    assert without(steps, range(1)) == (STEP, Step("submit", 1), Step("preempt", 0))
    assert without(steps, range(2, 3)) == (SUBMIT, STEP, Step("cancel", 0))


def test_a_failing_history_is_shrunk_to_what_matters_in_bounded_attempts() -> None:
    noise = (STEP, Step("chunk", amount=16), Step("submit", 5), Step("set_lag", amount=1))
    steps = (*noise * 5, Step("submit", 9), *noise, Step("preempt", 5), *noise * 2, Step("cancel", 5), STEP)
    tried = []

    def fails(history: tuple[Step, ...]) -> int | None:
        """Somebody is preempted and then cancelled."""
        tried.append(history)
        held = set()
        for place, step in enumerate(history):
            if step.verb == "preempt":
                held.add(step.who)
            if step.verb == "cancel" and step.who in held:
                return place
        return None

    assert shrink(steps, fails, 200) == (Step("submit", 0), Step("preempt", 0), Step("cancel", 0))
    count = len(tried)
    assert shrink(steps, fails, 200) == (Step("submit", 0), Step("preempt", 0), Step("cancel", 0))
    assert len(tried) == 2 * count <= 400
    shrink(steps, fails, 10)
    assert len(tried) <= 2 * count + 10


def test_a_difference_that_no_second_history_shows_is_not_lost_by_shrinking() -> None:
    campaign = Campaign(lab())
    story = campaign.play((SUBMIT, STEP, STEP))
    once = replace(story, unlike={"RWD": Unlike("RWD", 1, "seen once", 0, 1)})
    assert campaign.shrunk("RWD", once) is once


def test_the_verdict_on_histories_follows_from_their_evidence() -> None:
    case = {"history": "submit A", "rules": 52, "comparisons": 9, "largest": 0.0, "difference": None}
    line = {"kind": "histories", "cases": [case, case], "guards": []}
    found = decide(line)
    assert found.verdict is Verdict.EXACT and "2 histories of 52 rules or more, 104 in all" in found.detail
    assert decide(line | {"cases": [case | {"largest": 1e-7}]}).verdict is Verdict.HOLDS
    assert decide(line | {"guards": [{"hazard": "preempted", "seen": 0}]}).verdict is Verdict.INCONCLUSIVE
    difference = {"what": "target.0.key row 3", "expected": 1.0, "actual": 1.5, "tolerance": 0.1}
    found = decide(line | {"cases": [case, case | {"difference": difference}]})
    assert found.verdict is Verdict.VIOLATED and found.case == 1 and found.detail.endswith("after submit A")
    near = difference | {"tolerance": 0.6}
    assert decide(line | {"cases": [case | {"difference": near}]}).verdict is Verdict.EXACT


@pytest.mark.parametrize(
    ("fault", "clause"), [("keeps_pages", "CXL-2"), ("keeps_pages", "RES-1"), ("served_on", "SCH-1")]
)
def test_a_fault_is_violated_with_a_short_history_that_the_report_derives_again(fault: str, clause: str) -> None:
    line = results(f"specqual.mutants.held:{fault}", DENSE, [clause])[clause]
    assert line["verdict"] == "VIOLATED", line["detail"]
    assert decide(line["evidence"]).detail == line["detail"]
    assert len(line["evidence"]["cases"][0]["history"].split(" · ")) <= 14, line["detail"]


@pytest.mark.parametrize("name", ["dense", "hybrid", "window"])
def test_the_optimised_decoder_passes_the_histories_written_on_purpose(name: str) -> None:
    clauses = ["RWD-2", "REC-2", "ISO-2", "SCH-2", "CXL-2", "RES-2", "RES-3"]
    found = results("specqual.decoder:make", Pair(f"nano/{name}", f"nano/{name}-dflash2"), clauses)
    wanted = dict.fromkeys(clauses, "EXACT") | ({} if name == "hybrid" else {"REC-2": "SKIPPED"})
    assert {clause: line["verdict"] for clause, line in found.items()} == wanted


def test_an_engine_that_breaks_in_a_history_is_an_error() -> None:
    line = results("specqual.mutants.held:crashes", DENSE, ["SCH-2"])["SCH-2"]
    assert line["verdict"] == "ERROR" and "the engine broke" in line["detail"]


def test_a_decoder_without_the_protocols_is_skipped_by_name() -> None:
    found = results("specqual.mutants.controls:n7_black_box", DENSE, ["RWD", "REC", "ISO", "SCH", "CXL", "RES"])
    assert {line["verdict"] for line in found.values()} == {"SKIPPED"}
    assert {line["detail"] for line in found.values()} == {"the decoder does not offer Traced"}


@swap("forward", Transformer)
def padding_leaks(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """A pass that is padded far writes its fillers over the first row of the first span."""
    found = sound_forward(self, spans, store, rows)
    for stream in self.streams if rows >= 96 else ():
        first = (spans[0].memory, stream, spans[0].start)
        put(store, *first, [0 * side for side in kept(store, *first, spans[0].start + 1)])
    return found


@pytest.mark.parametrize(("without", "verdict"), [(frozenset(), "VIOLATED"), (frozenset({"buckets"}), "EXACT")])
def test_a_fault_of_padded_passes_is_seen_because_histories_change_the_bucket(without: frozenset, verdict: str) -> None:
    setup = Setup(target=fixtures.path(DENSE.target), draft=fixtures.path(str(DENSE.draft)))
    (found,) = check.run(Run("tests", padding_leaks, setup, without=without), ["RWD-1"])
    assert found.verdict == verdict, found.detail
    assert ("bucket 96" in found.detail) == (verdict == "VIOLATED")

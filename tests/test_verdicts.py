"""Verdict rules: what follows from which evidence, and which outcome and exit status follows from a verdict."""

from pathlib import Path

import pytest

from specqual.conformance import statistics
from specqual.conformance.evidence import MalformedEvidence, decide
from specqual.conformance.verdicts import OUTCOMES, Level, Outcome, Profile, Status, Verdict, exit_status, outcome

DOCS = Path(__file__).resolve().parent.parent / "docs"
M = Level.MUST


def greedy(logprob, best, runner_up, *, output=(3,), argmax=(3,), envelope=1e-3, **more):
    columns = {"output": list(output), "argmax": list(argmax), "logprob": [logprob], "best": [best]}
    columns |= {"runner_up": [runner_up], "envelope": envelope, "max_tokens": len(output), "ending": []}
    case = columns | {"plain": None, "bitwise": False} | more
    return {"kind": "greedy", "cases": [case | {"label": "one", "against": "off"}], "guards": []}


def verdict(kind, cases, guards=()):
    return decide({"kind": kind, "cases": cases, "guards": list(guards)}).verdict


def test_a_best_token_is_exact():
    assert decide(greedy(-0.1, -0.1, -3.0)).verdict is Verdict.EXACT


def test_another_token_within_the_envelope_is_a_tie():
    found = decide(greedy(-0.7005, -0.7, -0.7005, output=(2,)))
    assert found.verdict is Verdict.TIE_EXPLAINED
    assert "1 of 1 tokens" in found.detail


def test_regret_beyond_the_envelope_is_a_violation_that_names_token_and_margin():
    found = decide(greedy(-4.8, -0.7, -0.7005, output=(2,)))
    assert found.verdict is Verdict.VIOLATED
    assert (found.case, found.place) == (0, 0)
    assert "token 0 is 2 where the target's is 3: 4.1 nats worse" in found.detail


def test_exact_arithmetic_excuses_exact_ties_only():
    assert decide(greedy(-0.7, -0.7, -0.7, output=(2,), envelope=0.0)).verdict is Verdict.TIE_EXPLAINED
    assert decide(greedy(-0.7 - 1e-12, -0.7, -0.7, output=(2,), envelope=0.0)).verdict is Verdict.VIOLATED


def test_an_id_outside_the_vocabulary_is_a_violation_whatever_the_envelope():
    assert decide(greedy(None, -0.7, -0.7, output=(99,), envelope=100.0)).verdict is Verdict.VIOLATED


def test_an_output_that_ends_early_is_a_violation_unless_its_last_token_ends_it():
    found = decide(greedy(-0.1, -0.1, -3.0, max_tokens=4))
    assert found.verdict is Verdict.VIOLATED
    assert found.detail == "one: ended after 1 of 4 tokens, though none ends it"
    assert decide(greedy(-0.1, -0.1, -3.0, max_tokens=4, ending=[3])).verdict is Verdict.EXACT
    nothing = {"output": [], "argmax": [], "logprob": [], "best": [], "runner_up": [], "envelope": 0.0, "plain": None}
    nothing |= {"label": "one", "max_tokens": 1, "ending": [3]}
    assert verdict("greedy", [nothing]) is Verdict.VIOLATED


def test_a_bitwise_claim_allows_no_difference_to_speculation_off():
    same = greedy(-0.1, -0.1, -3.0, plain=[3, 4], bitwise=True)
    assert decide(same).verdict is Verdict.VIOLATED
    assert "at token 1" in decide(same).detail
    assert decide(greedy(-0.1, -0.1, -3.0, plain=[3, 4])).verdict is Verdict.EXACT


def test_a_hazard_that_never_occurred_is_inconclusive_and_a_violation_is_not():
    guard = {"hazard": "rejections", "seen": 0, "needed": 1}
    good, bad = greedy(-0.1, -0.1, -3.0), greedy(-4.8, -0.7, -0.8, output=(2,))
    assert decide(good | {"guards": [guard]}).verdict is Verdict.INCONCLUSIVE
    assert decide(bad | {"guards": [guard]}).verdict is Verdict.VIOLATED


def test_no_case_at_all_is_inconclusive():
    for kind in ("greedy", "values", "draws", "ledger", "streams", "changes"):
        assert verdict(kind, []) is Verdict.INCONCLUSIVE


def test_values_hold_within_their_tolerance_and_say_how_far_off_they_are():
    case = {"what": "q", "expected": [[1, 2], [0.25, 0.75]], "actual": [[1, 2], [0.25, 0.7500001]], "tolerance": 1e-6}
    found = decide({"kind": "values", "cases": [case], "guards": []})
    assert found.verdict is Verdict.HOLDS
    assert found.delta == pytest.approx(1e-7)
    assert verdict("values", [case | {"tolerance": 1e-8}]) is Verdict.VIOLATED
    assert verdict("values", [case | {"actual": [[1, 3], [0.25, 0.75]]}]) is Verdict.VIOLATED
    assert verdict("values", [case | {"expected": True, "actual": 1}]) is Verdict.VIOLATED


def test_an_acceptance_must_follow_from_its_number_strictly():
    edge = {"purpose": "accept", "token": 1, "position": 5, "u": 0.5, "q": 0.5, "p": 0.25, "accepted": True}
    case = {"label": "one", "slack": 0.0, "decisions": [edge]}
    assert verdict("draws", [case]) is Verdict.VIOLATED  # u q < p is strict
    assert verdict("draws", [case | {"decisions": [edge | {"accepted": False}]}]) is Verdict.EXACT
    assert verdict("draws", [case | {"slack": 1e-9}]) is Verdict.TIE_EXPLAINED
    assert verdict("draws", [case | {"slack": 1.0, "decisions": [edge | {"u": None}]}]) is Verdict.VIOLATED


def test_a_drawn_token_must_own_the_interval_that_its_number_lies_in():
    drawn = {"purpose": "bonus", "token": 1, "position": 5, "u": 0.5, "low": 0.5, "high": 0.75}
    case = {"label": "one", "slack": 1e-9, "decisions": [drawn]}
    assert verdict("draws", [case]) is Verdict.EXACT
    assert verdict("draws", [case | {"decisions": [drawn | {"u": 0.8}]}]) is Verdict.VIOLATED
    assert verdict("draws", [case | {"decisions": [drawn | {"u": 0.75}]}]) is Verdict.TIE_EXPLAINED
    empty = drawn | {"low": 0.5, "high": 0.5}
    assert verdict("draws", [case | {"slack": 0.5, "decisions": [empty]}]) is Verdict.VIOLATED


def test_a_number_may_decide_once_and_no_decision_may_go_without():
    case = {"label": "one", "read": ["1/0/3/3/accept", "1/0/3/4/bonus"], "required": ["1/0/3/4/bonus"]}
    case["repeatable"] = False
    assert verdict("ledger", [case]) is Verdict.EXACT
    assert verdict("ledger", [case | {"read": [*case["read"], "1/0/3/4/bonus"]}]) is Verdict.VIOLATED
    assert verdict("ledger", [case, case]) is Verdict.VIOLATED
    assert verdict("ledger", [case | {"required": ["1/0/3/3/residual"]}]) is Verdict.VIOLATED
    again = case | {"read": [*case["read"], "1/0/3/4/bonus"], "repeatable": True}
    assert verdict("ledger", [again]) is Verdict.EXACT  # the target's own draw, read again in the next round


def test_streams_may_meet_in_likely_outputs_only():
    case = {"label": "", "names": ["a", "b", "c"], "outputs": [[1, 2], [1, 3], [1, 2]], "logprob": [-40.0, None, -40.0]}
    case |= {"families": [[0, 1]], "equal": [[0, 2]], "alpha": 1e-6}
    assert verdict("streams", [case]) is Verdict.EXACT
    assert verdict("streams", [case | {"equal": [[0, 1]]}]) is Verdict.VIOLATED
    assert verdict("streams", [case | {"families": [[0, 1, 2]]}]) is Verdict.VIOLATED
    likely = case | {"logprob": [-3.0, None, -3.0]}
    assert verdict("streams", [likely | {"families": [[0, 1, 2]]}]) is Verdict.EXACT
    assert verdict("streams", [likely | {"families": [[0, 2]]}]) is Verdict.INCONCLUSIVE
    eight = {"names": ["s"] * 8, "outputs": [[1]] * 8, "logprob": [-3.0] * 8, "families": [list(range(8))], "equal": []}
    assert verdict("streams", [case | eight]) is Verdict.VIOLATED  # one is likely, eight together are not


def test_a_refusal_must_name_the_field_and_be_of_the_right_type():
    case = {"what": "n = 0", "field": "n", "types": ["InvalidRequest"], "expect": "refused", "effect": None}
    assert verdict("changes", [case | {"raised": {"type": "InvalidRequest", "text": "n: must be 1"}}]) is Verdict.EXACT
    assert verdict("changes", [case | {"raised": {"type": "ValueError", "text": "n"}}]) is Verdict.VIOLATED
    assert verdict("changes", [case | {"raised": {"type": "InvalidRequest", "text": "bad"}}]) is Verdict.VIOLATED
    assert verdict("changes", [case | {"raised": None}]) is Verdict.VIOLATED


def test_a_tensor_that_is_used_must_make_a_difference():
    case = {"what": "w", "field": "w", "types": [], "expect": "used", "raised": None}
    assert verdict("changes", [case | {"effect": True}]) is Verdict.EXACT
    assert verdict("changes", [case | {"effect": False}]) is Verdict.VIOLATED
    assert verdict("changes", [case | {"expect": "same", "effect": True}]) is Verdict.VIOLATED


def test_counts_of_the_right_law_hold_and_a_visible_bias_is_found():
    case = {"label": "one", "p": [0.5, 0.25, 0.25, 0.0], "alpha": 1e-6, "slack": 0.0, "wanted": 0.1}
    assert verdict("counts", [case | {"counts": [5000, 2500, 2500, 0]}]) is Verdict.HOLDS
    assert verdict("counts", [case | {"counts": [5600, 2200, 2200, 0]}]) is Verdict.VIOLATED
    assert verdict("counts", [case | {"counts": [5, 2, 3, 0]}]) is Verdict.INCONCLUSIVE
    untold = case | {"p": [0.5, 0.25, 0.25]}  # the last cell is everything else, and may hide a bias of its own mass
    assert verdict("counts", [untold | {"counts": [5000, 2500, 2500]}]) is Verdict.INCONCLUSIVE


def test_a_law_as_near_as_rounding_explains_passes_and_a_farther_one_does_not():
    p, counts = [0.5, 0.5, 0.0], [5_500_000, 4_499_000, 1_000]
    assert statistics.test(p, counts, 1e-6).rejected is not None
    near, far = (statistics.test(p, counts, 1e-6, slack) for slack in (0.06, 0.04))
    assert near.rejected is None and far.rejected is not None
    assert near.bound > 0.05  # what is known about the bias does not shrink by an excuse
    assert near.visible > 0.06


def test_a_token_of_probability_zero_rejects_at_once():
    found = statistics.test([1.0, 0.0], [10, 1], 1e-6)
    assert found.rejected == "cell 1 has probability zero and was seen 1 times"


def test_binomial_tails_equal_exact_sums():
    from math import comb

    for n, k, p in ((10, 8, 0.5), (10, 1, 0.5), (50, 20, 0.2), (7, 7, 0.3)):
        side = range(k, n + 1) if k > n * p else range(k + 1)
        exact = sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in side)
        assert statistics.binomial_tail(n, k, p) == pytest.approx(exact, rel=1e-12)


def test_a_tail_beyond_the_smallest_number_is_zero_and_ends_at_once():
    assert statistics.binomial_tail(10**8, 10**4, 1e-8) == 0.0
    with pytest.raises(ValueError, match="samples"):
        statistics.test([0.5, 0.5], [10**9, 10**9], 1e-6)


def test_evidence_of_no_known_form_is_malformed():
    for broken in ({}, {"kind": "greedy"}, {"kind": "magic", "cases": [], "guards": []}):
        with pytest.raises(MalformedEvidence):
            decide(broken)
    with pytest.raises(MalformedEvidence):
        decide({"kind": "draws", "cases": [{"slack": "x"}], "guards": []})


def test_the_documented_table_is_the_one_in_use():
    rows = [line.strip("| \n").split(" | ") for line in (DOCS / "outcomes.md").read_text().splitlines()]
    documented = {row[0]: row[1:] for row in rows if len(row) == 1 + len(Profile) and row[0] in set(Verdict)}
    assert documented == {str(verdict): [str(OUTCOMES[verdict][profile]) for profile in Profile] for verdict in Verdict}


def test_a_should_fails_only_under_certify_and_an_info_never():
    assert outcome(Verdict.VIOLATED, Level.SHOULD, Profile.QUICK) is Outcome.SKIPPED
    assert outcome(Verdict.VIOLATED, Level.SHOULD, Profile.CERTIFY) is Outcome.FAILED
    assert outcome(Verdict.VIOLATED, Level.INFO, Profile.CERTIFY) is Outcome.SKIPPED
    assert outcome(Verdict.ERROR, Level.INFO, Profile.QUICK) is Outcome.FAILED


@pytest.mark.parametrize(
    ("results", "profile", "status"),
    [
        ([("GE-1", M, Verdict.EXACT), ("GE-2", M, Verdict.TIE_EXPLAINED)], Profile.QUICK, Status.CLEAN),
        ([("GE-1", M, Verdict.EXACT), ("GE-2", M, Verdict.SKIPPED)], Profile.CERTIFY, Status.CLEAN),
        ([("GE-1", M, Verdict.VIOLATED), ("GE-2", M, Verdict.ERROR)], Profile.QUICK, Status.VIOLATED),
        ([("GE-1", M, Verdict.EXACT), ("GE-2", M, Verdict.ERROR)], Profile.QUICK, Status.ERROR),
        ([("LIVE-1", M, Verdict.INCONCLUSIVE), ("GE-1", M, Verdict.EXACT)], Profile.QUICK, Status.NOT_LIVE),
        ([("GE-1", M, Verdict.EXACT), ("GE-2", M, Verdict.INCONCLUSIVE)], Profile.QUICK, Status.CLEAN),
        ([("GE-1", M, Verdict.EXACT), ("GE-2", M, Verdict.INCONCLUSIVE)], Profile.CERTIFY, Status.OPEN),
        ([("GE-1", M, Verdict.SKIPPED), ("GE-2", M, Verdict.INCONCLUSIVE)], Profile.QUICK, Status.OPEN),
        ([("GE-1", M, Verdict.WAIVED)], Profile.CERTIFY, Status.CLEAN),
        ([], Profile.QUICK, Status.OPEN),
    ],
)
def test_the_exit_status_follows_from_the_worst_verdict(results, profile, status):
    assert exit_status(results, profile) is status

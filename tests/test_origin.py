"""Where a violation began: the named round, layer and tensor are those that the planted fault touches first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from specqual.conformance import check
from specqual.conformance.html import proof
from specqual.conformance.lab import Lab, Run, scripted, taped
from specqual.conformance.origin import served_again
from specqual.contract import Decoder, Make, Proposal, Request, Sampling, ScriptContext, Setup, State, Unsupported
from specqual.decoder import make, target
from specqual.decoder.arithmetic import rotate
from specqual.mutants.pairs import DFLASH2, HYBRID2, HYBRID16, WINDOW2, Pair
from specqual.mutants.registry import mutants
from specqual.mutants.rows import swap
from specqual.reference.rng import Counter
from tests.engines import greedy

LONG, SHORT = (greedy(range(3, 3 + length), 14) for length in (9, 5))
SAMPLED = replace(greedy(range(3, 16), 12), sampling=Sampling(temperature=1.0), seed=5)


def lab(factory: Make, pair: Pair) -> Lab:
    return Lab(Run("tests", factory, pair.setup))


def accepting(lab: Lab, requests: Sequence[Request], right: Callable[[int, int], int]) -> Callable[..., Proposal]:
    """Drafts for requests that are served together: right in the first `right(request, round)` places."""
    known = [lab.twin.plain(request).output for request in requests]
    places: dict[int, int] = {}

    def script(context: ScriptContext) -> Proposal:
        who = places.setdefault(context.request_id, len(places))
        start = len(context.tokens) - len(requests[who].prompt)
        drafts = list(known[who][start : start + context.max_draft])
        for slot in range(right(who, context.round_index), len(drafts)):
            drafts[slot] = (drafts[slot] + 1) % 90
        return Proposal.certain(tuple(drafts))

    return script


@swap("rotate", target)
def one_row_back(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries are turned as if each stood where the row behind it stands; keys are right."""
    query, key = torch.split(x, [4, 2], dim=1)
    return torch.cat([rotate(query, cos.roll(-1, 0), sin.roll(-1, 0)), rotate(key, cos, sin)], 1)


def test_a_recurrent_state_that_keeps_a_neighbours_drafts_is_named_with_the_round_and_the_first_such_layer() -> None:
    about = lab(mutants()["M14a"].make, HYBRID2)  # all samples keep as many tokens as the one that accepted most
    requests = (LONG, SHORT)
    script = accepting(lab(make, HYBRID2), requests, lambda who, round_: 2 if who == 1 and round_ == 2 else 0)
    with scripted(about.decoder, script):
        found = served_again(about, about.decoder, requests, 0)
        assert found is not None
        assert (found["round"], found["tensor"]) == (3, "target.0.conv")  # the pass behind its neighbour's acceptance
        assert "target.0.state" in found["beside"]
        assert served_again(about, about.decoder, requests, 1) is None


def test_a_query_at_a_wrong_position_is_named_by_the_hidden_state_that_its_layer_hands_on() -> None:
    (result,) = check.run(Run("tests", one_row_back, DFLASH2.setup), ["GE-1"])
    found = result.evidence["cases"][0]["origin"]
    assert (found["tensor"], found["beside"]) == ("target.1.key", ["target.1.value"])
    told = dict(proof(result.proof))["Origin"]
    assert told.startswith(f"round {found['round']} (") and "target, layer 1, keys: target.1.key row" in told
    assert told.endswith("so does the hidden state behind layer 0")


def test_a_hole_in_the_drafters_context_is_named_with_its_position_and_the_round_that_leaves_it() -> None:
    about = lab(mutants()["M22f"].make, DFLASH2)  # rows beyond the sixteenth are never written
    tape = Counter()
    with taped(about.decoder, tape):
        found = served_again(about, about.decoder, [SAMPLED], number=tape.uniform)
    assert found is not None and found["tensor"] == "draft.0.key" and found["what"].endswith("position 16")
    rounds = about.decoder.rounds(0)  # type: ignore[attr-defined]
    behind = [r.start + len(r.committed) for r in rounds]  # tokens with a row behind each round
    assert found["round"] == next(index for index, count in enumerate(behind) if count > 16)
    assert served_again(lab(make, DFLASH2), lab(make, DFLASH2).decoder, [SAMPLED]) is None


def test_a_wrong_choice_among_right_logits_is_told_from_a_wrong_state() -> None:
    (result,) = check.run(Run("tests", mutants()["M01a"].make, DFLASH2.setup), ["GE-1"])
    found = result.evidence["cases"][0]["origin"]
    first = dict(proof(result.proof))["First"]
    assert found["tensor"] == "logits" and f"is {found['actual']}; the target's best is {found['expected']}" in first
    assert "logits or the choice among them" in dict(proof(result.proof))["Origin"]


@pytest.mark.parametrize(
    ("mutant", "pair", "clause", "tensor"),
    [("M20c", DFLASH2, "LAW-4", "draft.0.key"), ("M14a", HYBRID2, "ISO-2", "target.0.conv")],
)
def test_the_counterexamples_of_other_chapters_name_it_too(mutant: str, pair: Pair, clause: str, tensor: str) -> None:
    (result,) = check.run(Run("tests", mutants()[mutant].make, pair.setup), [clause])
    assert result.verdict == "VIOLATED" and tensor in dict(proof(result.proof))["Origin"]


@pytest.mark.parametrize("pair", [HYBRID2, WINDOW2, HYBRID16], ids=str)
def test_of_a_sound_decoder_nothing_is_named(pair: Pair) -> None:
    about, tape = lab(make, pair), Counter()
    for request in (LONG, greedy(range(2, 50), 9)):
        assert served_again(about, about.decoder, [request]) is None
    with taped(about.decoder, tape):
        assert served_again(about, about.decoder, [SAMPLED], number=tape.uniform) is None


def test_a_violation_stands_whatever_the_decoder_does_when_it_is_looked_into() -> None:
    def brittle(setup: Setup) -> Decoder:
        decoder: Any = mutants()["M01a"].make(setup)

        def inspect(*given: Any) -> State:
            raise Unsupported("no state today")

        decoder.inspect = inspect
        return decoder

    (result,) = check.run(Run("tests", brittle, DFLASH2.setup), ["GE-1"])
    assert result.verdict == "VIOLATED" and "origin" not in result.evidence["cases"][0]


def test_a_violation_stands_where_the_decoder_breaks_on_a_smaller_request() -> None:
    def brittle(setup: Setup) -> Decoder:
        decoder: Any = mutants()["M01a"].make(setup)
        submit = decoder.submit

        def picky(request: Request) -> int:
            if request.max_tokens < 20:
                raise RuntimeError("boom")
            return int(submit(request))

        decoder.submit = picky
        return decoder

    (result,) = check.run(Run("tests", brittle, DFLASH2.setup), ["GE-1"])
    assert result.verdict == "VIOLATED" and "shrunk" not in result.evidence["cases"][0]


def test_a_drafter_of_one_token_accepts_nothing_in_part() -> None:
    (result,) = check.run(Run("tests", make, replace(DFLASH2.setup, draft_length=1)), ["DRF-1"])
    assert result.verdict == "EXACT", result.detail

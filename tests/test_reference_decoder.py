"""The reference decoder keeps its own contract: greedy equality, bad drafts, state, schedules and claims."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from specqual import fixtures
from specqual.contract import (
    CompactLaw,
    Decoder,
    Inspectable,
    Method,
    Proposal,
    Request,
    Rule,
    Sampling,
    Schedulable,
    Scoring,
    Scripted,
    SeedContract,
    Setup,
    Taped,
    Tokens,
    Traced,
    Unsupported,
)
from specqual.reference import ReferenceDecoder, make
from specqual.reference.verify import lawful

from .decoding import DENSE, DFLASH2, PROMPT, WARM, knowing, law, output, outputs, serve


def test_it_offers_every_optional_protocol(plain: ReferenceDecoder):
    for protocol in (Decoder, Scoring, Traced, Scripted, Taped, Inspectable, Schedulable):
        assert isinstance(plain, protocol)


# Greedy


def test_greedy_output_is_the_argmax_of_every_prefix(plain: ReferenceDecoder):
    found = output(plain, Request(prompt=PROMPT, max_tokens=30))
    scored = plain.score(PROMPT, found)
    assert scored.argmax == found
    assert set(scored.regret) == {0.0}


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH])
@pytest.mark.parametrize("drafter", ["dense-dflash", "dense-dflash2"])
def test_greedy_output_is_the_same_with_a_drafter(plain: ReferenceDecoder, drafter: str, rule: Rule):
    drafting = make(Setup(target=DENSE, draft=fixtures.path(f"nano/{drafter}"), rule=rule))
    request = Request(prompt=PROMPT, max_tokens=40)
    assert output(drafting, request) == output(plain, request)
    assert any(round.accepted > 0 for round in drafting.rounds(0))
    assert any(round.accepted < len(round.proposals) for round in drafting.rounds(0))


@pytest.mark.parametrize("target", ["dense", "hybrid", "window", "llama"])
def test_greedy_output_is_the_same_with_prompt_lookup(target: str):
    directory = fixtures.path(f"nano/{target}")
    looking = make(Setup(target=directory, options={"ngram": 2}))
    request = Request(prompt=PROMPT + PROMPT, max_tokens=20)
    assert output(looking, request) == output(make(Setup(target=directory)), request)
    assert any(round.proposals for round in looking.rounds(0))


@pytest.mark.parametrize("pattern", [(True,), (False,), (True, False), (False, True), (True, True, True, False)])
def test_greedy_output_is_the_same_whatever_the_pattern_of_acceptance(
    scripted: ReferenceDecoder, pattern: tuple[bool, ...]
):
    request = Request(prompt=PROMPT, max_tokens=21)
    right = output(scripted, request)
    scripted.script(knowing(right, *pattern))
    assert output(scripted, request) == right
    run = (*pattern, False).index(False) if not all(pattern) else 4
    full = [round for round in scripted.rounds(1) if len(round.proposals) == 4]
    assert {round.accepted for round in full} == {min(run, 4)}


ILLEGAL = {
    "an id beyond the vocabulary": Proposal.certain((1, 96)),
    "a negative id": Proposal.certain((-1,)),
    "too many drafts": Proposal.certain((1,) * 5),
    "a law for each draft but one": Proposal((1, 2), (None,)),
    "a law that does not sum to one": Proposal((1,), (law(0.5, 0.4),)),
    "a law with NaN": Proposal((1,), (law(0.5, nan),)),
    "a law with an infinite mass": Proposal((1,), (law(0.5, inf),)),
    "a law with a negative mass": Proposal((1,), (law(-0.5, 1.5),)),
    "a law that excludes its draft": Proposal((2,), (law(0.5, 0.5),)),
    "a law with masses left over": Proposal((0,), (CompactLaw((0,), (0.5, 0.5)),)),
    "a law that names a token twice": Proposal((1,), (law(0.5, 0.5, ids=(1, 1)),)),
    "a law on an illegal id": Proposal((1,), (law(0.5, 0.5, ids=(1, 96)),)),
    "a law on no id": Proposal((1,), (CompactLaw((), ()),)),
}


@pytest.mark.parametrize("sampling", [Sampling(), WARM])
@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_proposal_is_rejected_and_the_round_commits(
    scripted: ReferenceDecoder, name: str, sampling: Sampling
):
    assert not lawful(ILLEGAL[name], 96, 4)
    request = Request(prompt=PROMPT, max_tokens=6, sampling=sampling, ignore_eos=True)
    expected = output(scripted, request)
    scripted.script(lambda context: ILLEGAL[name])
    assert output(scripted, request) == expected
    assert all(round.proposals == () and len(round.committed) == 1 for round in scripted.rounds(1))


def test_lawful_proposals_pass():
    assert lawful(Proposal.certain(()), 96, 0)
    assert lawful(Proposal((1, 95), (law(0.5, 0.5), None)), 96, 2)


# Log-probabilities, state, schedules


def test_log_probabilities_are_those_of_the_raw_law(drafting: ReferenceDecoder):
    request = Request(
        prompt=PROMPT, max_tokens=12, sampling=Sampling(temperature=2.0, top_k=9, logit_bias=((5, 3.0),)), logprobs=3
    )
    drafting.submit(request)
    events = []
    while new := drafting.step():
        events += [event for event in new if isinstance(event, Tokens)]
    found = tuple(token for event in events for token in event.ids)
    entries = [entry for event in events for entry in event.logprobs or ()]
    scored = drafting.score(PROMPT, found)
    assert [entry.token for entry in entries] == pytest.approx(scored.logprob, abs=1e-9)
    assert [entry.top[0][1] for entry in entries] == pytest.approx(scored.best, abs=1e-9)
    assert tuple(entry.top[0][0] for entry in entries) == scored.argmax
    assert [entry.top[1][1] for entry in entries] == pytest.approx(scored.runner_up, abs=1e-9)
    assert {len(entry.top) for entry in entries} == {3}


def test_observing_log_probabilities_changes_nothing(drafting: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=12, sampling=WARM)
    assert output(drafting, request) == output(drafting, replace(request, logprobs=5))


def test_the_state_is_that_of_the_committed_tokens(drafting: ReferenceDecoder):
    request_id = drafting.submit(Request(prompt=PROMPT, max_tokens=20))
    assert drafting.inspect(request_id).length == len(PROMPT) - 1
    found: tuple[int, ...] = ()
    for _ in range(4):
        found += outputs(drafting.step(), request_id)[0]
        state = drafting.inspect(request_id)
        assert state.length == len(PROMPT) + len(found) - 1
        assert {name.split(".")[0] for name in state.tensors} == {"target", "draft"}
        assert all(rows == tuple(range(rows[0], state.length)) for rows in state.positions.values())
    assert state.tensors["target.0.key"].shape[0] == state.length
    drafting.cancel(request_id)
    with pytest.raises(KeyError):
        drafting.inspect(request_id)
    assert drafting.resources() == {}


def test_preempted_requests_wait_and_resume_undisturbed(drafting: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=16, sampling=WARM, seed=2)
    expected = output(drafting, request)
    request_id = drafting.submit(request)
    events = drafting.step()
    drafting.preempt(request_id)
    assert drafting.step() == []
    drafting.resume(request_id)
    while new := drafting.step():
        events += new
    assert outputs(events, request_id)[0] == expected


def test_the_draft_length_follows_the_schedule(drafting: ReferenceDecoder):
    request_id = drafting.submit(Request(prompt=PROMPT, max_tokens=20))
    drafting.step()
    for length in (0, 2, 1, 4):
        drafting.schedule(draft=length, chunk=3, bucket=2, lag=0)
        drafting.step()
        assert len(drafting.rounds(request_id)[-1].proposals) == length


@pytest.mark.parametrize(
    "setting", [{"lag": 1}, {"draft": 5}, {"draft": -1}, {"chunk": 0}, {"bucket": -2}], ids=lambda s: next(iter(s))
)
def test_a_schedule_that_it_cannot_keep_is_an_error(drafting: ReferenceDecoder, setting: dict[str, int]):
    with pytest.raises(ValueError, match=next(iter(setting))):
        drafting.schedule(**setting)


def test_a_script_is_shown_the_committed_tokens_and_can_be_taken_back(drafting: ReferenceDecoder):
    seen: list[Any] = []

    def script(context: Any) -> Proposal:
        seen.append(context)
        return Proposal.certain(())

    drafting.script(script)
    found = output(drafting, Request(prompt=PROMPT, max_tokens=6))
    assert [context.tokens for context in seen] == [PROMPT + found[:k] for k in range(1, 5)]
    assert [context.round_index for context in seen] == [1, 2, 3, 4]
    assert [context.max_draft for context in seen] == [4, 3, 2, 1]
    drafting.script(None)
    output(drafting, Request(prompt=PROMPT, max_tokens=6))
    assert any(round.proposals for round in drafting.rounds(1))


def test_rounds_tell_the_whole_story(drafting: ReferenceDecoder):
    ((found, _), _) = serve(drafting, Request(prompt=PROMPT, max_tokens=18, sampling=WARM, n=2))[0]
    mine = [round for round in drafting.rounds(0) if round.sample == 0]
    assert sum((round.committed for round in mine), ()) == found
    tokens = PROMPT
    for round in mine:
        assert (round.start, round.anchor) == (len(tokens) - 1, tokens[-1])
        assert round.committed[: round.accepted] == round.proposals[: round.accepted]
        tokens += round.committed
    assert mine[0].proposals == ()


# Building


def test_claims_follow_the_configuration(plain: ReferenceDecoder, drafting: ReferenceDecoder):
    assert (plain.claims.method, plain.claims.rule, plain.claims.limits.max_draft) == (Method.NONE, Rule.NONE, 0)
    claims = drafting.claims
    assert (claims.method, claims.rule, claims.limits.max_draft) == (Method.DFLASH2, Rule.RATIO, 4)
    assert claims.seed is SeedContract.EQUAL_DRAFT_LENGTHS
    off = make(Setup(target=DENSE, draft=DFLASH2, rule=Rule.NONE)).claims
    assert (off.method, off.rule, off.limits.max_draft) == (Method.NONE, Rule.NONE, 0)
    lookup = make(Setup(target=DENSE, options={"ngram": "3"}, draft_length=2, dtype="float32")).claims
    assert (lookup.method, lookup.dtype, lookup.limits.max_draft) == (Method.NGRAM, "float32", 2)
    assert make(Setup(target=fixtures.path("table/chain"))).claims.greedy.bitwise


def test_claims_name_the_formats_of_a_checkpoint_in_two_formats():
    claims = make(Setup(target=fixtures.path("nano/hybrid-nvfp4"))).claims
    assert (claims.weight_format, claims.activation_format) == ("mixed", "dense")


BAD: dict[str, Callable[[], Setup]] = {
    "speed": lambda: Setup(target=DENSE, options={"speed": 1}),
    "ngram": lambda: Setup(target=DENSE, options={"ngram": 0}),
    "device": lambda: Setup(target=DENSE, options={"device": "abacus"}),
    "quantise_activations": lambda: Setup(target=DENSE, options={"quantise_activations": "perhaps"}),
    "dtype": lambda: Setup(target=DENSE, dtype="float8"),
    "draft_length": lambda: Setup(target=DENSE, draft=DFLASH2, draft_length=5),
}


@pytest.mark.parametrize("field", BAD)
def test_a_bad_setup_names_its_field(field: str):
    with pytest.raises(ValueError, match=f"^{field}: "):
        make(BAD[field]())


@pytest.mark.parametrize("rule", [Rule.BLOCK, Rule.LOSSY])
def test_a_rule_that_it_does_not_have_is_unsupported(rule: Rule):
    with pytest.raises(Unsupported, match=rule):
        make(Setup(target=DENSE, rule=rule))

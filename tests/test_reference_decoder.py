"""The reference decoder keeps its own contract: rounds, finishes, seeds, tapes, schedules and bad drafts."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specqual.contract import (
    CompactLaw,
    Decoder,
    Event,
    Finished,
    FinishReason,
    Inspectable,
    InvalidRequest,
    Key,
    Method,
    Proposal,
    Purpose,
    Refused,
    Request,
    Rule,
    Sampling,
    Schedulable,
    Scoring,
    Script,
    Scripted,
    SeedContract,
    Setup,
    Taped,
    Tokens,
    Traced,
    Unsupported,
    Usage,
)
from specqual.reference import ReferenceDecoder, make
from specqual.reference.rng import Counter
from specqual.reference.tape import Fixed, Recorded, decisions, reused, unexplained
from specqual.reference.verify import lawful

from specqual import fixtures

DENSE, HYBRID = fixtures.path("nano/dense"), fixtures.path("nano/hybrid")
DFLASH2 = fixtures.path("nano/dense-dflash2")
PROMPT = tuple(b"def add(a, b):"[i] - 32 for i in range(14))
WARM = Sampling(temperature=1.0, top_p=0.95)
STOP, LENGTH, CANCELLED = FinishReason


def serve(decoder: ReferenceDecoder, *requests: Request) -> list[tuple[tuple[tuple[int, ...], ...], Finished]]:
    """Run requests side by side to their ends: the outputs of all samples and the final event of each."""
    ids = [decoder.submit(request) for request in requests]
    events: list[Event] = []
    while new := decoder.step():
        events += new
    return [(outputs(events, i, request.n), final(events, i)) for i, request in zip(ids, requests, strict=True)]


def outputs(events: list[Event], request_id: int, n: int = 1) -> tuple[tuple[int, ...], ...]:
    mine = [event for event in events if isinstance(event, Tokens) and event.request_id == request_id]
    return tuple(tuple(i for event in mine if event.sample == sample for i in event.ids) for sample in range(n))


def final(events: list[Event], request_id: int) -> Finished:
    (event,) = [e for e in events if isinstance(e, Finished | Refused) and e.request_id == request_id]
    assert isinstance(event, Finished)
    return event


def output(decoder: ReferenceDecoder, request: Request) -> tuple[int, ...]:
    return serve(decoder, request)[0][0][0]


@pytest.fixture(scope="module")
def plain() -> ReferenceDecoder:
    return make(Setup(target=DENSE))


@pytest.fixture
def drafting() -> ReferenceDecoder:
    return make(Setup(target=DENSE, draft=DFLASH2))


@pytest.fixture
def scripted() -> ReferenceDecoder:
    return make(Setup(target=DENSE, draft_length=4))


def knowing(right: tuple[int, ...], *pattern: bool) -> Script:
    """A drafter that knows the greedy output `right` and errs wherever the repeated pattern says False."""

    def draft(context: Any) -> Proposal:
        emitted = len(context.tokens) - len(PROMPT)
        following = right[emitted : emitted + context.max_draft]
        return Proposal.certain(
            tuple(t if pattern[i % len(pattern)] else (t + 1) % 96 for i, t in enumerate(following))
        )

    return draft


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


def law(*masses: float, ids: tuple[int, ...] = ()) -> CompactLaw:
    return CompactLaw(ids or tuple(range(len(masses))), masses)


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


# Random numbers


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH])
@pytest.mark.parametrize("draft", [None, DFLASH2])
def test_each_decision_uses_its_own_number_once(rule: Rule, draft: Path | None):
    decoder = make(Setup(target=DENSE, draft=draft, rule=rule, draft_length=3))
    if draft is None:
        flat = law(*[1 / 96] * 96)
        decoder.script(lambda context: Proposal((5, 6)[: context.max_draft], (flat, None)[: context.max_draft]))
    recorded = Recorded(Counter())
    decoder.tape(recorded)
    requests = [Request(prompt=PROMPT[:k], max_tokens=12, sampling=WARM, seed=k, n=2) for k in (3, 7)]
    serve(decoder, *requests)
    due = [
        decisions(rule, round, request.seed, drafted=draft is not None)
        for request_id, request in enumerate(requests)
        for round in decoder.rounds(request_id)
    ]
    assert sum(map(len, due)) == len(recorded.keys) > 40
    assert reused(recorded.keys) == ()
    assert unexplained(recorded.keys, due) == ()


def test_the_ledger_sees_a_number_used_twice_and_a_decision_without_one():
    decoder = make(Setup(target=DENSE, draft=DFLASH2))
    recorded = Recorded(Counter())
    decoder.tape(recorded)
    serve(decoder, Request(prompt=PROMPT, max_tokens=8, sampling=WARM))
    due = [decisions(Rule.RATIO, round, 0) for round in decoder.rounds(0)]
    first = recorded.keys[0]
    assert reused(recorded.keys, [first]) == (first,)
    assert unexplained([*recorded.keys, first], due) == (first,)
    assert unexplained(recorded.keys[1:], due) == (first,)


def test_greedy_decoding_uses_no_numbers(drafting: ReferenceDecoder):
    drafting.tape(Fixed({}))
    assert len(output(drafting, Request(prompt=PROMPT, max_tokens=12))) == 12


def test_a_recorded_tape_replays_the_output_and_an_unknown_key_is_an_error(drafting: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=12, sampling=WARM, seed=9)
    recorded = Recorded(Counter())
    drafting.tape(recorded)
    first = output(drafting, request)
    drafting.tape(Fixed(dict(recorded.asked)))
    assert output(drafting, request) == first
    drafting.tape(Fixed({}))
    with pytest.raises(KeyError):
        output(drafting, request)


def test_numbers_are_a_pure_function_of_the_key_and_uniform():
    keys = [
        Key(seed, sample, start, position, purpose)
        for seed in (0, 2**64 - 1)
        for sample in range(3)
        for start in range(20)
        for position in range(20)
        for purpose in Purpose
    ]
    numbers = np.array([Counter().uniform(key) for key in keys])
    assert numbers.tolist() == [Counter().uniform(key) for key in keys]
    assert len(set(numbers.tolist())) == len(keys)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 16, (0, 1))[0] / len(keys) - 1 / 16).max() < 0.01


def test_a_sample_does_not_depend_on_its_neighbours(drafting: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=15, sampling=WARM, seed=5)
    alone = output(drafting, request)
    other = replace(request, prompt=PROMPT[3:9], seed=6, n=3)
    (_, _), (three, _), (pair, _) = serve(drafting, other, replace(request, n=3), replace(request, n=2))
    assert three[0] == pair[0] == alone
    assert three[1] == pair[1]
    assert len(set(three)) == 3


def test_sampler_match_gives_the_same_output_for_every_draft_length(plain: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=20, sampling=WARM, seed=3)
    found = {output(plain, request)}
    for length in (1, 2, 4):
        decoder = make(Setup(target=DENSE, draft=DFLASH2, rule=Rule.SAMPLER_MATCH, draft_length=length))
        assert decoder.claims.seed is SeedContract.ALWAYS
        found.add(output(decoder, request))
    assert len(found) == 1


class _Asked(Exception):
    pass


def test_the_decoder_has_exactly_the_law_of_its_table(tmp_path: Path):
    # Every decision is constant between multiples of 1/cells, so one number per cell gives the exact law of the code.
    quarters = {"": (1, 1, 2), "0": (1, 2, 1), "1": (2, 1, 1), "2": (0, 1, 3)}
    config = {"model_type": "specqual_table", "vocab_size": 3, "context": 1, "eos_token_id": []}
    laws = {suffix: [f"{weight}/4" for weight in row] for suffix, row in quarters.items()}
    (tmp_path / "config.json").write_text(json.dumps(config | {"laws": laws}))
    cells = {Purpose.BONUS: 4, Purpose.ACCEPT: 12, Purpose.RESIDUAL: 12}
    decoder = make(Setup(target=tmp_path, draft_length=1))
    request = Request(prompt=(0,), max_tokens=3, sampling=Sampling(temperature=1.0))
    q = law(0.75, 0.25, ids=(0, 2))

    def run(numbers: dict[Key, float], volume: Fraction) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        class Tree:
            def uniform(self, key: Key) -> float:
                if key not in numbers:
                    raise _Asked(key)
                return numbers[key]

        decoder.tape(Tree())
        request_id, events = decoder.submit(request), []
        try:
            while new := decoder.step():
                events += new
        except _Asked as asked:
            decoder.cancel(request_id)
            decoder.step()
            (key,) = asked.args
            count = cells[key.purpose]
            for cell in range(count):
                yield from run(numbers | {key: (cell + 0.5) / count}, volume / count)
            return
        yield outputs(events, request_id)[0], volume

    total: dict[tuple[int, ...], Fraction] = {}
    for draft, mass in ((0, Fraction(3, 4)), (2, Fraction(1, 4))):
        decoder.script(lambda context, draft=draft: Proposal((draft,), (q,)))
        for tokens, volume in run({}, mass):
            total[tokens] = total.get(tokens, Fraction(0)) + volume
    row = {0: quarters["0"], 1: quarters["1"], 2: quarters["2"]}
    expected = {
        (a, b, c): Fraction(row[0][a] * row[a][b] * row[b][c], 64)
        for a in range(3)
        for b in range(3)
        for c in range(3)
        if row[0][a] * row[a][b] * row[b][c]
    }
    assert total == expected


# Finish


@pytest.mark.parametrize("budget", [1, 2, 4, 5, 6, 11])
def test_the_token_budget_is_exact(scripted: ReferenceDecoder, budget: int):
    right = output(scripted, Request(prompt=PROMPT, max_tokens=16))
    scripted.script(knowing(right, True))
    ((found,), event) = serve(scripted, Request(prompt=PROMPT, max_tokens=budget))[0]
    assert found == right[:budget]
    assert event == Finished(1, (LENGTH,), Usage(len(PROMPT), budget))
    for round in scripted.rounds(1):
        assert round.start + 1 + len(round.proposals) < len(PROMPT) + budget


def test_a_budget_of_zero_is_malformed(plain: ReferenceDecoder):
    with pytest.raises(InvalidRequest, match="max_tokens"):
        plain.submit(Request(prompt=PROMPT, max_tokens=0))


def small_context(directory: Path, longest: int) -> Path:
    config = {"model_type": "specqual_table", "vocab_size": 3, "context": 0, "max_position_embeddings": longest}
    (directory / "config.json").write_text(json.dumps(config | {"laws": {"": ["1/2", "1/2", "0"]}}))
    return directory


def test_a_sample_ends_at_the_end_of_the_context(tmp_path: Path):
    decoder = make(Setup(target=small_context(tmp_path, 10), draft_length=3))
    decoder.script(lambda context: Proposal.certain((0,) * context.max_draft))
    ((found,), event) = serve(decoder, Request(prompt=(1, 1, 1, 1), max_tokens=50))[0]
    assert found == (0,) * 6
    assert event == Finished(0, (LENGTH,), Usage(4, 6))
    assert all(round.start + len(round.proposals) < 9 for round in decoder.rounds(0))


def test_a_prompt_that_fills_the_context_is_refused_by_an_event(tmp_path: Path):
    decoder = make(Setup(target=small_context(tmp_path, 4)))
    request_id = decoder.submit(Request(prompt=(1,) * 4, max_tokens=1))
    (event,) = decoder.step()
    assert isinstance(event, Refused) and event.request_id == request_id and "context of 4" in event.error
    assert decoder.step() == []
    with pytest.raises(KeyError):
        decoder.cancel(request_id)


@pytest.mark.parametrize("place", range(1, 9))
def test_a_stop_id_ends_the_sample_wherever_it_falls_in_a_span(scripted: ReferenceDecoder, place: int):
    right = output(scripted, Request(prompt=PROMPT, max_tokens=12))
    place = right.index(right[place])
    scripted.script(knowing(right, True))
    ((found,), event) = serve(scripted, Request(prompt=PROMPT, max_tokens=12, stop_ids=(right[place],)))[0]
    assert found == right[: place + 1]
    assert event == Finished(1, (STOP,), Usage(len(PROMPT), place + 1))
    assert sum((round.committed for round in scripted.rounds(1)), ()) == found


def end_of_sequence(directory: Path, *weights: str) -> ReferenceDecoder:
    config = {"model_type": "specqual_table", "vocab_size": 3, "context": 0, "eos_token_id": 2}
    (directory / "config.json").write_text(json.dumps(config | {"laws": {"": weights}}))
    decoder = make(Setup(target=directory, draft_length=3))
    decoder.script(lambda context: Proposal.certain((2, 0, 2)[: context.max_draft]))
    return decoder


def test_min_tokens_forbids_the_end_of_sequence_at_every_position_of_a_span(tmp_path: Path):
    decoder = end_of_sequence(tmp_path, "1/4", "1/8", "5/8")
    for least in range(6):
        ((found,), event) = serve(decoder, Request(prompt=(0,), max_tokens=9, min_tokens=least))[0]
        assert found == (0,) * least + (2,)
        assert event.reasons == (STOP,)


def test_ignore_eos_goes_on_to_the_budget(tmp_path: Path):
    decoder = end_of_sequence(tmp_path, "1/4", "1/8", "5/8")
    ((found,), event) = serve(decoder, Request(prompt=(0,), max_tokens=9, ignore_eos=True))[0]
    assert found == (2,) * 9
    assert event.reasons == (LENGTH,)


@pytest.mark.parametrize("accepting", [True, False])
def test_a_stop_string_ends_the_sample_within_and_across_rounds(scripted: ReferenceDecoder, accepting: bool):
    right = output(scripted, Request(prompt=PROMPT, max_tokens=16))
    text = "".join(chr(32 + token) for token in right)
    scripted.script(knowing(right, accepting))
    for start in range(9):
        stop = text[start : start + 3]
        end = text.index(stop) + 3
        ((found,), event) = serve(scripted, Request(prompt=PROMPT, max_tokens=16, stop_strings=("\x00", stop)))[0]
        assert found == right[:end]
        assert event.reasons == (STOP,)


def test_a_stop_string_without_a_tokenizer_is_malformed(tmp_path: Path):
    decoder = make(Setup(target=small_context(tmp_path, 10)))
    assert "stop_strings" not in decoder.claims.sampling
    with pytest.raises(InvalidRequest) as caught:
        decoder.submit(Request(prompt=(0,), max_tokens=1, stop_strings=("x",)))
    assert caught.value.field == "stop_strings"


def test_a_cancelled_request_ends_with_one_event_and_its_usage(drafting: ReferenceDecoder):
    request_id = drafting.submit(Request(prompt=PROMPT, max_tokens=30, n=2))
    emitted = sum(len(event.ids) for _ in range(3) for event in drafting.step() if isinstance(event, Tokens))
    drafting.cancel(request_id)
    assert drafting.step() == [Finished(request_id, (CANCELLED,) * 2, Usage(len(PROMPT), emitted))]
    assert drafting.step() == []
    for unknown in (request_id, 99):
        with pytest.raises(KeyError):
            drafting.cancel(unknown)


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

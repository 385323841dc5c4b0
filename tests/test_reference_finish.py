"""The reference decoder ends samples where it must: budgets, context, stop ids and strings, cancellation."""

import json
from pathlib import Path

import pytest

from specqual.contract import (
    Finished,
    InvalidRequest,
    Proposal,
    Refused,
    Request,
    Setup,
    Tokens,
    Usage,
)
from specqual.reference import ReferenceDecoder, make

from .decoding import CANCELLED, LENGTH, PROMPT, STOP, knowing, output, serve


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

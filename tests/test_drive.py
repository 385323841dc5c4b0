"""Driving a decoder: every failure of the decoder is marked as its own, and what it did is what is recorded."""

import time

import pytest

from specqual import fixtures
from specqual.conformance.drive import DecoderError, guarded, serve
from specqual.contract import Finished, FinishReason, InvalidRequest, Request, Setup, Tokens, Usage
from tests.toy import make


def toy(fault: str = "none"):
    return make(Setup(target=fixtures.path("table/chain"), options={"fault": fault}))


def test_an_answer_holds_output_reason_usage_and_rounds():
    answer = serve(toy(), [Request(prompt=(0, 1), max_tokens=4, ignore_eos=True)])[0]
    assert len(answer.output) == 4
    assert answer.reasons == (FinishReason.LENGTH,)
    assert answer.usage == Usage(2, 4)
    assert (answer.finals, answer.late) == (1, 0)
    assert answer.history().startswith("prefill 2 · ")


def test_a_history_ends_with_the_round_that_committed_the_token():
    answer = serve(toy(), [Request(prompt=(0, 1), max_tokens=4, ignore_eos=True)])[0]
    assert answer.history(0) == "prefill 2"


def test_a_call_that_does_not_come_back_is_interrupted():
    with pytest.raises(DecoderError, match="did not answer within"):
        guarded("step", lambda: time.sleep(30), 0.2)


def test_a_handler_that_catches_every_exception_does_not_stop_the_clock():
    def stubborn() -> None:
        try:
            time.sleep(30)
        except Exception:
            time.sleep(30)

    with pytest.raises(DecoderError):
        guarded("step", stubborn, 0.2)


def test_a_decoder_that_sleeps_or_never_finishes_is_an_error():
    with pytest.raises(DecoderError):
        serve(toy("sleep"), [Request(prompt=(0,), max_tokens=2)], seconds=0.5)

    class Idle(type(toy())):
        def step(self):
            return []

    idle = toy()
    idle.__class__ = Idle
    with pytest.raises(DecoderError, match="1 of 1 requests did not finish"):
        serve(idle, [Request(prompt=(0,), max_tokens=2)], seconds=0.2)


def test_a_decoder_may_take_as_long_as_it_goes_on_to_say_something():
    class Slow(type(toy())):
        def step(self):
            time.sleep(0.15)
            return super().step()

    slow = toy()
    slow.__class__ = Slow
    (answer,) = serve(slow, [Request(prompt=(0,), max_tokens=8, ignore_eos=True)], seconds=0.5)
    assert len(answer.output) == 8 > 2 * 0.5 / 0.15


def test_tokens_behind_the_budget_are_nothing_new():
    class Endless(type(toy())):
        def submit(self, request):
            self.asked = super().submit(request)
            return self.asked

        def step(self):
            return [Tokens(self.asked, (1,))]

    endless = toy()
    endless.__class__ = Endless
    with pytest.raises(DecoderError, match=r"nothing new for 0\.3 seconds"):
        serve(endless, [Request(prompt=(0,), max_tokens=2)], seconds=0.3)


def test_an_exception_in_a_step_names_itself_and_a_refusal_passes_through():
    with pytest.raises(DecoderError, match="step raised ZeroDivisionError: the toy broke"):
        serve(toy("crash"), [Request(prompt=(0,), max_tokens=2)])
    with pytest.raises(InvalidRequest, match="prompt"):
        serve(toy(), [Request(prompt=(), max_tokens=2)])


def test_tokens_after_the_final_event_are_counted_as_late():
    class Chatty(type(toy())):
        def step(self):
            events = super().step()
            late = [Tokens(event.request_id, (1,)) for event in events if isinstance(event, Finished)]
            return events + late + [event for event in events if isinstance(event, Finished)]

    chatty = toy()
    chatty.__class__ = Chatty
    answer = serve(chatty, [Request(prompt=(0,), max_tokens=2, ignore_eos=True)])[0]
    assert (answer.finals, answer.late) == (2, 1)
    assert len(answer.output) == 2

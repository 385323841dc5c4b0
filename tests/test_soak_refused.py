"""What a decoder refuses, and what it fails in, are different things; neither goes unsaid."""

import sqlite3
import time

import pytest

from specqual import fixtures
from specqual.cli import main
from specqual.conformance.verdicts import Status, Verdict
from specqual.contract import InvalidRequest, Setup, Tokens, Unsupported
from specqual.contract.errors import CheckpointError
from specqual.decoder import make
from specqual.soak.about import About
from specqual.soak.journal import NAME, BadJournal, Journal
from specqual.soak.night import judged
from specqual.soak.page import Press
from specqual.soak.records import DECODER, SUITE, Served
from specqual.soak.run import Soak
from specqual.soak.worker import World

from .soak_journals import in_process

NANO = Setup(target=fixtures.path("nano/dense"))


def about(decoder: str = "optimised", *scenarios: str, scale: float = 0.1) -> About:
    return About(decoder, NANO, 3, scenarios or ("gaps",), scale)


def here(name: str) -> str:
    return f"tests.test_soak_refused:{name}"


def broken(setup):
    raise RuntimeError("an illegal memory access")


def unnamed(setup):
    raise ValueError("math domain error")


def unsupported(setup):
    raise Unsupported("triton: is not installed")


def refusing(setup):
    """Says of one well-formed request that it is malformed."""
    decoder = make(setup)
    submit, told = decoder.submit, []

    def picky(request):
        told.append(request)
        if len(told) == 3:
            raise InvalidRequest("prompt", "not this one")
        return submit(request)

    decoder.submit = picky
    return decoder


def choosy(setup):
    """Knows no options, and says so in its own words."""
    if setup.options:
        raise ValueError(f"there is no {', '.join(setup.options)} here")
    return make(setup)


def unread(setup):
    """Cannot read the checkpoint."""
    raise CheckpointError("config.json: model_type", "must be one of 'llama', got 'specqual_table'")


def test_options_that_a_decoder_does_not_know_are_left_out_whatever_it_calls_them():
    world = World(about(here("choosy")))
    epoch = world.play(("gaps", 0)).epoch
    assert epoch.verdict is Verdict.EXACT and world.stage("nano").setup.options == {}
    world.close()


def test_a_stage_whose_checkpoint_a_decoder_cannot_read_is_skipped():
    epoch = World(about(here("unread"))).play(("gaps", 0)).epoch
    assert epoch.verdict is Verdict.SKIPPED and "must be one of 'llama'" in str(epoch.counts)


def unclosing(setup):
    """Cannot be closed."""
    decoder = make(setup)

    def closing():
        raise RuntimeError("will not close")

    decoder.close = closing
    return decoder


@pytest.mark.parametrize(
    ("name", "says"),
    [("broken", "an illegal memory access"), ("unnamed", "math domain error"), ("unclosing", "will not close")],
)
def test_a_decoder_that_cannot_be_made_because_it_fails_is_an_error(name, says):
    epoch = World(about(here(name))).play(("gaps", 0)).epoch
    assert epoch.verdict is Verdict.ERROR and says in epoch.violations[0].detail
    assert epoch.violations[0].oracle == DECODER


def test_a_run_of_which_nothing_can_be_had_stops_at_once_and_is_open(tmp_path):
    journal = Journal.open(tmp_path / NAME)
    told = Soak(about(here("unsupported")), journal, 1, 120.0).run()
    assert told == "nothing that was asked for can be had of this decoder"
    assert len(journal.done()) == 1
    found = judged(journal)
    assert found.status is Status.OPEN and found.decisions["hazards"].verdict is Verdict.INCONCLUSIVE


def test_a_run_in_which_every_epoch_breaks_stops_and_is_an_error(tmp_path):
    """It would break some hundred thousand in a night, and write down each."""
    journal = Journal.open(tmp_path / NAME)
    soak = Soak(about(here("broken")), journal, 1, 120.0)
    assert soak.run() == "100 epochs on end broke"
    assert len(journal.done()) == 100 and judged(journal).status is Status.ERROR


def test_a_refusal_is_asked_for_once():
    world = World(about(here("unsupported")))
    assert world.play(("gaps", 0)).epoch.verdict is Verdict.SKIPPED
    world.run = None
    assert world.play(("gaps", 1)).epoch.verdict is Verdict.SKIPPED


def test_a_well_formed_request_that_submit_refuses_is_a_violation_with_its_request():
    world = World(about(here("refusing")))
    epoch = world.play(("gaps", 0)).epoch
    world.close()
    assert epoch.verdict is Verdict.VIOLATED
    first = epoch.violations[0]
    assert first.oracle == "events" and "not this one" in first.detail and "request" in first.bundle


@pytest.mark.parametrize("what", ["code", "version of torch", "fingerprint of target", "device"])
def test_a_journal_goes_on_with_what_it_was_made_with_only(tmp_path, monkeypatch, what):
    journal = Journal.open(tmp_path / NAME)
    in_process(about(), journal, 0)
    made_with = About.made_with
    monkeypatch.setattr(About, "made_with", lambda self: {**made_with(self), what: "another"})
    with pytest.raises(BadJournal, match=what):
        in_process(about(), journal, 0)


def test_a_journal_that_cannot_be_written_is_an_error_and_no_violation(tmp_path, monkeypatch, capsys):
    def begin(self, about):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Journal, "begin", begin)
    assert main(["soak", "--minutes", "1", "--scenario", "gaps", "--report", str(tmp_path)]) == Status.ERROR
    assert "database or disk is full" in capsys.readouterr().err


def test_a_resume_that_is_refused_says_that_and_nothing_else(tmp_path, capsys):
    in_process(about(), Journal.open(tmp_path / NAME), 0)
    assert main(["soak", "--minutes", "1", "--resume", "--seed", "9", "--report", str(tmp_path)]) == Status.OPEN
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("specqual: error:") and len(said.err.splitlines()) == 1
    assert len(Journal.read(tmp_path / NAME).connection.execute("SELECT * FROM segments").fetchall()) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--report", "{file}"), "--report: '{file}' is no folder that can be made (File exists)"),
        (("--report", "{file}/in"), "--report: '{file}/in' is no folder that can be made (Not a directory)"),
        (("--replay", "{file}.json"), "--replay: '{file}.json' is no bundle ("),
        (("--page", "--report", "{file}.d"), "--page: there is no journal in {file}.d"),
    ],
)
def test_a_file_or_folder_that_is_none_is_told_with_its_option(tmp_path, capsys, given, says):
    file = tmp_path / "file"
    file.touch()
    assert main(["soak", "--scenario", "gaps", *(word.format(file=file) for word in given)]) == Status.OPEN
    assert says.format(file=file) in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--hours", "--minutes"])
def test_a_run_of_no_length_is_refused_by_the_option_that_was_given(tmp_path, capsys, option):
    assert main(["soak", option, "0", "--report", str(tmp_path / "none")]) == Status.OPEN
    assert capsys.readouterr().err == f"specqual: error: {option}: must be more than none, got 0.0\n"


CLOSED = []


def failing(setup):
    """Raises in its sixth step, and says when it is closed."""
    decoder = make(setup)
    step, steps, close = decoder.step, [], decoder.close

    def raising():
        steps.append(0)
        if len(steps) == 6:
            raise RuntimeError("the sixth step")
        return step()

    def closing():
        CLOSED.append(decoder)
        close()
        if len(steps) >= 6:
            raise RuntimeError("it was broken")

    decoder.step, decoder.close = raising, closing
    return decoder


def test_a_decoder_that_broke_is_closed_before_there_is_another():
    world = World(about(here("failing")))
    CLOSED.clear()
    first = world.stage("nano").decoder
    assert world.play(("gaps", 0)).epoch.verdict is Verdict.ERROR
    assert CLOSED[-1] is first and world.stage("nano").decoder is not first
    world.close()


def breaking(name, monkeypatch):
    """Let one of our own functions, which judge what a decoder says, raise."""

    def judge(*arguments):
        return {}["a place that is not there"]

    monkeypatch.setattr(f"specqual.soak.{name}", judge)


@pytest.mark.parametrize("name", ["tokens.log_softmax", "twins.retold", "serving.Traffic._ready", "epoch.chance_of"])
def test_a_mistake_of_the_suite_itself_is_an_error_and_not_the_decoders(tmp_path, monkeypatch, name):
    journal = Journal.open(tmp_path / NAME)
    breaking(name, monkeypatch)
    in_process(about("optimised", "mixed"), journal, 1)
    (one,) = journal.violations()
    assert one.violation.oracle == SUITE
    assert "KeyError: 'a place that is not there', raised at tests/test_soak_refused.py:" in one.violation.detail
    decision = judged(journal).decisions["traffic"]
    assert decision.verdict is Verdict.ERROR and "the suite itself failed 1 times in 1 of 1 epochs" in decision.detail
    assert "the decoder" not in decision.detail


@pytest.mark.parametrize("name", ["step", "submit", "rounds", "inspect", "resources", "counters", "cancel"])
def test_whatever_a_decoder_raises_is_its_own_failure_with_the_place_that_raised(monkeypatch, name):
    def raising(*arguments, **named):
        return {}["a page"] if name not in ("inspect", "cancel") else 1 / 0

    world = World(about("optimised", "storm"))
    monkeypatch.setattr(world.stage("nano").decoder, name, raising)
    epoch = world.play(("storm", 0)).epoch
    world.close()
    assert epoch.verdict is Verdict.ERROR
    (one,) = epoch.violations
    assert one.oracle == DECODER and f"{'step' if name == 'step' else 'raising'} raised " in one.detail
    assert "raised at tests/test_soak_refused.py:" in one.detail


def test_what_was_found_before_an_epoch_broke_is_kept(monkeypatch):
    world = World(about(here("refusing")))
    monkeypatch.setattr("specqual.soak.tokens.log_softmax", lambda row: 1 / 0)
    epoch = world.play(("gaps", 0)).epoch
    world.close()
    assert epoch.verdict is Verdict.VIOLATED and {one.oracle for one in epoch.violations} == {"events", SUITE}


def test_what_was_found_is_kept_where_counting_it_breaks(monkeypatch):
    world = World(about(here("refusing")))
    monkeypatch.setattr("specqual.soak.epoch.counted", lambda *given: 1 / 0)
    epoch = world.play(("gaps", 0)).epoch
    world.close()
    assert epoch.verdict is Verdict.VIOLATED and {one.oracle for one in epoch.violations} == {"events", SUITE}


def failing_late():
    yield from ()
    raise RuntimeError("an illegal memory access")


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("step", None, "step raised TypeError"),
        ("step", ["token 5"], "step said 'token 5', which is no event"),
        ("step", [Tokens(0, 0, None, None)], "whose ids are none"),
        ("step", failing_late, "step raised RuntimeError: an illegal memory access"),
        ("rounds", [None], "rounds said None, which is no round"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_of_the_decoder(monkeypatch, name, said, told):
    world = World(about("optimised", "storm"))
    monkeypatch.setattr(world.stage("nano").decoder, name, lambda *given: said() if callable(said) else said)
    (one,) = world.play(("storm", 0)).epoch.violations
    world.close()
    assert one.oracle == DECODER and told in one.detail


def test_a_call_that_does_not_return_is_a_failure_of_the_decoder(monkeypatch):
    monkeypatch.setattr("specqual.soak.calls.LONGEST", 0.5)
    world = World(about("optimised", "gaps"))
    monkeypatch.setattr(world.stage("nano").decoder, "step", lambda: time.sleep(30))
    (one,) = world.play(("gaps", 0)).epoch.violations
    world.close()
    assert one.oracle == DECODER and "did not answer within 0.5 seconds" in one.detail


def test_an_epoch_may_take_as_long_as_it_takes(monkeypatch):
    """On a machine that is busy with something else it can be long: what hangs is a call."""
    monkeypatch.setattr("specqual.soak.calls.LONGEST", 0.5)
    world, began = World(about("optimised", "gaps")), time.monotonic()
    step = world.stage("nano").decoder.step
    monkeypatch.setattr(world.stage("nano").decoder, "step", lambda: (time.sleep(0.1), step())[1])
    epoch = world.play(("gaps", 0)).epoch
    world.close()
    assert epoch.verdict is Verdict.EXACT and time.monotonic() - began > 0.5


def test_a_request_that_has_no_end_is_a_failure_of_the_decoder(monkeypatch):
    world = World(about("optimised", "gaps"))
    decoder = world.stage("nano").decoder
    submit, ids = decoder.submit, []
    monkeypatch.setattr(decoder, "submit", lambda request: ids.append(submit(request)) or ids[-1])
    monkeypatch.setattr(decoder, "step", lambda: [Tokens(ids[0], (5,))])
    (one,) = world.play(("gaps", 0)).epoch.violations
    world.close()
    assert one.oracle == DECODER and "goes on beyond 16 times what it asked for" in one.detail


def test_a_run_is_not_gone_on_with_where_the_file_of_its_decoder_has_changed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "elsewhere.py"
    file.write_text("from specqual.decoder import make\n")
    journal, run = Journal.open(tmp_path / NAME), about("elsewhere:make")
    in_process(run, journal, 0)
    in_process(run, journal, 0)
    file.write_text("from specqual.decoder import make  # better\n")
    with pytest.raises(BadJournal, match="code of the decoder"):
        in_process(run, journal, 0)


def test_a_verdict_stands_where_the_disk_takes_neither_gauge_nor_page(tmp_path):
    class Full(Journal):
        def gauge(self, *arguments):
            raise sqlite3.OperationalError("database or disk is full")

    journal = Full.open(tmp_path / NAME)
    journal.begin(about().json())
    press = Press(journal, tmp_path / "nowhere")
    assert press.print(running=False).verdict is Verdict.INCONCLUSIVE
    assert "nowhere" in press.trouble


def small_ones_only(setup):
    """Loads the checkpoints of the suite's stages, and not those of the run."""
    if setup.target == NANO.target:
        raise ValueError("target: is of no known kind")
    return make(setup)


def test_a_run_whose_own_checkpoints_cannot_be_loaded_is_open_and_says_why(tmp_path):
    journal, run = Journal.open(tmp_path / NAME), about(here("small_ones_only"), "gaps", "storm own")
    segment, world = journal.begin(run.json()), World(run)
    for name in run.scenarios:
        journal.add(segment, world.play((name, 0)).epoch, Served(0, 0.0, 1.0, 0.5))
    world.close()
    hazards = judged(journal).decisions["hazards"]
    assert hazards.verdict is Verdict.INCONCLUSIVE
    assert "never put to the test: cancellations (storm own)" in hazards.detail
    assert "skipped: storm own (no decoder on own: target: is of no known kind)" in hazards.detail

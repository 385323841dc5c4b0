"""The plugin from the outside: selection, options, exit statuses, and its absence when nobody asks for it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from specqual import fixtures
from specqual.conformance.clauses import CLAUSES
from specqual.conformance.options import listed
from specqual.conformance.plugin import HERE, asked
from specqual.conformance.verdicts import Profile

TARGET = fixtures.path("table/chain")
WIDE, NARROW = fixtures.path("small/hybrid"), fixtures.path("nano/hybrid-dflash2")


# Runs within one process find the plugin imported already, which pytest warns of and a run of one's own does not show.
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
COMMON = ("-p", "no:cacheprovider", "-p", "no:faulthandler", "-c", os.devnull, *QUIET)


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str


Pytest = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: somebody else's, with tests and a conftest of their own."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text("def pytest_runtest_setup(item):\n    raise RuntimeError\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pytest:
    """Run pytest on the suite within this process, in an empty folder, with the toy decoder at hand."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def call(*options: str, package: str = "specqual.conformance") -> Ran:
        out = StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            status = pytest.main([*COMMON, "--rootdir", str(folder), "--pyargs", package, *options])
        return Ran(int(status), out.getvalue())

    return call


@pytest.fixture
def toy(run: Pytest) -> Pytest:
    def call(fault: str, *options: str) -> Ran:
        return run("--decoder", "toy:make", "--target", str(TARGET), "--option", f"fault={fault}", *options)

    return call


def test_a_clean_decoder_ends_with_status_zero(toy):
    found = toy("none", "--clause", "GE", "--clause", "LIVE-1")
    assert found.returncode == 0, found.stdout
    assert "exit status 0" in found.stdout


def test_another_process_reaches_the_same_verdicts_from_the_same_seed(run, folder):
    options = ("--target", str(TARGET), "--draft-length", "3", "--clause", "GE", "--clause", "RNG-1")
    for name, more in (("one", ()), ("two", ("-n", "1"))):
        found = run(*options, "--report", name, *more)
        assert found.returncode == 0, found.stdout
    assert sorted(verdicts(folder / "one")) == sorted(verdicts(folder / "two"))


def verdicts(directory: Path) -> list[tuple[str, str, str]]:
    from specqual.conformance.audit import audit

    audited = audit(directory)
    assert not audited.differences
    return [(line["clause"], line["verdict"], line["detail"]) for line in audited.loaded.verdicts]


def test_a_clause_that_every_worker_decides_is_paid_for_by_every_worker(run, folder):
    options = ("--target", str(TARGET), "--draft-length", "3", "--clause", "RNG-3", "--decoder", "reference")
    found = run(*options, "--report", "out", "-n", "2", "--dist", "each")
    assert found.returncode == 0, found.stdout
    assert [clause for clause, *_ in verdicts(folder / "out")] == ["RNG-3"]
    assert "at most 1e-06, of which 1.5e-07 were spent on RNG-3 #1" in found.stdout
    assert "run more than once, and every verdict counts: RNG-3" in found.stdout


def test_a_wrong_token_is_violated_with_a_proof_and_a_replay_that_fails_alike(toy, run):
    found = toy("token", "--clause", "GE-1", "--seed", "5")
    assert found.returncode == 1, found.stdout
    for part in ("GE-1 VIOLATED", "Regret     ", "Margin     ", "History    prefill 1 · ", "Reference  after these"):
        assert part in found.stdout
    replay = next(line for line in found.stdout.splitlines() if "Replay" in line).split("specqual.conformance")[1]
    again = run(*replay.split())
    proof = [line for line in found.stdout.splitlines() if "First      " in line]
    assert again.returncode == 1
    assert proof and proof == [line for line in again.stdout.splitlines() if "First      " in line]


def test_an_output_cut_short_is_violated_however_right_its_tokens_are(toy):
    found = toy("short", "--clause", "GE-1", "--clause", "FIN-3")
    assert found.returncode == 1, found.stdout
    assert "ended after 2 of 3 tokens, though none ends it" in found.stdout
    assert "Shrunk     from a prompt of " in found.stdout
    assert "FIN-3 VIOLATED" in found.stdout


def test_a_crash_is_an_error_and_no_violation(toy):
    found = toy("crash", "--clause", "GE-1", "--clause", "ERR-2")
    assert found.returncode == 3, found.stdout
    assert "step raised ZeroDivisionError: the toy broke" in found.stdout
    assert "VIOLATED" not in found.stdout


def test_a_decoder_that_takes_its_process_along_is_an_error_and_the_report_says_so(toy, folder):
    shutil.copy(Path(__file__).parent / "toy.py", folder)  # a worker has the current folder only
    found = toy("die", "--clause", "GE-1", "--clause", "CKP-1", "-n", "1", "--report", "out")
    assert found.returncode == 3, found.stdout
    assert {clause: verdict for clause, verdict, _ in verdicts(folder / "out")} == {"GE-1": "ERROR", "CKP-1": "SKIPPED"}


def test_a_test_that_another_plugin_breaks_is_an_error_of_its_clause(toy, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "breaks.py").write_text("def pytest_runtest_setup(item):\n    raise RuntimeError('no room')\n")
    found = toy("none", "--clause", "GE-1", "-p", "breaks", "--report", "out")
    assert found.returncode == 3, found.stdout
    assert [verdict for _, verdict, _ in verdicts(folder / "out")] == ["ERROR"]


def test_an_engine_that_refuses_is_skipped_and_nothing_is_judged(toy):
    found = toy("engine", "--clause", "GE", "-rs")
    assert found.returncode == 2, found.stdout
    assert "GE-1 SKIPPED: the decoder refuses: the toy does not do this" in found.stdout


def test_a_decoder_that_never_drafts_is_not_live(toy):
    found = toy("undrafted", "--clause", "LIVE-1", "--clause", "GE-1")
    assert found.returncode == 4, found.stdout


def test_a_bad_request_that_is_accepted_is_violated(toy):
    found = toy("swallow", "--clause", "ERR-1")
    assert found.returncode == 1, found.stdout
    assert "stop_strings = ('',): was accepted without a word" in found.stdout


def test_an_open_clause_fails_under_certify_only(toy):
    options = ("--clause", "GE-5", "--clause", "LIVE-2")
    assert toy("undrafted", *options).returncode == 0
    assert toy("undrafted", *options, "--profile", "certify").returncode == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--clause", "GE-99"), "--clause: no clause is named 'GE-99'"),
        (("--seed", "x"), "--seed: must be an integer"),
        (("--profile", "fast"), "--profile: must be one of quick, device, core, nightly, certify"),
        (("--rule", "fair"), "--rule: must be one of"),
        (("--option", "colour"), "--option: must look like key=value"),
        (("--option", "colour=red"), "colour: unknown option"),
        (("--draft", "nowhere"), "--draft: there is no directory 'nowhere'"),
        (("--baseline", "nowhere"), "--baseline: report.jsonl: cannot be read"),
        (
            ("--target", str(WIDE), "--draft", str(NARROW)),
            "--draft: config.json: vocab_size: is 96, but the target's is",
        ),
        (("--decoder", "nowhere.at:all"), "--decoder: cannot import nowhere.at"),
        (("--decoder", "nonsense"), "--decoder: 'nonsense' is none of"),
    ],
)
def test_bad_usage_is_one_line_status_two_and_no_report(run, folder, options, message):
    first = ("--decoder", "toy:make", "--target", str(TARGET), "--report", str(folder / "out"))
    found = run(*first, *options)
    assert found.returncode == 2, found.stdout
    assert message in found.stdout
    assert "Traceback" not in found.stdout
    assert not (folder / "out").exists()


def test_nothing_selected_is_status_two(toy):
    found = toy("none", "-k", "nothing_is_called_so")
    assert found.returncode == 2
    assert "no clause was selected" in found.stdout


def test_the_list_names_every_clause(run):
    found = run("--list")
    assert found.returncode == 0
    assert all(clause.id in found.stdout and clause.requirement in found.stdout for clause in CLAUSES.values())


def test_a_waiver_excuses_until_it_expires(toy, folder):
    waiver = '[[waiver]]\nclause = "GE-1"\nreason = "known"\nlink = "https://example.org"\nexpires = "{}"\n'
    for year, status in ((9999, 0), (2001, 1)):
        (folder / "waivers.toml").write_text(waiver.format(f"{year}-01-01"))
        found = toy("token", "--clause", "GE-1", "--waivers", "waivers.toml")
        assert found.returncode == status, found.stdout
        assert ("warning: the waiver of GE-1 expired on 2001-01-01" in found.stdout) == bool(status)
    assert (
        "warning: the waiver of GE-1 excuses nothing: GE-1 is EXACT"
        in toy("none", "--clause", "GE-1", "--waivers", "waivers.toml").stdout
    )
    assert "warning" not in toy("none", "--clause", "GE-5", "--waivers", "waivers.toml").stdout
    (folder / "waivers.toml").write_text(waiver.format("soon"))
    found = toy("token", "--clause", "GE-1", "--waivers", "waivers.toml")
    assert found.returncode == 2
    assert "waiver[0].expires: must be a date" in found.stdout


def test_a_baseline_hides_what_did_not_change_and_excuses_nothing(toy):
    options = ("--clause", "GE-1", "--clause", "GE-5", "--clause", "FIN-3")
    assert toy("none", *options, "--report", "sound").returncode == 0
    broken = toy("token", *options, "--report", "broken", "--baseline", "sound")
    assert broken.returncode == 1, broken.stdout
    table = broken.stdout.split("conformance ==")[1]
    assert "GE-1 was EXACT" in table
    assert (
        "the baseline is a run of something else, and so may the changes be: options {'fault': 'token'}, was" in table
    )
    assert rows(table) == {"GE-1", "GE-5"}
    again = toy("token", *options, "--clause", "GE-2", "--baseline", "broken")
    assert again.returncode == 1, again.stdout
    table = again.stdout.split("conformance ==")[1]
    assert "0 of 3 clauses changed" in table and rows(table) == {"GE-2"}
    assert "new: GE-2" in table and "violated as before, which counts all the same: GE-1, GE-5" in table
    assert toy("none", "-k", "nothing_is_called_so", "--baseline", "sound").returncode == 2
    fewer = toy("none", "--clause", "GE-5", "--baseline", "sound")
    assert "in the baseline only: GE-1, FIN-3" in fewer.stdout and fewer.returncode == 0


def rows(table: str) -> set[str]:
    """The clauses that a table of verdicts shows."""
    return {words[0] for words in map(str.split, table.splitlines()) if words[1:2] in (["MUST"], ["SHOULD"], ["INFO"])}


def test_the_plugin_is_silent_when_pytest_runs_something_else(folder):
    (folder / "test_other.py").write_text("def test_other(request):\n    assert request.config\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    found = subprocess.run([*command, "test_other.py"], cwd=folder, capture_output=True, text=True)
    assert found.returncode == 0
    assert "conformance" not in found.stdout
    helped = subprocess.run([*command, "--help"], cwd=folder, capture_output=True, text=True)
    assert "--decoder" not in helped.stdout


def test_what_asks_for_the_suite():
    here = Path("/")
    assert asked(["--pyargs", "specqual.conformance"], here)
    assert asked(["specqual.conformance.test_ge::test_x"], here)
    assert asked([str(HERE)], here) and asked(["conformance/test_ge.py"], HERE.parent) and asked(["."], HERE)
    assert asked(["--list"], here) and asked(["--decoder=reference"], here)
    assert not asked(["tests", "-x", "--listed"], HERE.parent)
    assert not asked(["specqual.conformance_of_others"], here)
    assert not asked(["."], HERE.parent)


def test_the_clone_and_the_package_run_the_same_tests(run):
    options = ("--decoder", "toy:make", "--target", str(TARGET), "--clause", "GE-1", "-q")
    for package in (str(HERE), "specqual.conformance"):
        found = run(*options, package=package)
        assert found.returncode == 0, found.stdout
        assert "1 passed" in found.stdout


def test_the_profile_of_a_device_is_the_chapters_that_kernels_can_break_whole():
    chapters = "GE RWD REC DRF ISO GRF NUM".split()
    assert listed(Profile.DEVICE) == {name for name in CLAUSES if name.split("-")[0] in chapters}

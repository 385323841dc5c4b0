"""What is to be run on a GPU runs: its jobs, its campaigns and its source tree, at small sizes and without one."""

import json
import shlex
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from specqual import fixtures
from specqual.contract import Setup
from specqual.mutants.registry import mutants

from .device import __main__ as session
from .device import bitwise, jobs, parts
from .device.bitwise import Campaign, campaign
from .device.gale import CROWD, Seen
from .device.source import environment, laid_out

NANO = Setup(target=fixtures.path("nano/hybrid"), draft=fixtures.path("nano/hybrid-dflash2"))


def test_a_campaign_goes_through_everything_and_finds_a_sound_decoder_equal() -> None:
    asked = Campaign(NANO, tokens=1500, block=700, seed=1, longest=40)
    seen = campaign(asked)
    assert seen.difference is None and seen.tokens >= 1500 and seen.blocks >= 2
    assert seen.missing(1500) == [], seen
    assert max(seen.batches) == CROWD


def test_a_difference_ends_a_campaign_and_is_told_with_its_replay() -> None:
    """The mutant mixes up samples whose spans are unequally long."""
    asked = Campaign(NANO, tokens=4000, block=400, longest=40)
    seen = campaign(asked, mutants()["M24e"].make)
    assert seen.difference is not None and seen.tokens < 4000
    assert seen.difference["what"].startswith(f"block {seen.blocks - 1}, request ")
    command = shlex.split(seen.difference["replay"])
    assert command[:3] == ["python", "-m", "tests.device.bitwise"]
    assert command[command.index("--first") + 1] == str(seen.blocks - 1)
    asked = replace(asked, tokens=1, first=seen.blocks - 1)
    again = campaign(asked, mutants()["M24e"].make)
    assert again.difference == seen.difference


def test_a_campaign_that_saw_too_little_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bitwise.json"
    sizes = "--target nano/dense --draft nano/dense-dflash --tokens 30 --block 30 --longest 8".split()
    assert bitwise.main([*sizes, "--out", str(out)]) == 2
    found = json.loads(out.read_text())
    assert found["difference"] is None and found["tokens"] >= 30 and "batches of 15" in found["missing"]
    assert "equal, but not seen: " in capsys.readouterr().out


def test_missing_tokens_are_missed() -> None:
    assert "9 tokens" in Seen(tokens=8).missing(9) and "9 tokens" not in Seen(tokens=9).missing(9)


def test_the_source_tree_is_a_package_without_an_installation(tmp_path: Path) -> None:
    where = laid_out(tmp_path / "site")
    code = (
        "import specqual.decoder.gpu.need as need, importlib.metadata as told; print(need.__file__);"
        "print([e.value for e in told.entry_points(group='pytest11') if e.name == 'specqual'][0]);"
        "print(told.distribution('specqual').locate_file(''))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(where), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, plugin, place = done.stdout.split()
    assert file == str(where / "specqual" / "decoder" / "gpu" / "need.py")
    assert plugin == "specqual.conformance.plugin" and Path(place) == where


def ended(tmp_path: Path, *asked: jobs.Job, seconds: float) -> dict[str, jobs.Ended]:
    found = list[jobs.Ended]()
    variables = environment(tmp_path)
    jobs.run(asked, width=2, end=monotonic() + seconds, logs=tmp_path, variables=variables, hear=found.append)
    return {one.name: one for one in found}


def test_a_job_that_fails_or_is_not_there_stops_no_other(tmp_path: Path) -> None:
    python = sys.executable
    found = ended(
        tmp_path,
        jobs.Job("fails", [python, "-c", "print('first'); raise SystemExit('so it goes')"]),
        jobs.Job("lacks", [tmp_path / "nothing"]),
        jobs.Job("works", [python, "-c", "import os; print(os.environ['ASKED'])"], {"ASKED": "well"}),
        seconds=120.0,
    )
    assert (found["fails"].status, found["fails"].said) == (1, "so it goes") and not found["fails"].fine
    assert found["lacks"].status == 127 and "nothing" in found["lacks"].said
    assert found["works"].fine and found["works"].said == "well"


def test_a_job_whose_time_is_over_is_ended_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inner = f"import time, pathlib; time.sleep(4); pathlib.Path({str(mark)!r}).touch()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    (one,) = ended(tmp_path, jobs.Job("hangs", [sys.executable, "-c", outer]), seconds=2.0).values()
    assert one.status is None and not one.fine and "out of time" in str(one)
    sleep(5)
    assert not mark.exists()


def test_a_session_leaves_three_files_and_a_line_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "sanitizer", lambda: None)
    monkeypatch.setitem(parts.PARTS, "bench", parts.Part(lambda s: iter([small(s)]), 1, 0.5))
    assert session.main(["bench", "sanitize", "--out", str(tmp_path / "out"), "--minutes", "sanitize=0.5"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == "bench: 1 of 1 jobs fine"
    assert printed[-1].startswith(f"sanitize: 0 of {len(parts.SANITIZED)} jobs fine; not ")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.json", "log.txt", "details-bench.tar.gz"}
    told: dict[str, Any] = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["said"] for one in told["parts"]["sanitize"]] == ["compute-sanitizer: not found"] * len(parts.SANITIZED)
    assert "==== bench: small\nwritten\n" in (tmp_path / "out" / "log.txt").read_text()
    with tarfile.open(tmp_path / "out" / "details-bench.tar.gz") as archive:
        assert archive.getnames() == ["bench", "bench/found"]


def small(session: parts.Session) -> jobs.Job:
    file = session.folder("bench") / "found"
    return jobs.Job(
        "small", [sys.executable, "-c", f"[open({str(file)!r} + end, 'w') for end in ('', '.html')]; print('written')"]
    )


def test_a_python_that_lacks_a_module_is_told_so_before_any_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "NEEDED", ("torch", "no_such_module", "nor_such"))
    assert session.main(["bench", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr() == ("", "not installed: no_such_module, nor_such\n")
    assert not (tmp_path / "out").exists()


def test_a_job_is_killed_together_with_the_session_that_started_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    job = f"import os, time, pathlib; pathlib.Path({str(mark)!r}).touch(); time.sleep(8); print('woke', flush=True)"
    outer = (
        "import os, sys; from pathlib import Path; from time import monotonic; from tests.device import jobs;"
        f"job = jobs.Job('sleeps', [sys.executable, '-c', {job!r}]);"
        f"jobs.run_one(job, monotonic() + 60, Path({str(tmp_path / 'log')!r}), dict(os.environ))"
    )
    variables = environment(laid_out(tmp_path / "site"))
    with subprocess.Popen([sys.executable, "-c", outer], env=variables) as process:
        while process.poll() is None and not mark.exists():
            sleep(0.1)
        process.kill()
    sleep(9)
    assert mark.exists() and not (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kernel"], "PART: there is no 'kernel'"),
        (["--minutes", "profile"], "--minutes: must look like PART=M"),
        (["--minutes", "profiles=2"], "--minutes: must look like PART=M"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        session.main([*arguments, "--out", "nowhere"])
    assert ended.value.code == 2 and message in capsys.readouterr().err and not Path("nowhere").exists()


def test_every_configuration_is_tried_with_graphs_and_without(tmp_path: Path) -> None:
    found = [one.name for one in parts.configurations(parts.Session(tmp_path))]
    forms = [f"{kind}-{form}" for kind in ("dense", "hybrid") for form in ("bf16", "nvfp4")]
    assert found == [f"{form}-graphs{graphs}" for form in forms for graphs in (0, 1)]
    assert [one.name for one in parts.configurations(parts.Session(tmp_path, device="cpu"))] == forms


def test_targets_are_quantised_only_where_somebody_asks_for_them(tmp_path: Path) -> None:
    made = {
        only: [job.name for job in parts.quantised(parts.Session(tmp_path, only=only))]
        for only in ("", "bf16", "hybrid")
    }
    assert made == {"": ["quantise-dense", "quantise-hybrid"], "bf16": [], "hybrid": ["quantise-hybrid"]}


@pytest.mark.parametrize(("minutes", "served"), [(14.0, "10"), (9.5, "5.5"), (2.0, "0.5")])
def test_a_soak_ends_within_the_minutes_of_its_part(tmp_path: Path, minutes: float, served: str) -> None:
    (job,) = parts.soak(parts.Session(tmp_path, minutes=minutes))
    assert job.command[job.command.index("--minutes") + 1] == served

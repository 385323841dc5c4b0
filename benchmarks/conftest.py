"""Options, the order of the runs, and a process per arm."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest
from pytest_benchmark.utils import get_commit_info

from .arms import Arm, arms_of
from .worker import Worker

STARTED = pytest.StashKey[dict[str, Any]]()
PACKAGES = ("specqual", "torch", "transformers", "dflash", "numpy")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("throughput")
    group.addoption("--models", default="small/hybrid,small/dense", metavar="NAMES", help="target fixtures")
    group.addoption("--arms", metavar="NAMES", help="only these arms (default: every one that the target has)")
    group.addoption("--batches", default="1,4,8,15,16", metavar="N,…", help="batch sizes")
    group.addoption("--prompt", default=128, type=int, metavar="N", help="prompt tokens, at most 384")
    group.addoption("--tokens", default=512, type=int, metavar="N", help="new tokens of each request")
    group.addoption("--trials", default=5, type=int, metavar="N", help="how often everything is run")
    group.addoption("--arithmetic", default="float32", metavar="DTYPE", help="dtype of every arm")
    group.addoption("--cores", default=1, type=int, metavar="N", help="threads of every arm")


@dataclass(frozen=True, slots=True)
class Job:
    """One run: an arm on a batch, in a trial."""

    model: str
    trial: int
    batch: int
    arm: Arm

    def __str__(self) -> str:
        return f"{self.model}-trial{self.trial}-batch{self.batch}-{self.arm.name}"


def jobs(config: pytest.Config) -> list[Job]:
    """All runs: within a model trial by trial, batch by batch from small to large, and there each arm once, so that
    whatever slows the machine down for a while hits every arm of a comparison."""
    option = config.getoption
    batches = sorted({int(batch) for batch in option("--batches").split(",")})
    chosen = option("--arms") and option("--arms").split(",")
    return [
        Job(model, trial, batch, arm)
        for model in option("--models").split(",")
        for trial in range(option("--trials"))
        for batch in batches
        for arm in arms_of(model, option("--arithmetic"), batches[-1])
        if (arm.most is None or batch <= arm.most) and (not chosen or arm.name in chosen)
    ]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STARTED] = get_commit_info()


def pytest_benchmark_update_commit_info(config: pytest.Config, commit_info: dict[str, Any]) -> None:
    """What is measured is what stood there at the start; hours later somebody may have committed."""
    commit_info.update(config.stash[STARTED])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "job" in metafunc.fixturenames:
        metafunc.parametrize("job", jobs(metafunc.config), ids=str)


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """What the report says at its top."""
    names = ("prompt", "tokens", "trials", "arithmetic", "cores")
    machine_info["throughput"] = {
        "settings": {name: config.getoption("--" + name) for name in names},
        "versions": {name: version(name) for name in PACKAGES},
    }


class Crew:
    """The processes of one model's arms; those of the model before are let go."""

    def __init__(self, threads: int) -> None:
        self._threads, self._model = threads, ""
        self._workers: dict[str, Worker] = {}

    def worker(self, job: Job) -> Worker:
        if job.model != self._model:
            self.close()
            self._model = job.model
        if job.arm.name not in self._workers:
            self._workers[job.arm.name] = Worker(job.arm, self._threads)
        return self._workers[job.arm.name]

    def close(self) -> None:
        while self._workers:
            self._workers.popitem()[1].close()


@pytest.fixture(scope="session")
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    crew = Crew(request.config.getoption("--cores"))
    yield crew
    crew.close()

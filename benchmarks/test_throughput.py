"""One benchmark per trial, batch and arm; their order is what interleaves the arms."""

from typing import Any

import pytest

from .conftest import Crew, Job
from .prompts import prompts_of


def test_tokens_per_second(job: Job, crew: Crew, benchmark: Any, request: pytest.FixtureRequest) -> None:
    tokens = request.config.getoption("--tokens")
    prompts = prompts_of(job.model, job.batch, request.config.getoption("--prompt"))
    worker = crew.worker(job)
    worker.warm(prompts, tokens)
    benchmark.group = f"{job.model} batch {job.batch}"
    benchmark.pedantic(worker.run, args=(prompts, tokens), rounds=1, iterations=1)
    names = {"model": job.model, "trial": job.trial, "batch": job.batch, "arm": job.arm.name, "label": job.arm.label}
    benchmark.extra_info.update(names, **worker.account())
    assert benchmark.extra_info["tokens"] == job.batch * tokens

"""A drafter quantised at load on the kernels, in Triton's interpreter where there is no GPU: what the host drafts."""

from collections.abc import Sequence
from pathlib import Path

from .interpreter import DEVICE  # isort: split

from specqual import fixtures
from specqual.contract import Request, Rule, Sampling, Setup, Tokens
from specqual.decoder import make

WHERE = "cuda" if DEVICE == "cuda" else "interpreter"
TARGET, DRAFT = fixtures.path("nano/dense"), fixtures.path("nano/dense-dflash2")
REQUEST = Request(prompt=(3, 9, 4), max_tokens=3, sampling=Sampling(temperature=0.0), ignore_eos=True)


def run(device: str, draft: Path, **options: str) -> tuple[list[int], Sequence[object]]:
    """The output, and the drafts of each round."""
    engine = make(Setup(target=TARGET, draft=draft, rule=Rule.RATIO, options={"device": device, **options}))
    request_id, output = engine.submit(REQUEST), list[int]()
    while len(output) < REQUEST.max_tokens:
        for event in engine.step():
            if isinstance(event, Tokens):
                output += event.ids
    return output, [one.proposals for one in engine.rounds(request_id)]


def test_the_kernels_draft_from_modules_quantised_at_load_what_the_host_drafts() -> None:
    host, there = (run(device, DRAFT, draft_format="nvfp4") for device in ("cpu", WHERE))
    assert host == there

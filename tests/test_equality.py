"""The same tokens with a drafter, without one, and from Transformers, on a few held-out prompts.

`tests/equality.py` is the command for many; docs/results/equality.md holds what it printed for 200.
"""

import pytest

from specqual import fixtures

from .equality import Job, compare, heldout


@pytest.mark.parametrize(("target", "draft"), [("hybrid", "hybrid-dflash2"), ("dense", "dense-dflash2")])
def test_reference_and_transformers_agree_on_heldout_text(target: str, draft: str) -> None:
    pytest.importorskip("transformers")
    prompts = heldout(fixtures.ROOT / "small" / "heldout.json", 112)[:180:90]
    for prompt in prompts:
        job = Job(fixtures.path(f"small/{target}"), fixtures.path(f"small/{draft}"), 0, prompt, 20)
        outcome = compare(job)
        assert outcome.equal, outcome
        assert outcome.rounds < len(outcome.off)

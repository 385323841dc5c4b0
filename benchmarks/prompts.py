"""What is continued: held-out text, cut to the same length."""

import json

from specqual import fixtures
from specqual.contract.checkpoint import open_target

from .arms import Prompts


def prompts_of(model: str, batch: int, length: int) -> Prompts:
    """The first tokens of held-out windows of code, spread over all files.

    The ids are those of the small checkpoints' tokenizer; a smaller vocabulary takes them modulo its size.
    """
    windows = json.loads((fixtures.ROOT / "small" / "heldout.json").read_text())["windows"]["code"]
    size = open_target(fixtures.path(model)).config.vocab_size
    chosen = windows[:: max(1, len(windows) // batch)][:batch]
    return tuple(tuple(token % size for token in window[:length]) for window in chosen)

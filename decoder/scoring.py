"""Scoring: the decoder's own log-probabilities of a given output, by the kernels that generate."""

from collections.abc import Sequence

import numpy as np

from specqual.contract import InvalidRequest, Scored

from .memory import Store
from .pages import Pages
from .sampling import falling, logprobs
from .span import Span, Target


def score(target: Target, store: Store, prompt: Sequence[int], output: Sequence[int], chunk: int) -> Scored:
    """Judge each token of `output` behind `prompt`, in pools made for this one sequence, `chunk` tokens at a time.

    InvalidRequest names an empty prompt, an id outside of the vocabulary, or an output beyond the context.
    """
    for name, ids in (("prompt", prompt), ("output", output)):
        for place, token in enumerate(ids):
            if not 0 <= token < target.vocab_size:
                raise InvalidRequest(f"{name}[{place}]", f"must be between 0 and {target.vocab_size - 1}, got {token}")
    if not prompt:
        raise InvalidRequest("prompt", "must hold at least one token")
    if len(prompt) + len(output) > target.max_context:
        raise InvalidRequest("output", f"ends beyond the context of {target.max_context} tokens")
    ids = (*prompt, *output)[:-1] if output else ()
    device = store.pages.device
    alone = Store(Pages(target.streams, 0, device), store.slots.like(1), 1)
    most = alone.most_pages(len(ids), chunk)
    alone.pages = Pages(target.streams, most, device)
    memory = alone.take(most)
    assert memory is not None
    rows = list[np.ndarray]()
    for start in range(0, len(ids), chunk):
        end = min(start + chunk, len(ids))
        alone.extend(memory, target.streams, end)
        judged = max(0, end - max(start, len(prompt) - 1))
        found = target.forward([Span(ids[:end], start, memory, end - start, judged)], alone)
        alone.commit(memory, end, 0)
        rows += list(found.logits[0].cpu().double().numpy())
    laws = [logprobs(row) for row in rows]
    first, second = ([int(falling(law)[rank]) for law in laws] for rank in (0, 1))
    return Scored(
        tuple(float(law[token]) for law, token in zip(laws, output, strict=True)),
        tuple(float(law[token]) for law, token in zip(laws, first, strict=True)),
        tuple(first),
        tuple(float(law[token]) for law, token in zip(laws, second, strict=True)),
    )

"""Bytes that must move, from the configurations alone: weights in their formats, caches and states, each once.

What a perfect implementation could leave in registers or caches is not counted: activations, logits, partial sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from specqual.contract.config import LayerType
from specqual.decoder.gpu.budget import Pair, weights

from ..traffic import visible, windows

WIDE, NARROW = 4, 2  # bytes of a float32 and of a bfloat16


@dataclass(frozen=True, slots=True)
class Cell:
    """A batch at a context; `rows` of each sample go through the target, `kept` tokens wait in its log."""

    batch: int
    context: int
    rows: int
    kept: int


def step_bytes(pair: Pair, cell: Cell) -> dict[str, int]:
    """Of one pass of the target, by what they are."""
    found = dict(modules(pair, "target", nvfp4_draft=False))
    found["embedding rows"] = cell.batch * cell.rows * pair.target.hidden_size * NARROW
    found["keys and values"] = cell.batch * target_cache(pair, cell)
    found["states and logs"] = cell.batch * target_states(pair, cell)
    return {name: size for name, size in found.items() if size}


def draft_bytes(pair: Pair, cell: Cell, nvfp4_draft: bool) -> dict[str, int]:
    """Of what a drafter does in one round: it takes in `kept` tokens, runs its block, and scores it with the head."""
    config = pair.draft
    assert config is not None
    found = dict(modules(pair, "drafter", nvfp4_draft))
    found["head once more"] = head(pair)
    row = 2 * config.kv_heads * config.head_dim * NARROW
    seen = sum(visible(cell.context, window) for window in windows(config.layer_types, config.window))
    found["drafter: keys and values"] = cell.batch * row * (seen + config.layers * cell.kept)
    found["features"] = cell.batch * cell.kept * len(config.target_layer_ids) * config.hidden_size * NARROW
    if config.selector is not None:
        candidates = config.draft_length * (config.selector.top_k + 1)
        found["rows of codebooks"] = cell.batch * candidates * config.selector.rank * NARROW
    return found


def round_bytes(pair: Pair, cell: Cell, nvfp4_draft: bool) -> dict[str, int]:
    """Of a whole round."""
    return step_bytes(pair, cell) | draft_bytes(pair, cell, nvfp4_draft)


def modules(pair: Pair, owner: str, nvfp4_draft: bool) -> Iterator[tuple[str, int]]:
    """Linear modules by format; a head that is tied to the embedding is one of them."""
    yield from (
        (i.name, i.bytes) for i in weights(pair, nvfp4_draft) if i.name.startswith(owner) and "modules" in i.name
    )
    if owner == "target" and pair.target.tied:
        yield "target: tied head", head(pair)


def head(pair: Pair) -> int:
    """The output module in its format."""
    numbers = pair.target.vocab_size * pair.target.hidden_size
    kind = "dense" if pair.target.tied else str(pair.quantisation.format_of("lm_head"))
    return {"dense": 2 * numbers, "fp8": numbers}.get(kind, numbers * 9 // 16)


def target_cache(pair: Pair, cell: Cell) -> int:
    """Read what rows see in front of the pass, write and read the new ones."""
    config = pair.target
    size = 1 if pair.quantisation.kv_scales else NARROW
    seen = sum(visible(cell.context, window) + 2 * cell.rows for window in windows(config.layer_types, config.window))
    return 2 * config.kv_heads * config.head_dim * size * seen


def target_states(pair: Pair, cell: Cell) -> int:
    """One read and one write of each state; reads of what was kept, writes of what is new."""
    net, layers = pair.target.delta_net, pair.target.layer_types.count(LayerType.LINEAR)
    if net is None:
        return 0
    state = net.value_heads * net.key_dim * net.value_dim * WIDE
    token = (net.key_heads * net.key_dim + net.value_heads * net.value_dim) * NARROW + 2 * net.value_heads * WIDE
    mixed = net.channels * NARROW
    history = (cell.rows + net.kernel - 1) * mixed
    return layers * (2 * state + (cell.kept + cell.rows) * token + history)

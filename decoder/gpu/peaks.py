"""What a pass holds at its peak, of each of its rows: numbers of activations, by what is alive when most of them are.

The functions named here are those of the target and the drafter on a device; rows are bfloat16, logits float32.
"""

from typing import NamedTuple

from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.draft import DraftConfig

NUMBER = 2  # bytes
GROUPS = 8192, 128  # logits that one program of `top` takes, and the groups whose best entries, int64, it leaves
LIVE = 3  # hidden rows beside what a layer makes: what enters it, normed, and what the layer before gave


class Row(NamedTuple):
    """Bytes of one row."""

    features: int  # what a drafter is to take in, kept until the pass ends
    activations: int  # beside them, at the peak
    logits: int  # with the best of every group of them
    kept: int  # of what a captured pass gives


def row_of(target: TargetConfig, draft: DraftConfig | None) -> Row:
    """Of a pass by a target whose drafter, if there is one, takes in what it gives."""
    hidden, taps = target.hidden_size, 0 if draft is None else len(draft.target_layer_ids)
    kinds = set(target.layer_types)
    makes = [3 * target.intermediate_size, taps * hidden]  # gate, up and their product; all features behind each other
    makes += [recurrent(target) if kind is LayerType.LINEAR else attending(target) for kind in kinds]
    wanted = [LIVE * hidden + max(makes)]
    if draft is not None:  # features once more, projected, normed, and the context of all layers
        wanted.append(taps * hidden + 2 * hidden + 2 * draft.layers * draft.kv_heads * draft.head_dim)
    groups = -(-target.vocab_size // GROUPS[0]) * GROUPS[1]
    return Row(
        NUMBER * taps * hidden,
        NUMBER * max(wanted),
        4 * target.vocab_size + 8 * groups,
        NUMBER * (1 + taps) * hidden,
    )


def attending(config: TargetConfig) -> int:
    """Query, gate, key and value as projected; query turned; what is seen; and what leaves."""
    asked, sides = config.heads * config.head_dim, 2 * config.kv_heads * config.head_dim
    return (2 if config.output_gate else 1) * asked + sides + 2 * asked + config.hidden_size


def recurrent(config: TargetConfig) -> int:
    """Mixed, z, b and a as projected; query, key, value and float32 gates; what is read, float32; normed; and what
    leaves."""
    net = config.delta_net
    assert net is not None
    values = net.value_heads * net.value_dim
    entered = net.channels + values + 2 * net.value_heads
    return entered + net.channels + 4 * net.value_heads + 2 * values + values + config.hidden_size

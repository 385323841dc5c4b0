"""Drafter configurations: DFlash, DFlash 2 and its two halves, and the Markov head, read with strict accounting."""

from dataclasses import dataclass
from typing import Any

from .claims import Method
from .config import INERT, KINDS, LayerType, layer_types, rope, window
from .errors import CheckpointError
from .keys import Keys


@dataclass(frozen=True, slots=True)
class Convolution:
    """Grouped dynamic causal convolution around both sublayers of every layer."""

    kernel: int  # taps
    group: int  # channels that share a dynamic coefficient


@dataclass(frozen=True, slots=True)
class Selector:
    """Candidate selector: a serial walk over the `top_k` best tokens of every slot."""

    rank: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """Everything about a DFlash-family drafter that its arithmetic depends on."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[LayerType, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float
    attention_bias: bool
    is_causal: bool
    window: int | None
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    target_layers: int
    sample_from_anchor: bool  # slot k predicts position k + 1 (DSpark layout) rather than position k
    convolution: Convolution | None
    selector: Selector | None
    markov_rank: int | None
    input_scale: float
    output_multiplier: float
    softcap: float | None
    max_context: int  # a drafter draws no token at a position from here on

    @property
    def layers(self) -> int:
        return len(self.layer_types)

    @property
    def draft_length(self) -> int:
        """K, the drafts of one full block."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1

    @property
    def method(self) -> Method:
        if self.markov_rank is not None:
            return Method.MARKOV
        return {
            (False, False): Method.DFLASH,
            (True, False): Method.DFLASH_CONV,
            (False, True): Method.DFLASH_SELECTOR,
            (True, True): Method.DFLASH2,
        }[self.convolution is not None, self.selector is not None]


def _convolution(keys: Keys, hidden: int) -> Convolution | None:
    if not keys.has("conv_kernel_size") and not keys.has("conv_group_size"):
        return None
    convolution = Convolution(keys.integer("conv_kernel_size", high=64), keys.integer("conv_group_size"))
    if hidden % convolution.group:
        raise CheckpointError(keys.name("conv_group_size"), f"must divide hidden_size {hidden}")
    return convolution


def _selector(keys: Keys, vocab: int) -> Selector | None:
    if not keys.has("selector_rank") and not keys.has("selector_top_k"):
        return None
    return Selector(keys.integer("selector_rank"), keys.integer("selector_top_k", high=vocab))


def _causal(keys: Keys) -> bool:
    # Two spellings are in use; the drafter is useless under the wrong one, so one of them must be written down.
    said = {keys.flag(key) for key in ("causal", "is_causal") if keys.take(key, None) is not None}
    if len(said) > 1:
        raise CheckpointError(keys.name("causal"), f"contradicts {keys.name('is_causal')}")
    return said.pop() if said else keys.flag("is_causal")


def parse_draft(content: dict[str, Any], where: str = "config.json") -> DraftConfig:
    """Turn the content of a drafter's config.json into a DraftConfig; CheckpointError names the offending key.

    Keys may stand in `dflash_config` or at the top level; the nested one wins. `block_size`, `is_causal`,
    `mask_token_id` and `target_layer_ids` have no default. The feature of target layer i is the residual stream after
    it, before the final norm. The last layer is refused: what Transformers hands out as its output has been normed, so
    the same file would mean one drafter to one engine and another to the next.
    """
    keys = Keys(content, where, nested="dflash_config")
    keys.one_of("model_type", ["qwen3"])
    count = keys.integer("num_hidden_layers", high=4096)
    types = layer_types(keys, count, ["full_attention"] * count, KINDS["qwen3"])
    heads = keys.integer("num_attention_heads")
    kv_heads = keys.integer("num_key_value_heads")
    if heads % kv_heads:
        raise CheckpointError(keys.name("num_key_value_heads"), f"must divide num_attention_heads, got {kv_heads}")
    hidden, vocab = keys.integer("hidden_size"), keys.integer("vocab_size")
    target_layers = keys.integer("num_target_layers")
    ids = keys.integers("target_layer_ids", high=target_layers - 1)
    if not ids:
        raise CheckpointError(keys.name("target_layer_ids"), "must name at least one target layer")
    if target_layers - 1 in ids:
        raise CheckpointError(
            keys.name("target_layer_ids"),
            f"names the last layer, {target_layers - 1}, whose feature some read before the final norm and some after",
        )
    theta, fraction = rope(keys, 1.0)
    if fraction != 1.0:
        raise CheckpointError(keys.name("partial_rotary_factor"), "a drafter turns whole heads")
    keys.one_of("hidden_act", ["silu"], "silu")
    keys.one_of("tie_word_embeddings", [False, True], False)  # it has neither embedding nor head of its own
    softcap = keys.number("final_logit_softcapping", 0.0)
    from_anchor = keys.flag("sample_from_anchor", False)
    config = DraftConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=keys.integer("intermediate_size"),
        layer_types=types,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=keys.integer("head_dim"),
        rope_theta=theta,
        eps=keys.number("rms_norm_eps", low=1e-12, high=1.0),
        attention_bias=keys.flag("attention_bias", False),
        is_causal=_causal(keys),
        window=window(keys, types),
        block_size=keys.integer("block_size", low=1 if from_anchor else 2, high=4096),
        mask_token_id=keys.integer("mask_token_id", low=0, high=vocab - 1),
        target_layer_ids=ids,
        target_layers=target_layers,
        sample_from_anchor=from_anchor,
        convolution=_convolution(keys, hidden),
        selector=_selector(keys, vocab),
        markov_rank=keys.integer("markov_rank") if keys.has("markov_rank") else None,
        input_scale=keys.number("input_embedding_scale", 1.0),
        output_multiplier=keys.number("output_multiplier", 1.0, low=1e-6),
        softcap=softcap or None,
        max_context=keys.integer("max_position_embeddings"),
    )
    if config.markov_rank is not None and config.selector is not None:
        raise CheckpointError(keys.name("markov_rank"), "a Markov head and a selector exclude each other")
    if "DFlash2DraftModel" in str(content.get("architectures")) and config.method is Method.DFLASH:
        raise CheckpointError(keys.name("architectures"), "says DFlash 2, but no convolution or selector is configured")
    keys.finish(INERT | {"eos_token_id"})
    return config

"""Target configurations: `config.json` of Llama, Qwen3 and Qwen3.5/3.8 checkpoints, read with strict accounting."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .errors import CheckpointError
from .keys import Keys


class LayerType(StrEnum):
    """What mixes the tokens in a decoder layer, under its name in `layer_types`."""

    FULL = "full_attention"
    SLIDING = "sliding_attention"
    LINEAR = "linear_attention"  # gated delta-net


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Sizes of a gated delta-net layer; `kernel` counts taps of the causal depthwise convolution."""

    key_heads: int
    value_heads: int
    key_dim: int  # per head
    value_dim: int  # per head
    kernel: int

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values side by side."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """Everything about a target that its arithmetic depends on."""

    model_type: str  # llama, qwen3, qwen3_5_text
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[LayerType, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int  # leading dimensions of a head that RoPE turns
    rope_theta: float
    eps: float
    tied: bool
    attention_bias: bool
    mlp_bias: bool
    qk_norm: bool
    norm_plus_one: bool  # RMSNorm multiplies by 1 + w
    output_gate: bool  # q_proj also yields a sigmoid gate on the attention output
    window: int | None  # a sliding layer sees key j from query i iff i - j < window
    delta_net: DeltaNet | None
    max_context: int
    eos_ids: tuple[int, ...]
    prefix: str  # of the text model's tensors

    @property
    def layers(self) -> int:
        return len(self.layer_types)


# The kinds of layers that an architecture knows.
KINDS = {
    "llama": (LayerType.FULL,),
    "qwen3": (LayerType.FULL, LayerType.SLIDING),
    "qwen3_5_text": (LayerType.FULL, LayerType.LINEAR),
}

# Keys that describe training, caching, files or other modalities; they have no effect on the text model's output.
INERT = frozenset(
    """
    architectures transformers_version dtype torch_dtype initializer_range use_cache attention_dropout pretraining_tp
    bos_token_id pad_token_id unk_token_id max_window_layers _name_or_path _model_name_or_path quantization_config
    mamba_ssm_dtype mtp_num_hidden_layers mtp_use_dedicated_embeddings
    """.split()
)
INERT_MULTIMODAL = frozenset(
    "vision_config image_token_id video_token_id vision_start_token_id vision_end_token_id language_model_only".split()
)


def layer_types(keys: Keys, count: int, fallback: list[str], known: tuple[LayerType, ...]) -> tuple[LayerType, ...]:
    """Read `layer_types`, one name per layer, each of a kind that this architecture knows."""
    names = keys.take("layer_types", fallback)
    if not isinstance(names, list) or len(names) != count:
        raise CheckpointError(keys.name("layer_types"), f"must list {count} layers, got {names!r}")
    for name in names:
        if name not in known:
            raise CheckpointError(keys.name("layer_types"), f"must be of {', '.join(known)} here, got {name!r}")
    return tuple(LayerType(name) for name in names)


def window(keys: Keys, types: tuple[LayerType, ...]) -> int | None:
    """Read the sliding window, which must be there if and only if a layer slides."""
    slides = LayerType.SLIDING in types
    if keys.flag("use_sliding_window", slides) != slides:
        raise CheckpointError(keys.name("use_sliding_window"), f"contradicts layer_types {[str(t) for t in types]}")
    keys.take("sliding_window", None)
    return keys.integer("sliding_window") if slides else None


def rope(keys: Keys, default: float | None = None) -> tuple[float, float]:
    """Read (theta, rotated fraction of a head); any scaling is refused.

    The settings stand at the top level, in `rope_parameters`, or in `rope_scaling`, the older name of the same object.
    What is said at two places must agree. Without a default, the fraction must be written down.
    """
    levels = [keys]
    for name in ("rope_parameters", "rope_scaling"):
        if keys.take(name, None) is None:
            continue
        if len(levels) > 1:
            raise CheckpointError(keys.name(name), "stands beside rope_parameters, and only one of the two can hold")
        levels.append(keys.inner(name))
        levels[-1].one_of("rope_type", ["default"], "default")
    theta = _agreed(levels, "rope_theta", None, low=1.0)
    fraction = _agreed(levels, "partial_rotary_factor", default, low=1e-3, high=1.0)
    for inner in levels[1:]:
        inner.finish(frozenset({"mrope_section", "mrope_interleaved"}))  # equal axes on text: ordinary RoPE
    return theta, fraction


def _agreed(levels: list[Keys], key: str, default: float | None, *, low: float, high: float = 1e12) -> float:
    said = {level.number(key, low=low, high=high) for level in levels if level.take(key, None) is not None}
    if len(said) > 1:
        raise CheckpointError(levels[0].name(key), f"contradicts {levels[-1].name(key)}")
    if said:
        return said.pop()
    return levels[-1].number(key, low=low, high=high) if default is None else default


def _delta_net(keys: Keys, types: tuple[LayerType, ...]) -> DeltaNet | None:
    if LayerType.LINEAR not in types:
        return None
    net = DeltaNet(
        keys.integer("linear_num_key_heads"),
        keys.integer("linear_num_value_heads"),
        keys.integer("linear_key_head_dim"),
        keys.integer("linear_value_head_dim"),
        keys.integer("linear_conv_kernel_dim", high=64),
    )
    if net.value_heads % net.key_heads:
        raise CheckpointError(keys.name("linear_num_value_heads"), "must be a multiple of linear_num_key_heads")
    keys.one_of("output_gate_type", ["swish"], "swish")
    return net


def parse_target(content: dict[str, Any], where: str = "config.json") -> TargetConfig:
    """Turn the content of a target's config.json into a TargetConfig; CheckpointError names the offending key."""
    keys = Keys(content, where)
    model_type = keys.one_of("model_type", ["llama", "qwen3", "qwen3_5_text", "qwen3_5"])
    prefix = "model."
    if model_type == "qwen3_5":  # the multimodal wrapper: its text part decides, its top level must not contradict
        inner = keys.inner("text_config")
        for key in ("tie_word_embeddings", "eos_token_id"):
            outer = keys.take(key, None)
            if outer is not None and outer != inner.take(key, False if key == "tie_word_embeddings" else None):
                raise CheckpointError(keys.name(key), f"contradicts {inner.name(key)}")
        keys.finish(INERT | INERT_MULTIMODAL)
        keys, prefix = inner, "model.language_model."
        model_type = keys.one_of("model_type", ["qwen3_5_text"])
    hybrid = model_type == "qwen3_5_text"
    count = keys.integer("num_hidden_layers", high=4096)
    default = ["full_attention"] * count
    if hybrid and not keys.has("layer_types"):
        interval = keys.integer("full_attention_interval")
        default = ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(count)]
    keys.take("full_attention_interval", None)
    types = layer_types(keys, count, default, KINDS[model_type])
    heads = keys.integer("num_attention_heads")
    kv_heads = keys.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise CheckpointError(keys.name("num_key_value_heads"), f"must divide num_attention_heads, got {kv_heads}")
    hidden = keys.integer("hidden_size")
    head_dim = keys.integer("head_dim", hidden // heads)
    theta, fraction = rope(keys, None if hybrid else 1.0)
    if fraction != 1.0 and not hybrid:
        raise CheckpointError(keys.name("partial_rotary_factor"), f"a {model_type} target turns whole heads")
    rotary = int(head_dim * fraction)
    if rotary % 2:
        raise CheckpointError(keys.name("partial_rotary_factor"), f"turns an odd number of dimensions, {rotary}")
    keys.one_of("hidden_act", ["silu"])
    vocab = keys.integer("vocab_size")
    config = TargetConfig(
        model_type=model_type,
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=keys.integer("intermediate_size"),
        layer_types=types,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary,
        rope_theta=theta,
        eps=keys.number("rms_norm_eps", low=1e-12, high=1.0),
        tied=keys.flag("tie_word_embeddings", False),
        attention_bias=keys.flag("attention_bias", False),
        mlp_bias=keys.flag("mlp_bias", False) if model_type == "llama" else False,
        qk_norm=model_type != "llama",
        norm_plus_one=hybrid,
        output_gate=keys.flag("attn_output_gate", True) if hybrid else False,
        window=window(keys, types),
        delta_net=_delta_net(keys, types),
        max_context=keys.integer("max_position_embeddings"),
        eos_ids=keys.integers("eos_token_id", (), high=vocab - 1),
        prefix=prefix,
    )
    keys.finish(INERT)
    return config

"""Which tensors a checkpoint must hold, with their shapes and dtypes: the other half of strict accounting."""

from dataclasses import dataclass

from .config import LayerType, TargetConfig
from .draft import DraftConfig
from .errors import CheckpointError
from .quantisation import Format, Quantisation

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_SCALE = frozenset({"F32", "BF16"})  # of an FP8 weight: some writers keep scales in the dtype of the model
_F32, _F8, _U8 = frozenset({"F32"}), frozenset({"F8_E4M3"}), frozenset({"U8"})
SCALAR = ((), (1,))
BLOCK = 16  # inputs that share a scale in NVFP4


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor of the schema: the shapes and safetensors dtypes it may have."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: frozenset[str] = FLOATS
    optional: bool = False


Schema = dict[str, Expected]


def _one(*shape: int) -> Expected:
    return Expected((shape,))


def linear(name: str, rows: int, columns: int, kind: Format, *, bias: bool = False) -> Schema:
    """The tensors of a linear module [rows, columns] = [out, in] in one storage format."""
    schema: Schema = {f"{name}.bias": _one(rows)} if bias else {}
    if kind is Format.DENSE:
        schema[f"{name}.weight"] = _one(rows, columns)
    elif kind is Format.FP8:
        schema[f"{name}.weight"] = Expected(((rows, columns),), _F8)
        schema[f"{name}.weight_scale"] = Expected(SCALAR, _SCALE)
        schema[f"{name}.input_scale"] = Expected(SCALAR, _SCALE, optional=True)
    else:
        whole_blocks(name, columns)
        packed = kind is Format.NVFP4_PACKED
        second, activation = (
            ("weight_global_scale", "input_global_scale") if packed else ("weight_scale_2", "input_scale")
        )
        schema[f"{name}.weight_packed" if packed else f"{name}.weight"] = Expected(((rows, columns // 2),), _U8)
        schema[f"{name}.weight_scale"] = Expected(((rows, columns // BLOCK),), _F8)
        schema[f"{name}.{second}"] = Expected(SCALAR, _F32)
        schema[f"{name}.{activation}"] = Expected(SCALAR, _F32, optional=True)
    return schema


def whole_blocks(module: str, inputs: int) -> None:
    """Raise CheckpointError, naming the module, unless its inputs come in whole blocks of NVFP4."""
    if inputs % BLOCK:
        raise CheckpointError(f"{module}.weight", f"has {inputs} inputs, and NVFP4 takes multiples of {BLOCK}")


def target_linears(config: TargetConfig) -> dict[str, tuple[int, int, bool]]:
    """Every linear module of a target: name -> (out, in, has a bias)."""
    linears: dict[str, tuple[int, int, bool]] = {}
    hidden, wide, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    for i, kind in enumerate(config.layer_types):
        layer = f"{config.prefix}layers.{i}"
        for name in ("gate_proj", "up_proj"):
            linears[f"{layer}.mlp.{name}"] = (wide, hidden, config.mlp_bias)
        linears[f"{layer}.mlp.down_proj"] = (hidden, wide, config.mlp_bias)
        if kind is LayerType.LINEAR:
            net = config.delta_net
            assert net is not None
            values = net.value_heads * net.value_dim
            mixer = f"{layer}.linear_attn"
            linears[f"{mixer}.in_proj_qkv"] = (net.channels, hidden, False)
            linears[f"{mixer}.in_proj_z"] = (values, hidden, False)
            linears[f"{mixer}.in_proj_b"] = linears[f"{mixer}.in_proj_a"] = (net.value_heads, hidden, False)
            linears[f"{mixer}.out_proj"] = (hidden, values, False)
        else:
            queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
            gated = 2 if config.output_gate else 1
            linears[f"{layer}.self_attn.q_proj"] = (gated * queries, hidden, bias)
            linears[f"{layer}.self_attn.k_proj"] = linears[f"{layer}.self_attn.v_proj"] = (keys, hidden, bias)
            linears[f"{layer}.self_attn.o_proj"] = (hidden, queries, bias)
    if not config.tied:
        linears["lm_head"] = (config.vocab_size, hidden, False)
    return linears


def target_schema(config: TargetConfig, quantisation: Quantisation) -> Schema:
    """Every tensor of a target checkpoint."""
    hidden, schema = config.hidden_size, Schema()
    schema[f"{config.prefix}embed_tokens.weight"] = _one(config.vocab_size, hidden)
    schema[f"{config.prefix}norm.weight"] = _one(hidden)
    if config.tied:  # some writers store the shared matrix twice; the embedding is the one that counts
        schema["lm_head.weight"] = Expected(((config.vocab_size, hidden),), optional=True)
    for name, (rows, columns, bias) in target_linears(config).items():
        schema |= linear(name, rows, columns, quantisation.format_of(name), bias=bias)
    for i, kind in enumerate(config.layer_types):
        layer = f"{config.prefix}layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            schema[f"{layer}.{norm}.weight"] = _one(hidden)
        if kind is LayerType.LINEAR:
            net, mixer = config.delta_net, f"{layer}.linear_attn"
            assert net is not None
            schema[f"{mixer}.conv1d.weight"] = _one(net.channels, 1, net.kernel)
            schema[f"{mixer}.A_log"] = schema[f"{mixer}.dt_bias"] = _one(net.value_heads)
            schema[f"{mixer}.norm.weight"] = _one(net.value_dim)
            continue
        if config.qk_norm:
            for norm in ("q_norm", "k_norm"):
                schema[f"{layer}.self_attn.{norm}.weight"] = _one(config.head_dim)
        if quantisation.kv_scales:
            for side in ("k", "v"):
                schema[f"{layer}.self_attn.{side}_proj.{side}_scale"] = Expected(SCALAR, _F32, optional=True)
    return schema


def draft_linears(config: DraftConfig) -> dict[str, tuple[int, int, bool]]:
    """Every linear module of a drafter: name -> (out, in, has a bias)."""
    hidden, wide, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = {"fc": (hidden, len(config.target_layer_ids) * hidden, False)}
    for i in range(config.layers):
        layer = f"layers.{i}"
        linears[f"{layer}.self_attn.q_proj"] = (queries, hidden, bias)
        linears[f"{layer}.self_attn.k_proj"] = linears[f"{layer}.self_attn.v_proj"] = (keys, hidden, bias)
        linears[f"{layer}.self_attn.o_proj"] = (hidden, queries, bias)
        linears[f"{layer}.mlp.gate_proj"] = linears[f"{layer}.mlp.up_proj"] = (wide, hidden, False)
        linears[f"{layer}.mlp.down_proj"] = (hidden, wide, False)
        if config.convolution is not None:
            rows = 2 * config.convolution.kernel * (hidden // config.convolution.group)
            for conv in ("attention_conv", "mlp_conv"):
                linears[f"{layer}.{conv}.kernel_projection"] = (rows, hidden, False)
    if config.selector is not None:
        linears["candidate_selector.hidden_projection"] = (config.selector.rank, hidden, False)
    return linears


def draft_schema(config: DraftConfig, quantisation: Quantisation) -> Schema:
    """Every tensor of a drafter checkpoint, codebooks under their published names (no `.weight` suffix)."""
    hidden, schema = config.hidden_size, Schema()
    schema["hidden_norm.weight"] = schema["norm.weight"] = _one(hidden)
    for name, (rows, columns, bias) in draft_linears(config).items():
        schema |= linear(name, rows, columns, quantisation.format_of(name), bias=bias)
    for i in range(config.layers):
        layer = f"layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            schema[f"{layer}.{norm}.weight"] = _one(hidden)
        for norm in ("q_norm", "k_norm"):
            schema[f"{layer}.self_attn.{norm}.weight"] = _one(config.head_dim)
        if config.convolution is not None:
            for conv in ("attention_conv", "mlp_conv"):
                schema[f"{layer}.{conv}.base_kernel"] = _one(2, config.convolution.kernel, hidden)
    if config.selector is not None:
        for book in ("predecessor_codebook", "successor_codebook"):
            schema[f"candidate_selector.{book}"] = _one(config.vocab_size, config.selector.rank)
    if config.markov_rank is not None:
        for factor in ("markov_w1", "markov_w2"):
            schema[f"markov_head.{factor}.weight"] = _one(config.vocab_size, config.markov_rank)
    return schema


# Published checkpoints store the codebooks bare; writers that keep an nn.Embedding add a suffix.
DRAFT_ALIASES = {
    f"candidate_selector.{book}.weight": f"candidate_selector.{book}"
    for book in ("predecessor_codebook", "successor_codebook")
}


def target_aliases(config: TargetConfig) -> dict[str, str]:
    """Names under which other writers store FP8 KV scales, one per attention layer and side."""
    return {
        f"{layer}.{side}_scale": f"{layer}.{side}_proj.{side}_scale"
        for layer in (f"{config.prefix}layers.{i}.self_attn" for i in range(config.layers))
        for side in ("k", "v")
    }

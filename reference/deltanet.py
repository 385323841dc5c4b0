"""The gated delta-net of Qwen3.5: a causal depthwise convolution and a recurrence, one token at a time."""

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from specqual.contract.config import TargetConfig

from .norm import rms_norm, wide
from .weights import Layer, project


def convolve(rows: Tensor, taps: Tensor) -> Tensor:
    """Causal depthwise convolution of rows [T, channels] with taps [channels, kernel]; the last tap is the current row.

    Rows before the first are zero.
    """
    kernel = taps.shape[-1]
    padded = torch.cat([rows.new_zeros(kernel - 1, rows.shape[1]), rows])
    return torch.stack([padded[tap : tap + len(rows)] * taps[:, tap] for tap in range(kernel)]).sum(0)


def recur(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Run the delta rule from an empty state over T tokens: outputs [T, heads, value_dim] and the last state.

    query, key [T, heads, key_dim]; value [T, heads, value_dim]; decay = exp(g) and beta [T, heads].
    state [heads, key_dim, value_dim] forgets by decay, then writes beta * (value - what key reads) at key.
    """
    heads, key_dim, value_dim = query.shape[1], query.shape[2], value.shape[2]
    state = value.new_zeros(heads, key_dim, value_dim)
    outputs = []
    for token in range(len(query)):
        state = state * decay[token, :, None, None]
        read = (key[token, :, None] @ state).squeeze(1)  # [heads, value_dim]
        write = beta[token, :, None] * (value[token] - read)
        state = state + key[token, :, :, None] * write[:, None]
        outputs.append((query[token, :, None] @ state).squeeze(1))
    return torch.stack(outputs), state


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def delta_net(x: Tensor, layer: Layer, config: TargetConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """A delta-net layer over normed rows x [T, H]: its output [T, H] and what the next token needs.

    `state` [value_heads, key_dim, value_dim] (at least float32) and `conv` [kernel - 1, channels], the last rows before
    the convolution, oldest first, zero where there is no history.
    """
    net, rows = config.delta_net, x.shape[0]
    assert net is not None
    mixed = project(x, layer.linears["linear_attn.in_proj_qkv"])  # [T, channels]
    z = project(x, layer.linears["linear_attn.in_proj_z"]).reshape(rows, net.value_heads, net.value_dim)
    b = wide(project(x, layer.linears["linear_attn.in_proj_b"]))  # [T, value_heads]
    a = wide(project(x, layer.linears["linear_attn.in_proj_a"]))
    convolved = wide(silu(convolve(mixed, layer.tensors["linear_attn.conv1d.weight"].squeeze(1))))
    keys = net.key_heads * net.key_dim
    query, key, value = torch.tensor_split(convolved, [keys, 2 * keys], dim=-1)
    query = _unit(query.reshape(rows, net.key_heads, net.key_dim)) * net.key_dim**-0.5
    key = _unit(key.reshape(rows, net.key_heads, net.key_dim))
    group = net.value_heads // net.key_heads  # value head h uses key head h // group
    query, key = query.repeat_interleave(group, dim=1), key.repeat_interleave(group, dim=1)
    rate = wide(layer.tensors["linear_attn.A_log"]).exp()
    g = -rate * softplus(a + wide(layer.tensors["linear_attn.dt_bias"]))  # log of the decay, <= 0
    value = value.reshape(rows, net.value_heads, net.value_dim)
    out, state = recur(query, key, value, g.exp(), b.sigmoid())
    out = rms_norm(out, layer.tensors["linear_attn.norm.weight"], config.eps) * silu(wide(z))
    y = project(out.flatten(1).to(x.dtype), layer.linears["linear_attn.out_proj"])
    history = torch.cat([mixed.new_zeros(net.kernel - 1, net.channels), mixed])
    return y, {"state": state, "conv": history[rows:]}

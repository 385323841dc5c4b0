"""Everything between a delta-net's projection and its recurrence, in one launch: the causal convolution with its
history, silu, the norm of queries and keys, the gates, and what the log keeps of it.

A program owns one head of one sample, so that it alone reads and writes the history of its channels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import silu, softplus

from .audit import Case
from .recurrence import Consumed
from .spans import Ledger, Log, Spans

ROWS = 16  # worked on together
WARPS = 4
EPS = 1e-6  # added to the squared length of a query or key


@triton.jit
def convolution_kernel(
    slots_ptr,
    boundary_ptr,
    certain_ptr,
    first_ptr,
    start_ptr,
    mixed_ptr,
    mixed_stride,
    b_ptr,
    b_stride,
    a_ptr,
    a_stride,
    taps_ptr,
    bias_ptr,
    rate_ptr,
    query_ptr,
    key_ptr,
    value_ptr,
    gates_ptr,
    log_mixed_ptr,
    log_key_ptr,
    log_value_ptr,
    log_gates_ptr,
    EPS: tl.constexpr,
    SCALE: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    TAPS: tl.constexpr,
    HISTORY: tl.constexpr,
    RING: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    HELD: tl.constexpr,
):
    sample, head = tl.program_id(1), tl.program_id(0)
    first = tl.load(first_ptr + sample)
    count = tl.load(first_ptr + sample + 1) - first
    if count > 0:
        slot = tl.load(slots_ptr + sample).to(tl.int64)
        start, certain = tl.load(start_ptr + sample), tl.load(certain_ptr + sample)
        if head < KEY_HEADS:
            head_kernel(
                slot, first, count, start, certain, head * KEY_DIM, head, mixed_ptr, mixed_stride, taps_ptr, query_ptr,
                query_ptr, log_mixed_ptr, EPS, SCALE, True, False, KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM,
                KEY_HEADS, KEY_DIM, TAPS, HISTORY, RING, ROWS, HELD,
            )  # fmt: skip
        elif head < 2 * KEY_HEADS:
            head_kernel(
                slot, first, count, start, certain, head * KEY_DIM, head - KEY_HEADS, mixed_ptr, mixed_stride, taps_ptr,
                key_ptr, log_key_ptr, log_mixed_ptr, EPS, 1.0, True, True, KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM,
                KEY_HEADS, KEY_DIM, TAPS, HISTORY, RING, ROWS, HELD,
            )  # fmt: skip
        elif head < 2 * KEY_HEADS + VALUE_HEADS:
            place = head - 2 * KEY_HEADS
            head_kernel(
                slot, first, count, start, certain, 2 * KEY_HEADS * KEY_DIM + place * VALUE_DIM, place, mixed_ptr,
                mixed_stride, taps_ptr, value_ptr, log_value_ptr, log_mixed_ptr, EPS, 1.0, False, True, KEY_HEADS,
                VALUE_HEADS, KEY_DIM, VALUE_DIM, VALUE_HEADS, VALUE_DIM, TAPS, HISTORY, RING, ROWS, HELD,
            )  # fmt: skip
        else:
            lanes = tl.arange(0, LANES)
            bias = tl.load(bias_ptr + lanes, mask=lanes < VALUE_HEADS, other=0.0)
            rate = tl.load(rate_ptr + lanes, mask=lanes < VALUE_HEADS, other=0.0)
            for begin in range(0, count, ROWS):
                rows = begin + tl.arange(0, ROWS)
                real = (rows < count)[:, None] & (lanes < VALUE_HEADS)[None, :]
                at = (first + rows).to(tl.int64)[:, None]
                a = tl.load(a_ptr + at * a_stride + lanes[None, :], mask=real, other=0.0).to(tl.float32) + bias[None, :]
                b = tl.load(b_ptr + at * b_stride + lanes[None, :], mask=real, other=0.0).to(tl.float32)
                decay, beta = tl.exp(softplus_of(a) * rate[None, :]), tl.sigmoid(b)
                out = at * (2 * VALUE_HEADS) + lanes[None, :]
                tl.store(gates_ptr + out, decay, mask=real)
                tl.store(gates_ptr + out + VALUE_HEADS, beta, mask=real)
                logged = real & (rows >= certain)[:, None]
                out = (slot * RING + (start + rows) % RING)[:, None] * (2 * VALUE_HEADS) + lanes[None, :]
                tl.store(log_gates_ptr + out, decay, mask=logged)
                tl.store(log_gates_ptr + out + VALUE_HEADS, beta, mask=logged)


@triton.jit
def softplus_of(x):
    """log(1 + exp(x)), to the last bits also where that is small."""
    small = tl.exp(-tl.abs(x))
    one = 1.0 + small
    tail = tl.where(one == 1.0, small, tl.log(one) * (small / tl.where(one == 1.0, 1.0, one - 1.0)))
    return tl.maximum(x, 0.0) + tail


@triton.jit
def head_kernel(
    slot,
    first,
    count,
    start,
    certain,
    channel,
    place,
    mixed_ptr,
    mixed_stride,
    taps_ptr,
    out_ptr,
    log_ptr,
    log_mixed_ptr,
    EPS: tl.constexpr,
    SCALE: tl.constexpr,
    NORMED: tl.constexpr,
    LOGGED: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    TAPS: tl.constexpr,
    HISTORY: tl.constexpr,
    RING: tl.constexpr,
    ROWS: tl.constexpr,
    HELD: tl.constexpr,
):
    """One head: its channels from `channel` on, as head `place` of an output of HEADS."""
    CHANNELS: tl.constexpr = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM
    dims = tl.arange(0, DIM)
    new = mixed_ptr + first.to(tl.int64) * mixed_stride + channel + dims[None, :]
    old = log_mixed_ptr + slot * (HISTORY * CHANNELS) + channel + dims[None, :]
    for begin in range(0, count, ROWS):
        rows = begin + tl.arange(0, ROWS)
        total = tl.zeros([ROWS, DIM], tl.float32)
        for tap in tl.static_range(TAPS):
            source = rows - (TAPS - 1 - tap)
            fresh = (source >= 0) & (rows < count)
            known = (source < 0) & (start + source >= 0) & (rows < count)
            x = tl.load(new + source.to(tl.int64)[:, None] * mixed_stride, mask=fresh[:, None], other=0.0)
            kept = tl.load(old + ((start + source) % HISTORY)[:, None] * CHANNELS, mask=known[:, None], other=0.0)
            x = tl.where(fresh[:, None], x, kept)
            total += x.to(tl.float32) * tl.load(taps_ptr + tap * CHANNELS + channel + dims)[None, :]
        found = total * tl.sigmoid(total)
        if NORMED:
            found = found * (tl.rsqrt(tl.sum(found * found, 1) + EPS) * SCALE)[:, None]
        said = found.to(out_ptr.dtype.element_ty)
        at = (first + rows).to(tl.int64)[:, None] * HEADS + place
        tl.store(out_ptr + at * DIM + dims[None, :], said, mask=(rows < count)[:, None])
        if LOGGED:
            at = (slot * RING + (start + rows) % RING)[:, None] * HEADS + place
            logged = (rows < count) & (rows >= certain)
            tl.store(log_ptr + at * DIM + dims[None, :], said, mask=logged[:, None])
    tl.debug_barrier()  # all has been read of the history that is now written
    rows = count - 1 - tl.arange(0, HELD)
    last = (rows >= 0) & (tl.arange(0, HELD) < HISTORY)
    x = tl.load(new + rows.to(tl.int64)[:, None] * mixed_stride, mask=last[:, None], other=0.0)
    tl.store(old + ((start + rows) % HISTORY)[:, None] * CHANNELS, x, mask=last[:, None])


def convolution(
    mixed: Tensor,
    b: Tensor,
    a: Tensor,
    taps: Tensor,
    bias: Tensor,
    rate: Tensor,
    spans: Spans,
    ledger: Ledger,
    log: Log,
    out: Consumed | None = None,
) -> Consumed:
    """What the recurrence consumes of rows `mixed` [R, channels], `b` and `a` [R, value_heads], which may be parts of
    wider rows; and the log holds it too, of those tokens that may be rejected.

    `taps` [T, channels], oldest first, `bias` (of a) and `rate` (which is negative) [value_heads] are float32. Beta is
    sigmoid(b), decay exp(rate softplus(a + bias)). Dimensions of heads are powers of two.
    """
    (key_heads, key_dim), (value_heads, value_dim) = log.key.shape[2:], log.value.shape[2:]
    out = consumed(len(mixed), log) if out is None else out
    history = log.mixed.shape[1]
    convolution_kernel[2 * key_heads + value_heads + 1, len(ledger.slots)](
        *ledger,
        *spans,
        mixed,
        mixed.stride(0),
        b,
        b.stride(0),
        a,
        a.stride(0),
        taps,
        bias,
        rate,
        *out,
        *log,
        EPS,
        key_dim**-0.5,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        len(taps),
        history,
        log.key.shape[1],
        ROWS,
        triton.next_power_of_2(value_heads),
        triton.next_power_of_2(history),
        num_warps=WARPS,
        enable_fp_fusion=False,
    )
    return out


def consumed(rows: int, log: Log) -> Consumed:
    """Room for what so many new tokens give the recurrence."""
    key, value, gates = log.key, log.value, log.gates
    sides = (
        torch.empty(rows, *side.shape[2:], dtype=side.dtype, device=side.device) for side in (key, key, value, gates)
    )
    return Consumed(*sides)


def convolution_torch(
    mixed: Tensor,
    b: Tensor,
    a: Tensor,
    taps: Tensor,
    bias: Tensor,
    rate: Tensor,
    spans: Spans,
    ledger: Ledger,
    log: Log,
    out: Consumed | None = None,
) -> Consumed:
    """The same in the dtype of `taps`, one sample after the other."""
    exact, count, history = taps.dtype, len(taps), log.mixed.shape[1]
    (key_heads, key_dim), (value_heads, value_dim) = log.key.shape[2:], log.value.shape[2:]
    out = consumed(len(mixed), log) if out is None else out
    firsts, samples = spans.first.tolist(), zip(*(side.tolist() for side in (*ledger, spans.start)), strict=True)
    for first, end, (slot, _, certain, start) in zip(firsts, firsts[1:], samples, strict=False):
        if first == end:
            continue
        positions = torch.arange(start, start + end - first, device=mixed.device)
        new = mixed[first:end].to(exact)
        before = torch.arange(start - count + 1, start, device=mixed.device)
        old = log.mixed[slot, before % history].to(exact).masked_fill((before < 0)[:, None], 0.0)
        rows = torch.cat([old, new])
        found = silu(torch.stack([rows[tap : tap + len(new)] * taps[tap] for tap in range(count)]).sum(0))
        query, key, value = found.split([key_heads * key_dim, key_heads * key_dim, value_heads * value_dim], dim=1)
        query, key = (side.view(len(new), key_heads, key_dim) for side in (query, key))
        query, key = (side * (side.square().sum(-1, keepdim=True) + EPS).rsqrt() for side in (query, key))
        decay = (rate * softplus(a[first:end].to(exact) + bias)).exp()
        gates = torch.stack([decay, b[first:end].to(exact).sigmoid()], dim=1)
        sides = (query * key_dim**-0.5, key, value.view(len(new), value_heads, value_dim), gates)
        for place, side in zip(out, sides, strict=True):
            place[first:end] = side.to(place.dtype)
        ring = positions[certain:] % log.key.shape[1]
        for kept, place in zip(log[1:], out[1:], strict=True):
            kept[slot, ring] = place[first + certain : end]
        last = positions[-history:] % history
        log.mixed[slot, last] = mixed[first:end][-history:].to(log.mixed.dtype)
    return out


def case(kind: str, key_heads: int, value_heads: int, key_dim: int, value_dim: int, history: int, ring: int) -> Case:
    """One kernel as it is launched, for rows and logs of a kind such as bf16."""
    counts = "slots boundary certain first start".split()
    exact, rounded = "taps bias rate gates log_gates".split(), "mixed b a query key value log_mixed log_key log_value"
    signature = {f"{name}_ptr": "*i32:16" for name in counts} | {f"{name}_ptr": "*fp32:16" for name in exact}
    signature |= {f"{name}_ptr": f"*{kind}:16" for name in rounded.split()}
    signature |= dict.fromkeys(("mixed_stride", "b_stride", "a_stride"), "i32:16")
    constants = {
        "EPS": EPS,
        "SCALE": key_dim**-0.5,
        "KEY_HEADS": key_heads,
        "VALUE_HEADS": value_heads,
        "KEY_DIM": key_dim,
        "VALUE_DIM": value_dim,
        "TAPS": 4,
        "HISTORY": history,
        "RING": ring,
        "ROWS": ROWS,
        "LANES": triton.next_power_of_2(value_heads),
        "HELD": triton.next_power_of_2(history),
    }
    name = f"convolution {kind} {key_heads}/{value_heads} {key_dim}x{value_dim}"
    return Case(name, convolution_kernel, signature, constants, WARPS, fusion=False)


AUDIT = tuple(case(kind, 16, 48, 128, 128, 11, 16) for kind in ("bf16", "fp32"))

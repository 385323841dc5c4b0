"""The gated delta-net over the spans of a pass: one loop over the accepted log and the new tokens of each sample.

A program owns a few value dimensions of one head of one sample. It reads their state once, keeps it in registers, and
writes it once, behind the tokens that stay. Nothing is contracted but what says so, sums over the key dimensions have
one order, and log and span go through the same instructions: where a span begins or ends changes no bit.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .audit import Case
from .spans import Ledger, Log, Spans


class Consumed(NamedTuple):
    """What the recurrence consumes of R new tokens, rounded to what the log keeps.

    Value head h reads key head h // (value_heads / key_heads).
    """

    query: Tensor  # [R, key_heads, key_dim], of length key_dim^-0.5
    key: Tensor  # [R, key_heads, key_dim], of length one
    value: Tensor  # [R, value_heads, value_dim]
    gates: Tensor  # [R, 2, value_heads] float32: decay, beta


@triton.jit
def recurrence_kernel(
    state_ptr,
    slots_ptr,
    boundary_ptr,
    certain_ptr,
    first_ptr,
    start_ptr,
    query_ptr,
    key_ptr,
    value_ptr,
    gates_ptr,
    log_key_ptr,
    log_value_ptr,
    log_gates_ptr,
    out_ptr,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    RING: tl.constexpr,
    SLICE: tl.constexpr,
):
    sample, head = tl.program_id(2), tl.program_id(1)
    lanes = tl.program_id(0) * SLICE + tl.arange(0, SLICE)
    dims = tl.arange(0, KEY_DIM)
    first, end = tl.load(first_ptr + sample), tl.load(first_ptr + sample + 1)
    if end > first:
        slot = tl.load(slots_ptr + sample).to(tl.int64)
        boundary = tl.load(boundary_ptr + sample)
        kept = tl.load(start_ptr + sample) - boundary
        stop = kept + tl.load(certain_ptr + sample)
        total = kept + end - first
        places = state_ptr + (slot * VALUE_HEADS + head) * (KEY_DIM * VALUE_DIM) + dims[:, None] * VALUE_DIM + lanes
        state = tl.load(places, mask=(boundary > 0) & (lanes[None, :] >= 0), other=0.0)
        key_head = head // (VALUE_HEADS // KEY_HEADS)

        key, value, decay, beta = token_at(
            0, kept, boundary, slot, first, head, key_head, lanes, dims, key_ptr, value_ptr, gates_ptr, log_key_ptr,
            log_value_ptr, log_gates_ptr, KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, RING,
        )  # fmt: skip
        for token in range(total):
            if (token == stop) & (stop > 0):
                tl.store(places, state)
            after = tl.minimum(token + 1, total - 1)  # its loads are under way while this token is worked on
            next_key, next_value, next_decay, next_beta = token_at(
                after, kept, boundary, slot, first, head, key_head, lanes, dims, key_ptr, value_ptr, gates_ptr,
                log_key_ptr, log_value_ptr, log_gates_ptr, KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, RING,
            )  # fmt: skip
            row = (first + token - kept).to(tl.int64)
            query = tl.load(
                query_ptr + (row * KEY_HEADS + key_head) * KEY_DIM + dims, mask=(token >= kept) & (dims >= 0)
            )
            state = state * decay
            written = beta * (value - tl.sum(state * key[:, None], 0))
            state = tl.fma(*tl.broadcast(key[:, None], written[None, :]), state)
            if token >= kept:
                said = tl.sum(state * query.to(tl.float32)[:, None], 0)
                tl.store(out_ptr + (row * VALUE_HEADS + head) * VALUE_DIM + lanes, said)
            key, value, decay, beta = next_key, next_value, next_decay, next_beta
        if (stop == total) & (stop > 0):
            tl.store(places, state)


@triton.jit
def token_at(
    token,
    kept,
    boundary,
    slot,
    first,
    head,
    key_head,
    lanes,
    dims,
    key_ptr,
    value_ptr,
    gates_ptr,
    log_key_ptr,
    log_value_ptr,
    log_gates_ptr,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    RING: tl.constexpr,
):
    """Key, value, decay and beta of a token, the first `kept` of which are in the log."""
    if token < kept:
        at = slot * RING + (boundary + token) % RING
        keys, values, gates = log_key_ptr, log_value_ptr, log_gates_ptr
    else:
        at = (first + token - kept).to(tl.int64)
        keys, values, gates = key_ptr, value_ptr, gates_ptr
    key = tl.load(keys + (at * KEY_HEADS + key_head) * KEY_DIM + dims).to(tl.float32)
    value = tl.load(values + (at * VALUE_HEADS + head) * VALUE_DIM + lanes).to(tl.float32)
    decay = tl.load(gates + at * (2 * VALUE_HEADS) + head)
    beta = tl.load(gates + at * (2 * VALUE_HEADS) + VALUE_HEADS + head)
    return key, value, decay, beta


SLICES = {(128, 128): (16, 1)}
"""Value dimensions of a program, and its warps, by (key_dim, value_dim)."""


def tile(key_dim: int, value_dim: int) -> tuple[int, int]:
    return SLICES.get((key_dim, value_dim), (min(value_dim, 16), 1))


def recurrence(
    state: Tensor, spans: Spans, ledger: Ledger, log: Log, new: Consumed, out: Tensor | None = None
) -> Tensor:
    """Run over all spans, and move the states of their slots to the new boundaries.

    `state` [slots, value_heads, key_dim, value_dim] float32 is written in place where a boundary moves. Dimensions are
    powers of two. Returns what the new tokens read, [R, value_heads, value_dim] float32.
    """
    _, value_heads, key_dim, value_dim = state.shape
    rows, key_heads, _ = new.key.shape
    out = torch.empty(rows, value_heads, value_dim, dtype=torch.float32, device=state.device) if out is None else out
    size, warps = tile(key_dim, value_dim)
    recurrence_kernel[value_dim // size, value_heads, len(ledger.slots)](
        state,
        *ledger,
        *spans,
        *new,
        log.key,
        log.value,
        log.gates,
        out,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        log.key.shape[1],
        size,
        num_warps=warps,
        enable_fp_fusion=False,
    )
    return out


def recurrence_torch(
    state: Tensor, spans: Spans, ledger: Ledger, log: Log, new: Consumed, out: Tensor | None = None
) -> Tensor:
    """The same in the dtype of `state`, one sample and token after the other."""
    _, value_heads, _, value_dim = state.shape
    group, ring = value_heads // new.key.shape[1], log.key.shape[1]
    out = state.new_empty(len(new.key), value_heads, value_dim) if out is None else out
    firsts, samples = spans.first.tolist(), zip(*(side.tolist() for side in (*ledger, spans.start)), strict=True)
    for first, end, (slot, boundary, certain, start) in zip(firsts, firsts[1:], samples, strict=False):
        if first == end:
            continue
        found = state[slot].clone() if boundary else torch.zeros_like(state[slot])
        stop = start + certain
        for position in range(boundary, start + end - first):
            if position == stop and position > 0:
                state[slot] = found
            row = first + position - start
            at, (keys, values, gates) = (
                ((slot, position % ring), log[1:]) if position < start else ((row,), (new.key, new.value, new.gates))
            )
            key, value = keys[at].to(state.dtype).repeat_interleave(group, 0), values[at].to(state.dtype)
            decay, beta = gates[at].to(state.dtype)[..., None]
            found = found * decay[..., None]
            written = beta * (value - (found * key[..., None]).sum(1))
            found = found + key[..., None] * written[:, None]
            if position >= start:
                query = new.query[row].to(state.dtype).repeat_interleave(group, 0)
                out[row] = (found * query[..., None]).sum(1)
        if stop == start + end - first:
            state[slot] = found
    return out


POINTERS = "slots boundary certain first start".split()


def case(kind: str, key_heads: int, value_heads: int, key_dim: int, value_dim: int, ring: int) -> Case:
    """One kernel as it is launched, for keys and values of a kind such as bf16."""
    size, warps = tile(key_dim, value_dim)
    rounded = dict.fromkeys(("query_ptr", "key_ptr", "value_ptr", "log_key_ptr", "log_value_ptr"), f"*{kind}:16")
    exact = dict.fromkeys(("state_ptr", "gates_ptr", "log_gates_ptr", "out_ptr"), "*fp32:16")
    sizes = {"KEY_HEADS": key_heads, "VALUE_HEADS": value_heads, "KEY_DIM": key_dim, "VALUE_DIM": value_dim}
    return Case(
        f"recurrence {kind} {key_heads}/{value_heads} {key_dim}x{value_dim}",
        recurrence_kernel,
        dict.fromkeys((f"{name}_ptr" for name in POINTERS), "*i32:16") | rounded | exact,
        sizes | {"RING": ring, "SLICE": size},
        warps,
        fusion=False,
    )


AUDIT = tuple(case(kind, 16, 48, 128, 128, 16) for kind in ("bf16", "fp32"))

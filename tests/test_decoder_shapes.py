"""What the decoder's bits rest on: a row, or a matrix, of a call of fixed shape does not see the others in the call."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from specqual import fixtures
from specqual.contract import Method, SeedContract
from specqual.contract.checkpoint import open_draft, open_target
from specqual.decoder.arithmetic import Linear, linear
from specqual.decoder.attention import KEYS, QUERIES, Part, attend, attend_sdpa
from specqual.decoder.deltanet import Inputs, advance, steps_of
from specqual.decoder.tile import TILE

from .engines import UNEQUAL, alone, engine, said

CHECKPOINTS = (
    "nano/dense",
    "nano/hybrid",
    "nano/window",
    "nano/llama",
    "nano/hybrid-nvfp4",
    "small/dense",
    "small/hybrid",
)
DTYPES = (torch.float32, torch.float64)
MOST = 17  # samples in a batch
CHANCE = torch.Generator().manual_seed(0)


def normal(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=CHANCE)


def products() -> Iterator[tuple[int, int]]:
    """Inputs and outputs of all fused modules of the checkpoints."""
    for name in CHECKPOINTS:
        config = open_target(fixtures.path(name)).config
        hidden, wide, net = config.hidden_size, config.intermediate_size, config.delta_net
        heads = (1 + config.output_gate) * config.heads + 2 * config.kv_heads
        yield from ((hidden, heads * config.head_dim), (config.heads * config.head_dim, hidden))
        yield from ((hidden, 2 * wide), (wide, hidden), (hidden, config.vocab_size))
        if net is not None:
            values = net.value_heads * net.value_dim
            yield from ((hidden, net.channels + values + 2 * net.value_heads), (values, hidden))


def heads() -> Iterator[tuple[int, int, int]]:
    """Heads, key heads and their size in all targets and drafters."""
    for name in CHECKPOINTS:
        config = open_target(fixtures.path(name)).config
        yield config.heads, config.kv_heads, config.head_dim
        if (path := fixtures.path(name).with_name(f"{name.partition('/')[2]}-dflash2")).exists():
            drafter = open_draft(path, config).config
            yield drafter.heads, drafter.kv_heads, drafter.head_dim


def batches(run: Callable[[int, int], tuple[Tensor, ...]]) -> None:
    """Compare what comes of samples [first, last) with what comes of each alone."""
    single = [torch.cat(parts) for parts in zip(*(run(i, i + 1) for i in range(MOST)), strict=True)]
    for count in range(1, MOST + 1):
        for first in range(0, MOST + 1 - count, 3):
            found = run(first, first + count)
            assert all(mine.equal(one[first : first + count]) for mine, one in zip(found, single, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs, outputs", sorted(set(products())))
def test_a_row_of_a_tile_does_not_see_its_place_or_its_neighbours(
    inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    module = Linear(normal(inputs, outputs, dtype=dtype))
    rows = normal(TILE, inputs, dtype=dtype)
    expected = linear(rows, module)
    for place in range(TILE):
        assert linear(rows.roll(place, 0), module).roll(-place, 0).equal(expected)
        lone = torch.zeros_like(rows)
        lone[place] = rows[0]
        assert linear(lone, module)[place].equal(expected[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads, kv_heads, size", sorted(set(heads())))
def test_attention_does_not_see_batch_place_or_pieces_that_are_hidden(
    heads: int, kv_heads: int, size: int, dtype: torch.dtype
) -> None:
    pieces, shown = 9, 6
    query = normal(MOST, QUERIES, heads, size, dtype=dtype)
    key, value = (normal(MOST, pieces, kv_heads, KEYS, size, dtype=dtype) for _ in range(2))
    mask = torch.zeros(MOST, pieces, 1, 1, QUERIES, KEYS, dtype=dtype)
    mask[:, shown - 1, ..., 40:] = mask[:, shown:] = -torch.inf
    batches(lambda a, b: (attend(query[a:b], [Part(key[a:b], value[a:b], mask[a:b])]),))
    expected = attend(query, [Part(key, value, mask)])
    assert attend(query, [Part(key[:, :shown], value[:, :shown], mask[:, :shown])]).equal(expected)
    cut = zip(key.split(1, 1), value.split(1, 1), mask.split(1, 1), strict=True)
    assert attend(query, [Part(*sides) for sides in cut]).equal(expected)
    for place in range(QUERIES):
        assert attend(query.roll(place, 1), [Part(key, value, mask.roll(place, 4))]).roll(-place, 1).equal(expected)
    assert attend_sdpa(query, [Part(key, value, mask)]).allclose(expected, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads, keys, values", [(4, 8, 16), (4, 32, 64), (48, 128, 128), (3, 7, 9)])
def test_the_recurrence_does_not_see_the_batch(heads: int, keys: int, values: int, dtype: torch.dtype) -> None:
    states = normal(MOST, heads, keys, values, dtype=dtype)
    key, value = normal(1, MOST, heads, keys, dtype=dtype), normal(1, MOST, heads, values, dtype=dtype)
    decay, beta = (torch.rand(1, MOST, heads, dtype=dtype, generator=CHANCE) for _ in range(2))

    def run(first: int, last: int) -> tuple[Tensor, ...]:
        state = states[first:last].flatten(0, 1).clone()
        inputs = Inputs(key, *(side[:, first:last] for side in (key, value, decay, beta)))
        advance(state, *steps_of(inputs)[0])
        read = torch.bmm(key[0, first:last].flatten(0, 1)[:, None], state)
        return state.view(-1, heads, keys, values), read.view(-1, heads, values)

    batches(run)


def test_torchs_attention_and_untiled_rows_claim_less_and_say_the_same() -> None:
    expected = [[token for token, _ in one[0]] for one in alone(engine("hybrid", "dflash2"), UNEQUAL)]
    for options in ({"attention": "sdpa"}, {"invariant": 0}, {"attention": "sdpa", "invariant": "0"}):
        decoder = engine("hybrid", "dflash2", options=options)
        claims = decoder.claims
        assert not claims.greedy.bitwise and claims.seed is SeedContract.NONE
        assert claims.attention == options.get("attention", "own") and claims.method is Method.DFLASH2
        assert [[token for token, _ in one[0]] for one in said(decoder, UNEQUAL)] == expected


def test_threads_cost_the_promise_only_where_products_are_long() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert engine("dense", "dflash2").claims.greedy.bitwise and engine("dense").claims.threads == 2
    finally:
        torch.set_num_threads(threads)
    assert engine("dense").claims.greedy.bitwise


def test_unknown_kinds_of_attention_are_named() -> None:
    with pytest.raises(ValueError, match="attention: must be own or sdpa or flash"):
        engine("dense", options={"attention": "paged"})

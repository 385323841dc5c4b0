"""What the GPU decoder needs of a device's memory for a batch and a context, known before a weight is read.

Weights as their files store them, or the drafter's modules in NVFP4; caches in whole pages; states, logs and buffers by
their shapes, as `peaks` counts them. What CUDA takes, with kernels and for graphs, is an allowance, named as such.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import torch

from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.draft import DraftConfig
from specqual.contract.quantisation import Format, Quantisation
from specqual.contract.requantised import formats_in_nvfp4
from specqual.contract.schema import Schema, draft_linears, draft_schema, target_linears, target_schema

from ..options import Options
from ..pages import PAGE, Stream, owners_of, page_bytes
from ..schedule import LONGEST_CHUNK
from ..streams import draft_streams, target_streams
from .graphs import wide
from .peaks import Row, row_of
from .splits import FLOATS

MIB = 2**20
CONTEXT = 512 * MIB  # of CUDA and of loaded kernels: an allowance
GRAPHS = 4 * MIB  # that CUDA keeps of one captured graph: an allowance
WORKSPACES = 2  # one of the stream that passes are launched on, and one of that on which they are captured
COPIES = 3  # logits of drafts, of those that are chosen in one of several ways, and of those that go to the host
SIZES = {"F8_E4M3": 1, "U8": 1, "F32": 4}  # bytes of a stored number; 2 for what a file may hold as any float
DENSE = Quantisation()


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its drafter, if there is one, as their configurations describe them."""

    target: TargetConfig
    quantisation: Quantisation
    draft: DraftConfig | None = None
    draft_quantisation: Quantisation = DENSE

    @property
    def span(self) -> int:
        """Rows that one request has in a round: the anchor and its drafts."""
        return 1 if self.draft is None else 1 + self.draft.draft_length


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be served: requests at once, tokens of each, the drafter in NVFP4, the target's cache in FP8, and
    chunks that a prefix cache keeps."""

    batch: int
    context: int
    quantise_draft: bool = False
    fp8_cache: bool = False
    prefixes: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a budget."""

    name: str
    bytes: int


def budget(pair: Pair, load: Load) -> list[Item]:
    """Everything that is held at once."""
    found = [*weights(pair, load.quantise_draft), *caches(pair, load), *states(pair, load)]
    found += [*buffers(pair, load), *graphs(pair, load), Item("CUDA, kernels (allowance)", CONTEXT)]
    return [item for item in found if item.bytes]


def total(pair: Pair, load: Load) -> int:
    return sum(item.bytes for item in budget(pair, load))


@lru_cache(maxsize=8)
def weights(pair: Pair, quantise_draft: bool) -> tuple[Item, ...]:
    """By format: linear modules, and all the rest."""
    target = target_schema(pair.target, pair.quantisation)
    found = [*by_format("target", target, set(target_linears(pair.target)), pair.quantisation)]
    if pair.draft is not None:
        linears, kinds = set(draft_linears(pair.draft)), pair.draft_quantisation
        kinds = formats_in_nvfp4(pair.draft, kinds) if quantise_draft else kinds
        found += by_format("drafter", draft_schema(pair.draft, kinds), linears, kinds)
    return tuple(found)


def by_format(owner: str, schema: Schema, linears: set[str], kinds: Quantisation) -> Iterator[Item]:
    sizes = Counter[str]()
    for name, expected in schema.items():
        if expected.optional:
            continue
        module = name.rpartition(".")[0]
        what = "tables and norms"
        if module in linears:
            kind = kinds.format_of(module)
            what = "bfloat16 modules" if kind is Format.DENSE else f"{kind} modules"
        known = {SIZES.get(dtype, 2) for dtype in expected.dtypes}
        sizes[what] += prod(expected.shapes[0]) * (2 if 2 in known else max(known))
    yield from (Item(f"{owner}: {what}", size) for what, size in sorted(sizes.items()))


def caches(pair: Pair, load: Load) -> Iterator[Item]:
    """Keys and values of the target and of the drafter's context, in whole pages at their fullest."""
    end, span = load.context + pair.span, max(LONGEST_CHUNK, pair.span)
    target, draft = streams_of(pair, load)
    streams = (*target, *draft)
    owners, narrow = owners_of(streams), any(stream.scales for stream in target)
    for name, some in ((f"target: {'FP8' if narrow else 'bfloat16'}", target), ("drafter: bfloat16", draft)):
        most = sum(stream.most_pages(end, span) for stream in some if owners[stream.name] == stream.name)
        yield Item(f"{name} keys and values", load.batch * most * page_bytes(streams))
    yield Item("rotary tables", sum(4 * positions * width for positions, width in turns(pair)))


def streams_of(pair: Pair, load: Load) -> tuple[tuple[Stream, ...], tuple[Stream, ...]]:
    """Of the target, and of the drafter."""
    scales = (1.0, 1.0) if load.fp8_cache or pair.quantisation.kv_scales else None
    draft = () if pair.draft is None else draft_streams(pair.draft, torch.bfloat16)
    return target_streams(pair.target, torch.bfloat16, lambda layer: scales), draft


def table_of(pair: Pair, load: Load) -> int:
    """Pages that the table of one stream and request names, at most."""
    return -(-(load.context + pair.span) // PAGE)


def turns(pair: Pair) -> Iterator[tuple[int, int]]:
    """Positions, and the cosines and sines of each, of the target's table and of the drafter's."""
    config, draft = pair.target, pair.draft
    yield config.max_context, config.rotary_dim
    if draft is not None:
        yield config.max_context + draft.block_size, draft.head_dim


def states(pair: Pair, load: Load) -> Iterator[Item]:
    """Of every request, of as many cached prefixes at most, and of every recurrent layer: a float32 state, and the log
    of a span."""
    net, layers = pair.target.delta_net, pair.target.layer_types.count(LayerType.LINEAR)
    if net is None:
        return
    slots = (load.batch + min(load.batch, load.prefixes)) * layers
    yield Item("recurrent states, float32", slots * 4 * net.value_heads * net.key_dim * net.value_dim)
    ring = 2 * pair.span  # places for what may be rejected, twice
    token = 2 * (net.key_heads * net.key_dim + net.value_heads * net.value_dim) + 2 * 4 * net.value_heads
    history = (pair.span + net.kernel - 1) * 2 * net.channels
    yield Item("replay logs", slots * (ring * token + history))


def buffers(pair: Pair, load: Load) -> Iterator[Item]:
    """Of passes as they come: a chunk of prompt for every request, the workspaces, and logits of every judged row."""
    row, rows = row_of(pair.target, pair.draft), load.batch * max(LONGEST_CHUNK, pair.span)
    yield Item("tapped features of a prompt pass", rows * row.features)
    yield Item("activations of a prompt pass", rows * row.activations)
    yield Item("page tables of a pass", 4 * load.batch * table_of(pair, load) * sum(map(len, streams_of(pair, load))))
    yield Item("workspaces for parts", WORKSPACES * 4 * FLOATS)
    yield Item("logits of a round", COPIES * load.batch * pair.span * row.logits)


def graphs(pair: Pair, load: Load) -> Iterator[Item]:
    """What captured graphs hold: all of them share what one round makes, and each keeps what it reads and gives."""
    row, rows, kept = row_of(pair.target, pair.draft), load.batch * pair.span, Options().captured
    yield Item("captured graphs: a round", rows * (row.features + row.activations + row.logits))
    yield Item("captured graphs: features and tables", sum(sorted(shapes(pair, load, row))[-kept:]))
    yield Item("captured graphs: CUDA (allowance)", kept * GRAPHS)


def shapes(pair: Pair, load: Load, row: Row) -> Iterator[int]:
    """What each frame of a pass keeps that may be captured for this load."""
    tables = {wide(pages) for pages in range(1, table_of(pair, load) + 1)}
    streams = sum(map(len, streams_of(pair, load)))
    for samples in sorted({min(1 << power, load.batch) for power in range(load.batch.bit_length() + 1)}):
        for most in {1, pair.span}:
            yield from (samples * (most * row.kept + 4 * pages * streams) for pages in tables)


def longest_context(pair: Pair, load: Load, memory: int, step: int = 256) -> int:
    """The longest context, a multiple of `step` that the target takes, with which a load fits; 0 for none."""
    low, high = 0, pair.target.max_context // step
    while low < high:
        middle = (low + high + 1) // 2
        fits = total(pair, replace(load, context=middle * step)) <= memory
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * step

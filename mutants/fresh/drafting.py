"""Faults of what a drafter is fed with and of what a batch shares (K14, K20 to K26, K29, K31)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specqual.contract import Event, Proposal, Script
from specqual.contract.draft import DraftConfig
from specqual.decoder import attention, block, build, engine, target
from specqual.decoder.arithmetic import Turns
from specqual.decoder.block import BlockDrafter, DraftLayer, _layer_of, load_drafter
from specqual.decoder.engine import Engine
from specqual.decoder.flight import Flight
from specqual.decoder.memory import Memory, Store
from specqual.decoder.plan import offered
from specqual.decoder.propose import Ask, Proposer
from specqual.decoder.row import Row
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer
from specqual.decoder.view import Rows, View, view_of

from ..planting import swapped
from ..rows import swap
from .parts import DENSE, HYBRID, WINDOW, Pair

FORWARD, INGEST, LAND, LAUNCH = Transformer.forward, Engine._ingest, Engine._land, Engine._launch
Grown = Sequence[tuple[Memory, Tensor]]


def landing(self: Engine, change: Callable[[Flight, Tensor], Tensor]) -> list[Event]:
    """Commit with other features for the drafter: those of a flight, and what it would be fed with."""
    flights = {id(flight.span.memory): flight for flight in self._flights}

    def ingest(self: Engine, grown: Grown) -> None:
        fed = [(memory, change(flights[id(memory)], features)) for memory, features in grown if len(features)]
        INGEST(self, fed)

    with swapped({(Engine, "_ingest"): ingest}):
        return LAND(self)


@swap("view_of", target)
def f14a(rows: Rows, firsts: Sequence[int], ends: Sequence[int], window: int | None, *, causal: bool = True) -> View:
    """Lengths stay in the order of the batch while rows are sorted by how many a sample brings: shows on layers without
    a window in a ragged batch whose samples do not come in that order."""
    mixed = list(ends)
    for rank, sample in enumerate(rows.samples):
        mixed[sample] = ends[rank]
    return view_of(rows, firsts, mixed if window is None else ends, window, causal=causal)


@swap("_land", Engine)
def f20a(self: Engine) -> list[Event]:
    """Behind a rejection the drafter is fed from the row behind the anchor on: shows after partial acceptance, as
    context of drafts that were rejected."""

    def change(flight: Flight, features: Tensor) -> Tensor:
        begin = flight.span.certain + 1
        behind = flight.features[begin : begin + len(features)]
        return behind if flight.proposal.tokens and len(behind) == len(features) else features

    return landing(self, change)


@swap("forward", Transformer)
def f20b(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """Verify passes hand over the two tapped layers in the other order than prompt passes: shows as worse drafts from
    the second round with drafts on."""
    found = FORWARD(self, spans, store, rows)
    told = [
        torch.cat(features.chunk(2, dim=1)[::-1], dim=1) if span.judged > 1 else features
        for span, features in zip(spans, found.features, strict=True)
    ]
    return found._replace(features=tuple(told))


@swap("forward", Transformer)
def f20c(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """The last prompt token's features are those of the token before it, for which no logits were wanted: shows as one
    wrong context row of the drafter."""
    found, told = FORWARD(self, spans, store, rows), []
    for span, features in zip(spans, found.features, strict=True):
        last = span.judged == 1 and span.certain > 0
        told.append(torch.cat([features[:-1], features[-2:-1]]) if last else features)
    return found._replace(features=tuple(told))


@swap("view_of", block)
def f21a(rows: Rows, firsts: Sequence[int], ends: Sequence[int], window: int | None, *, causal: bool = True) -> View:
    """All rows of a block see the context that the anchor sees through its window: shows in a drafter's sliding layers
    once the context is as long as the window."""
    if window is None:
        return view_of(rows, firsts, ends, window, causal=causal)
    anchors = torch.tensor([ends[i] for i in rows.samples])[rows.owners]
    return view_of(replace(rows, positions=anchors), firsts, ends, window, causal=causal)


@swap("_land", Engine)
def f22a(self: Engine) -> list[Event]:
    """The last draft of a wholly accepted block leaves the features of the one before it: shows after full acceptance,
    as a context row of the drafter that stands there twice."""

    def change(flight: Flight, features: Tensor) -> Tensor:
        full = flight.proposal.tokens and len(features) == 1 + len(flight.proposal.tokens)
        return torch.cat([features[:-1], features[-2:-1]]) if full else features

    return landing(self, change)


@swap("_layer_of", block)
def f23a(config: DraftConfig, name: str, modules: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> DraftLayer:
    """The base kernel around an MLP is loaded oldest tap first, as checkpoints of other convolutions have it: shows as
    worse drafts of DFlash 2."""
    layer = _layer_of(config, name, modules, tensors)
    return replace(layer, tensors={**layer.tensors, "mlp_base": layer.tensors["mlp_base"].flip(1)})


@swap("offered", engine)
def f24a(
    rows: Sequence[Row],
    asks: Mapping[int, Ask],
    script: Script | None,
    proposer: Proposer | None,
    store: Store,
    vocab_size: int,
) -> list[Proposal]:
    """Drafts are handed to the wrong sample when some row of the batch wants none: shows while one sample is at its
    prompt or its last token and two others draft."""
    found = offered(rows, asks, script, proposer, store, vocab_size)
    places = list(asks)
    if len(places) == len(rows):
        return found
    moved = list(found)
    for place, other in zip(places, places[1:] + places[:1], strict=True):
        fits = len(found[other].tokens) <= asks[place].most
        moved[place] = found[other] if fits else Proposal.certain(())
    return moved


@swap("forward", Transformer)
def f25a(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
    """A padded bucket is taken to end with padding, and its last row is cleared: shows where a pass fills its bucket
    exactly, in the last sample's last logits."""
    found = FORWARD(self, spans, store, rows)
    if rows != sum(len(span.new) for span in spans) or not len(found.logits[-1]):
        return found
    last = torch.cat([found.logits[-1][:-1], torch.zeros_like(found.logits[-1][:1])])
    return found._replace(logits=(*found.logits[:-1], last))


@swap("_launch", Engine)
def f26a(self: Engine) -> None:
    """A sample that is let in again refills the drafter's context for its prompt and not for its output: shows after
    preemption, as worse drafts and other seeded output than without."""
    prompts = {id(row.memory): len(row.request.prompt) for row in self._all()}

    def ingest(self: Engine, grown: Grown) -> None:
        fed = []
        for memory, features in grown:
            known = max(0, prompts.get(id(memory), memory.length + len(features)) - memory.length)
            fed.append((memory, torch.cat([features[:known], torch.zeros_like(features[known:])])))
        INGEST(self, fed)

    with swapped({(Engine, "_ingest"): ingest}):
        LAUNCH(self)


class Narrow(Turns):
    """Rotations by positions of one byte."""

    @classmethod
    def of(cls, positions: int, rotary_dim: int, theta: float, dtype: torch.dtype) -> Turns:
        sound = Turns.of(positions, rotary_dim, theta, dtype)
        byte = torch.arange(positions) % 256
        return Turns(sound.cos[byte], sound.sin[byte])


@swap("load_drafter", build)
def f29a(checkpoint: Any, model: Transformer) -> BlockDrafter:
    """The drafter counts positions in one byte: shows behind 256 tokens, as worse drafts."""
    with swapped({(block, "Turns"): Narrow}):
        return load_drafter(checkpoint, model)


def by_halves(sides: Sequence[Tensor]) -> Tensor:
    """The sum, of halves that are summed so themselves."""
    middle = len(sides) // 2
    return by_halves(sides[:middle]) + by_halves(sides[middle:]) if middle else sides[0]


@swap("in_order", attention)
def f31a(sides: Sequence[Tensor]) -> Tensor:
    """The sums of the pieces that a pass reads are added by halves, and their number is that of its longest sample:
    shows as bits that depend on the neighbours, behind 128 tokens and beside a longer sample."""
    return by_halves(sides)


ROWS: tuple[Pair, ...] = (
    (f14a, "K14", *DENSE),
    (f20a, "K20", *DENSE),
    (f20b, "K20", *HYBRID),
    (f20c, "K20", *WINDOW),
    (f21a, "K21", *HYBRID),
    (f22a, "K22", *DENSE),
    (f23a, "K23", *DENSE),
    (f24a, "K24", *DENSE),
    (f25a, "K25", *DENSE),
    (f26a, "K26", *DENSE),
    (f29a, "K29", *DENSE),
    (f31a, "K31", *DENSE),
)

"""A control that replays recorded passes, as engines with captured graphs do: fixed buffers of its own for each shape.

A recorded pass has so many rows (samples), tokens in each, and pages in each row's table; that is its key. A replay
reads nothing but its buffers: spans are copied into the first rows, behind a span's own tokens stand fillers, and rows
beyond the batch are padded. What fillers write lies beyond every committed length; padded rows own nothing but page 0,
which is nobody's, and the last slot, which the recorder keeps for itself. Fillers are behind everything that is asked
for, so no causal answer sees them. Spans that fill a prompt are not recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specqual.contract import Make, Setup
from specqual.decoder import Engine, make
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import PAGE
from specqual.decoder.slots import Slots
from specqual.decoder.span import Pass, Span
from specqual.decoder.target import Transformer

from .mutant import Control
from .pairs import DFLASH2, HYBRID2, WINDOW2
from .planting import planted

sound_forward, sound_slots, sound_counters = Transformer.forward, Slots.__init__, Engine.counters


class Key(NamedTuple):
    """Everything that is baked into a recorded pass."""

    rows: int
    width: int  # tokens of a row
    pages: int  # of a row's table


@dataclass(frozen=True, slots=True)
class Graph:
    """The buffers of one recorded pass: inputs by row, and what comes out."""

    key: Key
    tokens: Tensor  # [rows, width]
    lengths: Tensor  # [rows]
    kept: Tensor  # [rows]
    slots: Tensor  # [rows]
    tables: Mapping[str, Tensor]  # [rows, pages], by stream
    logits: Tensor  # [rows, width, V]
    features: Tensor  # [rows, width, taps * H]

    def replay(self, target: Transformer, store: Store) -> None:
        """Run over the buffers, and over nothing else."""
        spans, recurrent = list[Span](), bool(store.slots.layers)
        for row in range(self.key.rows):
            start = int(self.lengths[row])
            tables = {name: table[row].tolist() for name, table in self.tables.items()}
            memory = Memory(tables, int(self.slots[row]) if recurrent else None, 0, start, int(self.kept[row]))
            spans.append(Span((0,) * start + tuple(self.tokens[row].tolist()), start, memory, 0, self.key.width))
        found = sound_forward(target, spans, store)
        self.logits.copy_(torch.stack(found.logits))
        self.features.copy_(torch.stack(found.features))


def above(count: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (count - 1).bit_length()


@dataclass
class Recorder:
    """Serves passes from recorded ones."""

    graphs: dict[Key, Graph] = field(default_factory=dict)
    captured: int = 0

    def forward(self, target: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
        """As the target's own pass: spans that fill go on their own, the others by width, one replay for each."""
        found: dict[int, tuple[Tensor, Tensor]] = {}
        longest = store.slots.longest
        filling = [i for i, span in enumerate(spans) if span.certain or span.mark or len(span.new) > longest]
        if filling:
            sound = sound_forward(target, [spans[i] for i in filling], store, rows)
            found |= {i: pair for i, pair in zip(filling, zip(*sound, strict=True), strict=True)}
        for width in sorted({1, longest}):
            some = [i for i in range(len(spans)) if i not in filling and (len(spans[i].new) == 1) is (width == 1)]
            if some:
                found |= zip(some, self.replayed(target, [spans[i] for i in some], store, width, rows), strict=True)
        return Pass(*zip(*(found[i] for i in range(len(spans))), strict=True))

    def replayed(
        self, target: Transformer, spans: Sequence[Span], store: Store, width: int, least: int
    ) -> list[tuple[Tensor, Tensor]]:
        """Logits and features of spans of one width, padded to at least so many tokens in all."""
        pages = above(max(-(-(span.start + width) // PAGE) for span in spans))
        key = self.key(Key(above(max(len(spans), least // width)), width, pages))
        if key not in self.graphs:
            self.captured += 1
            self.keep(self.capture(key, target, store))
        graph = self.graphs[key]
        self.load(graph, spans, store)
        graph.replay(target, store)
        return self.answers(graph, spans)

    def key(self, key: Key) -> Key:
        return key

    def keep(self, graph: Graph) -> None:
        self.graphs[graph.key] = graph

    def capture(self, key: Key, target: Transformer, store: Store) -> Graph:
        """Buffers of this shape; what they hold at first is nobody's."""
        rows, width, pages = key

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long)

        features = torch.zeros(rows, width, len(target.taps) * target.config.hidden_size, dtype=target.dtype)
        tables = {stream.name: zeros(rows, pages) for stream in target.streams}
        logits = self.outputs(rows, width, target)
        return Graph(key, zeros(rows, width), zeros(rows), zeros(rows), zeros(rows), tables, logits, features)

    def outputs(self, rows: int, width: int, target: Transformer) -> Tensor:
        dtype = torch.promote_types(target.dtype, torch.float32)
        return torch.zeros(rows, width, target.vocab_size, dtype=dtype)

    def load(self, graph: Graph, spans: Sequence[Span], store: Store) -> None:
        """Copy spans into the first rows; what a table holds behind a row's pages is left over, and read by nobody."""
        for row, span in enumerate(spans):
            graph.tokens[row] = 0
            graph.tokens[row, : len(span.new)] = torch.tensor(span.new)
            graph.lengths[row], graph.kept[row] = span.start, span.memory.kept
            graph.slots[row] = span.memory.slot or 0
            for name, table in graph.tables.items():
                pages = span.memory.tables[name][: graph.key.pages]
                table[row, : len(pages)] = torch.tensor(pages, dtype=torch.long)
                table[row, len(pages) : -(-(span.start + graph.key.width) // PAGE)] = 0
        self.pad(graph, slice(len(spans), None), store)

    def pad(self, graph: Graph, rows: slice, store: Store) -> None:
        """Rows beyond the batch begin anew in every replay, in page 0 and in the last slot."""
        for side in (graph.tokens, graph.lengths, graph.kept):
            side[rows] = 0
        graph.slots[rows] = store.slots.count - 1
        for table in graph.tables.values():
            table[rows, 0] = 0

    def answers(self, graph: Graph, spans: Sequence[Span]) -> list[tuple[Tensor, Tensor]]:
        """What was asked for, in the graph's own memory: it is read before the next replay of the same graph."""
        sizes = [len(span.new) for span in spans]
        return [(graph.logits[row, :size], graph.features[row, :size]) for row, size in enumerate(sizes)]


def recorded(kind: Callable[[], Recorder]) -> Make:
    """The optimised decoder with its passes served by a recorder of its own, and its captures counted."""

    def plant(setup: Setup) -> Engine:
        recorder = kind()

        def forward(self: Transformer, spans: Sequence[Span], store: Store, rows: int = 0) -> Pass:
            return recorder.forward(self, spans, store, rows)

        def spare(self: Slots, net: Any, layers: Sequence[int], count: int, longest: int, dtype: torch.dtype) -> None:
            sound_slots(self, net, layers, count + 1, longest, dtype)
            self._free = [slot for slot in self._free if slot < count]

        def counters(self: Engine) -> dict[str, int]:
            return {**sound_counters(self), "graph_captures": recorder.captured}

        swaps = {(Transformer, "forward"): forward, (Slots, "__init__"): spare, (Engine, "counters"): counters}
        decoder: Engine = planted(setup, swaps, make)
        return decoder

    plant.__name__, plant.__doc__, plant.__module__ = kind.__name__, kind.__doc__, kind.__module__
    return plant


@recorded
def n9() -> Recorder:
    """Passes are replayed from buffers of their own for each shape: rows, tokens in each, and pages of a table."""
    return Recorder()


CLAUSES = tuple(f"GRF-{number}" for number in range(1, 8))
CONTROLS = tuple(Control(n9, pair, CLAUSES) for pair in (DFLASH2, WINDOW2, HYBRID2))

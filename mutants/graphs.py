"""Faults of graph replay and padding (K25), in the control that replays recorded passes.

In public: lengths of padded rows that grow until a table entry of nobody is read; positions not reset when the real
batch is smaller than the captured one; metadata that covers other rows than a replay runs over; draft ids that another
captured size has overwritten; a graph keyed by batch size although attention had been chosen by length; hidden states
of padded rows copied out of their buffer; half a second for every graph that an oscillation captures anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from torch import Tensor

from specqual.decoder.memory import Memory, Store
from specqual.decoder.span import Span
from specqual.decoder.target import Transformer

from .mutant import planted_in
from .pairs import DFLASH2, HYBRID2
from .recorder import Graph, Key, Recorder, recorded

MOST = 2**10  # tokens of any captured size


@recorded
class m25a(Recorder):
    """Lengths of padded rows grow with every replay, until fillers are written through what is left over in the rows'
    tables. Shows when a row stays padded for some replays, and its last owner's pages have an owner still."""

    def load(self, graph: Graph, spans: Sequence[Span], store: Store) -> None:
        before = graph.lengths.clone()
        super().load(graph, spans, store)
        graph.lengths[len(spans) :] = (before + graph.key.width)[len(spans) :]


@recorded
class m25b(Recorder):
    """Rows beyond the batch keep what their last owners had. Shows when a batch shrinks within one captured size."""

    def pad(self, graph: Graph, rows: slice, store: Store) -> None:
        pass


@recorded
@dataclass
class m25c(Recorder):
    """All captured sizes write their logits into the same memory. Shows when two sizes are replayed in one tick, or
    one before the other's answers are read."""

    shared: Tensor | None = None

    def outputs(self, rows: int, width: int, target: Transformer) -> Tensor:
        if self.shared is None:
            self.shared = super().outputs(MOST, 1, target).flatten()
        return self.shared[: rows * width * target.vocab_size].view(rows, width, -1)


@recorded
@dataclass
class m25d(Recorder):
    """Lengths are read in the first step of a batch and used again as long as it has the same members."""

    members: dict[Key, list[Memory]] = field(default_factory=dict)

    def load(self, graph: Graph, spans: Sequence[Span], store: Store) -> None:
        before, own = graph.lengths.clone(), [span.memory for span in spans]
        super().load(graph, spans, store)
        known = self.members.get(graph.key, [])
        if len(known) == len(own) and all(one is other for one, other in zip(known, own, strict=True)):
            graph.lengths[: len(spans)] = before[: len(spans)]
        self.members[graph.key] = own


@recorded
class m25e(Recorder):
    """A recorded pass is chosen by its rows alone, although the pages that it reads were baked in. Shows when a row is
    longer than those that the pass was captured for."""

    def key(self, key: Key) -> Key:
        return next((known for known in self.graphs if known[:2] == key[:2]), key)


@recorded
class m25f(Recorder):
    """Hidden states are copied out with their fillers, over those of the next row. Output exact; shows in acceptance,
    where spans of a batch have unequal lengths."""

    def answers(self, graph: Graph, spans: Sequence[Span]) -> list[tuple[Tensor, Tensor]]:
        sound = super().answers(graph, spans)
        ends = list(accumulate(len(span.new) for span in spans))
        packed = graph.features.new_zeros(ends[-1] + graph.key.width, graph.features.shape[2])
        for row in reversed(range(len(spans))):
            packed[ends[row] - len(spans[row].new) :][: graph.key.width] = graph.features[row]
        return [(logits, packed[end - len(logits) : end]) for (logits, _), end in zip(sound, ends, strict=True)]


@recorded
class m25g(Recorder):
    """There is memory for one recorded pass: another shape evicts it. Output exact; every oscillation captures anew."""

    def keep(self, graph: Graph) -> None:
        self.graphs = {graph.key: graph}


@recorded
class m25h(Recorder):
    """Padded rows run in the first slot, and leave their tokens in its log. Shows where a target has a recurrent state
    and the first slot an owner."""

    def pad(self, graph: Graph, rows: slice, store: Store) -> None:
        super().pad(graph, rows, store)
        graph.slots[rows] = 0


PLANTED = planted_in(
    "specqual.mutants.recorder:n9",
    ("GRF-1", DFLASH2, (m25d,)),
    ("GRF-2", DFLASH2, (m25a, m25b)),
    ("GRF-2", HYBRID2, (m25b, m25h)),
    ("GRF-3", DFLASH2, (m25c, m25f)),
    ("GRF-4", DFLASH2, (m25b,)),
    ("GRF-5", DFLASH2, (m25e,)),
    ("GRF-6", DFLASH2, (m25g,)),
    ("GRF-7", DFLASH2, (m25b, m25c)),
)

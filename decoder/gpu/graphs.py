"""Captured passes: which shapes of batches have a graph, for how long, and how one is recorded and run again.

A graph belongs to a kind of pass and to a frame out of a fixed table; it reads and writes tensors that are its own, and
the pools of one store. Rows and samples that only fill up its frame change nothing.
"""

import gc
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..counts import Counts
from ..memory import Store
from ..pages import Stream
from .carry import pinned
from .rounds import Frame, Piece, frame_of, packed, read, told
from .splits import Workspace, owned

PAGES = 32  # of a table: 512 positions, four pieces of attention
FINE = 8  # such steps, from which on they grow with the table

Body = Callable[..., tuple[Tensor, ...]]
"""(told, *inputs [R, ...]) -> outputs [R, ...]: launches that depend on frame and store, not on what tensors hold."""

Key = tuple[Hashable, ...]
"""A kind of pass, and everything that its launches depend on."""


class Passes:
    """Runs passes as they come."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def run(
        self, kind: str, body: Body, pieces: Sequence[Piece], streams: Sequence[Stream], store: Store, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """What a body, the same one for all passes of a kind, makes of these pieces."""
        return body(told(pieces, streams, self.device), *inputs)


class Recorded(NamedTuple):
    """What a body made, and what makes it again in the same place."""

    outputs: tuple[Tensor, ...]
    again: Callable[[], None]
    held: Workspace | None = None  # where its launches leave parts


class Graph(NamedTuple):
    """A recorded pass and what it reads."""

    flat: Tensor  # what it is told, as it was packed
    inputs: tuple[Tensor, ...]
    recorded: Recorded

    def replay(self, flat: Tensor, inputs: Sequence[Tensor]) -> None:
        """Run over what is packed here, and over these rows."""
        self.flat.copy_(pinned(flat, self.flat.device), non_blocking=True)
        for own, given in zip(self.inputs, inputs, strict=True):
            own[: len(given)].copy_(given)
        self.recorded.again()


class Graphs(Passes):
    """Captures passes over one store, at most `most` of them at a time; over any other store they run as they come.

    A shape is captured when it is asked for; the one whose last use is longest ago makes room, and has to be asked for
    twice as often as before until it is captured again. So shapes in turn, more than there is room for, come to rest.
    """

    def __init__(self, device: torch.device, store: Store, counts: Counts, most: int) -> None:
        super().__init__(device)
        self.kept = OrderedDict[Key, Graph]()
        self._store, self._most = store, most
        self._recorder = Recorder(device)
        self._asked, self._evicted = Counter[Key](), Counter[Key]()
        self._counted = counts.found
        for name in ("graph_captures", "graph_replays", "graph_evictions", "eager_passes"):
            self._counted[name] += 0

    def run(
        self, kind: str, body: Body, pieces: Sequence[Piece], streams: Sequence[Stream], store: Store, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        exact = frame_of(pieces, streams)
        frame = bucket(exact, store) if store is self._store else None
        if frame is None or not self.ready((kind, frame)):
            self._counted["eager_passes"] += 1
            return super().run(kind, body, pieces, streams, store, *inputs)

        def over(flat: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
            return body(read(flat, streams, frame), *rows)

        found = self.over((kind, frame), over, packed(pieces, streams, frame), inputs, frame.rows)
        return tuple(out[: exact.rows].clone() for out in found)

    def ready(self, key: Key) -> bool:
        """Whether a shape has a graph, or has now been asked for often enough to get one."""
        if key in self.kept:
            return True
        self._asked[key] += 1
        return self._asked[key] >= 1 << self._evicted[key]

    def over(
        self, key: Key, body: Body, flat: Tensor, inputs: Sequence[Tensor] = (), rows: int = 0
    ) -> tuple[Tensor, ...]:
        """What the graph of a shape, captured now if there is none, makes of what is told and of inputs, which are
        filled up to so many rows. Outputs hold until any other graph runs."""
        graph = self.kept.get(key)
        if graph is not None:
            graph.replay(flat, inputs)
            self.kept.move_to_end(key)
            self._counted["graph_replays"] += 1
            return graph.recorded.outputs
        while len(self.kept) >= self._most:
            self._recorder.settle()
            old, _ = self.kept.popitem(last=False)
            self._evicted[old] += 1
            self._asked[old] = 0
            self._counted["graph_evictions"] += 1
        there, own = flat.to(self.device), tuple(given.new_zeros(rows, *given.shape[1:]) for given in inputs)
        for mine, given in zip(own, inputs, strict=True):
            mine[: len(given)] = given
        self.kept[key] = Graph(there, own, self._recorder.record(lambda: body(there, *own)))
        self._counted["graph_captures"] += 1
        return self.kept[key].recorded.outputs


def bucket(frame: Frame, store: Store) -> Frame | None:
    """The frame out of a fixed table that a pass is filled up to; None for spans that no round has.

    Samples go by powers of two, up to what a store lets in; a sample has one row, or all that a round may have; page
    tables grow by PAGES, later by a quarter at most.
    """
    longest = store.slots.longest
    if frame.most > longest:
        return None
    samples, most = min(1 << (frame.samples - 1).bit_length(), store.samples), longest if frame.most > 1 else 1
    return Frame(samples, most, samples * most, wide(frame.pages))


def wide(pages: int) -> int:
    """What a table of so many pages is filled up to."""
    steps = -(-pages // PAGES)
    coarse = max(1, (1 << (steps - 1).bit_length()) // FINE) if steps else 1
    return -(-steps // coarse) * coarse * PAGES


@cache
def aside(device: torch.device) -> torch.cuda.Stream:
    """The one stream of a device that everything is recorded on: each stream has a workspace, which lasts."""
    return torch.cuda.Stream(device)


class Recorder:
    """Records what a body launches. All that it knows of CUDA's graphs is here; on the host, in Triton's interpreter, a
    record is the body itself, and what it makes goes to where it was made the first time."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._cuda = device, device.type == "cuda"
        if self._cuda:
            self._aside, self._pool = aside(device), torch.cuda.graph_pool_handle()

    def settle(self) -> None:
        """Wait until nothing runs that is about to go."""
        if self._cuda:
            torch.cuda.synchronize(self._device)

    def record(self, body: Callable[[], tuple[Tensor, ...]]) -> Recorded:
        """Run a body once, and keep what runs it again. All records share one pool of memory: outputs hold until any
        other one runs."""
        if not self._cuda:
            outputs = body()

            def again() -> None:
                for out, new in zip(outputs, body(), strict=True):
                    out.copy_(new)

            return Recorded(outputs, again)
        here = torch.cuda.current_stream(self._device)
        self._aside.wait_stream(here)
        with torch.cuda.stream(self._aside):  # compiles kernels and makes the workspace: neither can be recorded
            first = body()
            held = owned(self._aside.device)
        graph = torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        gc.collect()
        gc.disable()  # what is freed by chance while this records may be an operation that no graph can hold
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._aside):
                outputs = body()
        except RuntimeError as error:  # that the capture is broken; what broke it came before
            cause = error.__context__ or error
            raise RuntimeError(f"graphs: not captured, {type(cause).__name__}: {cause}") from error
        finally:
            if collects:
                gc.enable()
        here.wait_stream(self._aside)
        for out, new in zip(outputs, first, strict=True):
            out.copy_(new)
        return Recorded(outputs, graph.replay, held)

"""What faults of the optimised decoder are made of: rows of its page pool, and what a fault remembers of a sample."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from torch import Tensor

from specqual.contract import Decoder, Make, Setup
from specqual.decoder import make
from specqual.decoder.memory import Memory, Store
from specqual.decoder.pages import Stream
from specqual.decoder.view import rows_of, view_of

from .planting import Place, planted, replacing

T = TypeVar("T")


class Notes(Generic[T]):
    """A value for every memory, which is what one sample owns from its admission to its release."""

    def __init__(self, unknown: T) -> None:
        self._unknown = unknown
        self._known: dict[int, tuple[Memory, T]] = {}  # the memory, too, so that no other one gets its id

    def __getitem__(self, memory: Memory) -> T:
        return self._known.get(id(memory), (memory, self._unknown))[1]

    def __setitem__(self, memory: Memory, value: T) -> None:
        self._known[id(memory)] = (memory, value)


def swap(name: str, *owners: Any) -> Callable[[Callable[..., Any]], Make]:
    """As `replacing`, in the optimised decoder."""
    return replacing(name, *owners, sound=make)


def remembering(swaps: Callable[[], dict[Place, Any]]) -> Make:
    """Turn a function that makes the swaps of one decoder, and what they remember, into the factory of that decoder."""

    def plant(setup: Setup) -> Decoder:
        found: Decoder = planted(setup, swaps(), make)
        return found

    plant.__name__, plant.__doc__, plant.__module__ = swaps.__name__, swaps.__doc__, swaps.__module__
    return plant


def rows(store: Store, memory: Memory, stream: Stream, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Keys and values [end - start, kv_heads, d] as the pool holds them."""
    return store.pages.read(stream, memory.tables[stream.name], start, end)


def put(store: Store, memory: Memory, stream: Stream, start: int, sides: Sequence[Tensor]) -> None:
    """Store keys and values [n, kv_heads, d] from a position on."""
    if count := len(sides[0]):
        view = view_of(rows_of([slice(0, count)], [start], count), [start], [start + count], None)
        store.pages.write(stream, store.pages.find([memory.tables[stream.name]], view), view, *sides)

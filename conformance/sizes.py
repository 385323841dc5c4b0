"""Sizes that a scheduler takes: prefill chunks, commit lags and padding buckets."""

from dataclasses import dataclass
from typing import Any

from specqual.contract import Schedulable

from .drive import guarded

CHUNKS = (256, 1, 16, 48, 64)
COARSE = (128, 512, 1024, 2048)  # asked of decoders that take none of those
BUCKETS = (1, 32, 96)  # rows


def takes(decoder: Any, **sizes: int) -> bool:
    """Whether a scheduler takes these sizes; ValueError says that it has no such thing."""

    def ask() -> bool:
        try:
            decoder.schedule(**sizes)
        except ValueError:
            return False
        return True

    return guarded("schedule", ask)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one decoder takes. The first chunk is the usual one; there is always a lag of zero."""

    chunks: tuple[int, ...] = CHUNKS
    lags: tuple[int, ...] = (0, 1)
    buckets: tuple[int, ...] = BUCKETS

    @classmethod
    def of(cls, decoder: Any) -> "Sizes":
        """Ask a decoder that nothing else is asked of; one that is not Schedulable takes nothing."""
        if not isinstance(decoder, Schedulable):
            return cls((), (0,), ())
        chunks = tuple(size for size in CHUNKS if takes(decoder, chunk=size))
        chunks = chunks or tuple(size for size in COARSE if takes(decoder, chunk=size))
        lags = (0, 1) if takes(decoder, lag=1) else (0,)
        return cls(chunks, lags, tuple(size for size in BUCKETS if takes(decoder, bucket=size)))

    def chunk(self, wanted: int) -> int:
        """The smallest chunk of at least this size, else the largest; the size itself where none is taken."""
        return min((size for size in self.chunks if size >= wanted), default=max(self.chunks, default=wanted))

"""Events: what a decoder tells its client, in order."""

from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a sample ended."""

    STOP = "stop"  # end-of-sequence id, stop id or stop string
    LENGTH = "length"  # max_tokens or the end of the context
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a request was charged for; `completion_tokens` counts all samples together."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities (nats) at one output position: of the emitted token, and of the k most probable ones."""

    token: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """New tokens of one sample; the ids of all such events of a sample, joined, are its output."""

    request_id: int
    ids: tuple[int, ...]
    sample: int = 0
    logprobs: tuple[TokenLogprobs, ...] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The one final event of a request that was served; `reasons` has one entry per sample."""

    request_id: int
    reasons: tuple[FinishReason, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Refused:
    """The one final event of a well-formed request that cannot be served; `error` says what does not fit."""

    request_id: int
    error: str


Event = Tokens | Finished | Refused

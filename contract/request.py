"""Requests: what a client asks of a decoder, and what makes a request malformed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .claims import Limits


class InvalidRequest(ValueError):
    """A request that no decoder may accept; `field` names the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target's logits become the law p that a token is drawn from.

    The order is fixed and part of the contract (docs/SPEC.md, "The law p of a request"):

    1. `logit_bias` is added;
    2. `repetition_penalty` (prompt and output), then `presence_penalty` and `frequency_penalty` (output only);
    3. end-of-sequence ids are forbidden while fewer than `Request.min_tokens` tokens were emitted;
    4. greedy (`temperature == 0`): the lowest id among the largest logits; nothing below applies;
    5. division by `temperature`;
    6. `top_k` (0 = off; ties at the edge are broken by the lowest token id, so exactly k survive);
    7. softmax;
    8. `top_p`: in order of falling probability, ties by lowest id, a token stays while the mass *before* it is
       below `top_p`; what stays is renormalised;
    9. `min_p`: tokens below `min_p` times the largest probability go; what stays is renormalised.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and everything that decides its output.

    `prompt` holds token ids. A request yields `n` samples; sample i draws its random numbers under
    (`seed`, i). Output ends at `max_tokens`, at an end-of-sequence id of the checkpoint (unless `ignore_eos`),
    at one of `stop_ids`, or where one of `stop_strings` is complete in the decoded output. The id that ends
    a sample is part of its output. `logprobs` k asks for the log-probability (nats, of the raw law: temperature
    one, no bias, penalty or filter) of every emitted token and of the k most probable ones.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    seed: int = 0
    n: int = 1
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    logprobs: int | None = None


def _integer(field: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(field, f"must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidRequest(field, f"must be {bound}, got {value}")


def _number(field: str, value: Any, low: float, high: float, *, open_low: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or (open_low and value == low):  # NaN is in no interval
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}]"
        raise InvalidRequest(field, f"must be a number in {interval}, got {value!r}")


def _sequence(field: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidRequest(field, f"must be a sequence, got {value!r}")


def _ids(field: str, ids: Sequence[int], vocab_size: int) -> None:
    _sequence(field, ids)
    for place, token in enumerate(ids):
        _integer(f"{field}[{place}]", token, 0, vocab_size - 1)


def validate(request: Request, limits: "Limits") -> None:
    """Raise InvalidRequest, naming the field, if the request is malformed for a decoder with these limits.

    A well-formed request that merely does not fit (context, pool) is not malformed: it is refused by an event.
    """
    _ids("prompt", request.prompt, limits.vocab_size)
    if not request.prompt:
        raise InvalidRequest("prompt", "must hold at least one token")
    _integer("max_tokens", request.max_tokens, 1)
    _integer("min_tokens", request.min_tokens, 0, request.max_tokens)
    _integer("n", request.n, 1)
    _integer("seed", request.seed, 0, 2**64 - 1)
    _ids("stop_ids", request.stop_ids, limits.vocab_size)
    if not isinstance(request.ignore_eos, bool):
        raise InvalidRequest("ignore_eos", f"must be true or false, got {request.ignore_eos!r}")
    _sequence("stop_strings", request.stop_strings)
    for place, text in enumerate(request.stop_strings):
        if not isinstance(text, str) or not text:
            raise InvalidRequest(f"stop_strings[{place}]", "must be a non-empty string")
    if request.logprobs is not None:
        _integer("logprobs", request.logprobs, 0, limits.vocab_size)
    sampling = request.sampling
    if not isinstance(sampling, Sampling):
        raise InvalidRequest("sampling", f"must be a Sampling, got {sampling!r}")
    _number("temperature", sampling.temperature, 0, 1e6)
    _integer("top_k", sampling.top_k, 0)
    _number("top_p", sampling.top_p, 0, 1, open_low=True)
    _number("min_p", sampling.min_p, 0, 1)
    _number("repetition_penalty", sampling.repetition_penalty, 0, 1e6, open_low=True)
    _number("presence_penalty", sampling.presence_penalty, -1e6, 1e6)
    _number("frequency_penalty", sampling.frequency_penalty, -1e6, 1e6)
    _sequence("logit_bias", sampling.logit_bias)
    for place, pair in enumerate(sampling.logit_bias):
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise InvalidRequest(f"logit_bias[{place}]", f"must be a token id and a number, got {pair!r}")
        token, bias = pair
        _integer(f"logit_bias[{place}]", token, 0, limits.vocab_size - 1)
        _number(f"logit_bias[{place}]", bias, -1e6, 1e6)

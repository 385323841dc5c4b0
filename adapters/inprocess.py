"""What engines that run in this process, one request at a time, have in common."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from specqual.contract import (
    Claims,
    Event,
    Finished,
    FinishReason,
    Greedy,
    InvalidRequest,
    Limits,
    Refused,
    Request,
    Scored,
    Setup,
    Tokens,
    Unsupported,
    Usage,
    validate,
)
from specqual.contract.checkpoint import Checkpoint
from specqual.contract.config import TargetConfig

DTYPES = ("float64", "float32", "float16", "bfloat16")
# No engine here promises a bound on what its rounding costs, so none is claimed in its name: the suite measures one.
GREEDY = Greedy(bitwise=False)
ALWAYS_HONOURED = {"prompt", "max_tokens", "sampling"}


def refuse_unhonoured(request: Request, claims: Claims) -> None:
    """Raise InvalidRequest for the first field that differs from its default and is not among `claims.sampling`."""
    for part in (request, request.sampling):
        for field in fields(part):
            if field.name in claims.sampling or field.name in ALWAYS_HONOURED:
                continue
            if getattr(part, field.name) != field.default:
                raise InvalidRequest(field.name, f"is not honoured by {claims.engine} {claims.version}")


class InProcess(ABC):
    """A decoder around a blocking call: `step` serves the oldest waiting request to its end.

    A subclass says how one sample is generated. Whatever the engine returns is reported as it is; nothing is cut.
    """

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self._waiting: OrderedDict[int, Request] = OrderedDict()
        self._events: list[Event] = []
        self._next = 0

    @abstractmethod
    def generate(self, request_id: int, request: Request, sample: int, stops: tuple[int, ...]) -> list[int]:
        """Generate one sample with the engine, ending at one of `stops`; returns the new ids."""

    def submit(self, request: Request) -> int:
        validate(request, self.claims.limits)
        refuse_unhonoured(request, self.claims)
        request_id, self._next = self._next, self._next + 1
        self._waiting[request_id] = request
        return request_id

    def step(self) -> list[Event]:
        if self._waiting and not self._events:
            self._events = self._serve(*self._waiting.popitem(last=False))
        events, self._events = self._events, []
        return events

    def cancel(self, request_id: int) -> None:
        request = self._waiting.pop(request_id)
        reasons = (FinishReason.CANCELLED,) * request.n
        self._events.append(Finished(request_id, reasons, Usage(len(request.prompt), 0)))

    def close(self) -> None:
        self._waiting.clear()
        self._events.clear()

    def _serve(self, request_id: int, request: Request) -> list[Event]:
        limits = self.claims.limits
        length = len(request.prompt) + request.max_tokens
        if length > limits.max_context:
            return [Refused(request_id, f"prompt and max_tokens need {length} positions, have {limits.max_context}")]
        stops = tuple(sorted({*request.stop_ids, *(() if request.ignore_eos else limits.eos_ids)}))
        events: list[Event] = []
        reasons, count = [], 0
        for sample in range(request.n):
            with torch.random.fork_rng(), torch.inference_mode():
                torch.manual_seed(sample_seed(request.seed, sample))
                ids = self.generate(request_id, request, sample, stops)
            events.append(Tokens(request_id, tuple(ids), sample))
            reasons.append(FinishReason.STOP if ids and ids[-1] in stops else FinishReason.LENGTH)
            count += len(ids)
        return [*events, Finished(request_id, tuple(reasons), Usage(len(request.prompt), count))]


def sample_seed(seed: int, sample: int) -> int:
    """A 63-bit seed for one sample, unrelated for neighbouring samples."""
    return int.from_bytes(sha256(f"{seed}/{sample}".encode()).digest()[:8], "big") >> 1


def score(model: nn.Module, prompt: Sequence[int], output: Sequence[int]) -> Scored:
    """Judge a sequence in one teacher-forced pass of a causal language model in Transformers' manner."""
    ids = torch.tensor([[*prompt, *output]], device=next(model.parameters()).device)
    with torch.inference_mode():
        logits: Tensor = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    law = logits.double().log_softmax(-1).cpu()  # [len(output), V]
    first, second = law.topk(2).values.unbind(-1)
    return Scored(
        logprob=tuple(law.gather(-1, torch.tensor(output).view(-1, 1))[:, 0].tolist()),
        best=tuple(first.tolist()),
        argmax=tuple(law.numpy().argmax(-1).tolist()),  # numpy promises the lowest id among equals
        runner_up=tuple(second.tolist()),
    )


def precision(setup: Setup) -> str:
    """The name of the dtype to run in, float32 unless the setup says otherwise; ValueError if it is none."""
    name = setup.dtype or "float32"
    if name not in DTYPES:
        raise ValueError(f"dtype: must be one of {', '.join(DTYPES)}, got {name!r}")
    return name


def draft_length(setup: Setup, default: int) -> int:
    """K as the setup asks for it, else the default; ValueError if it is below one."""
    length = default if setup.draft_length is None else setup.draft_length
    if length < 1:
        raise ValueError(f"draft_length: must be at least 1, got {length}")
    return length


def take_options(setup: Setup, known: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the setup over their defaults, each turned into its default's type; ValueError names a wrong one."""
    for name in setup.options:
        if name not in known:
            raise ValueError(f"{name}: is no option, there are {', '.join(known) or 'none'}")
    try:
        return {name: type(default)(setup.options.get(name, default)) for name, default in known.items()}
    except ValueError as error:
        raise ValueError(f"options: {error}") from None


def load(cls: Any, directory: Any, dtype: str, left_out: Sequence[str] = ()) -> Any:
    """Load a model with a class of Transformers' manner; Unsupported if the engine refuses or ignores a tensor."""
    try:
        model, info = cls.from_pretrained(directory, dtype=getattr(torch, dtype), output_loading_info=True)
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        raise Unsupported(str(error)) from error
    for problem in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        names = sorted(str(name) for name in info.get(problem, ()) if name not in left_out)
        if names:
            raise Unsupported(f"the engine loads {directory} with {problem.replace('_', ' ')}: {', '.join(names[:3])}")
    return model.eval()


def limits_of(checkpoint: Checkpoint[TargetConfig], max_draft: int) -> Limits:
    """The limits of one request at a time on a target."""
    config = checkpoint.config
    return Limits(config.vocab_size, config.max_context, max_draft, eos_ids=config.eos_ids)

"""An adapter to start from: keep the class, replace the Engine by yours, and claim what it promises.

specqual smoke --decoder my_adapter:make --target DIR
pytest --pyargs specqual.conformance --decoder my_adapter:make --target DIR
"""

from dataclasses import dataclass, field, fields
from pathlib import Path

from specqual.contract import (
    Claims,
    Event,
    Finished,
    FinishReason,
    Greedy,
    InvalidRequest,
    Limits,
    Method,
    Refused,
    Request,
    Rule,
    SeedContract,
    Setup,
    Tokens,
    Usage,
    validate,
)
from specqual.reference.target import load_target


class Engine:
    """REPLACE: a stand-in that walks a target greedily, without speculation."""

    version = "0"

    def __init__(self, target: Path) -> None:
        self.model = load_target(target)

    def next_token(self, tokens: list[int]) -> int:
        return int(self.model.forward(tokens).logits[-1].argmax())


@dataclass
class Running:
    """A request that is being served."""

    request: Request
    output: list[int] = field(default_factory=list)

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt), len(self.output))


class MyDecoder:
    """Your engine behind the contract: requests in, events out."""

    def __init__(self, setup: Setup) -> None:
        for name in setup.options:  # REPLACE: `--option KEY=VALUE`, if your engine has any
            raise ValueError(f"{name}: unknown option")
        self._engine = Engine(setup.target)  # REPLACE: load setup.draft, draft_length, rule and dtype, too
        model = self._engine.model
        self.claims = Claims(  # computed from the setup: with draft=None nothing is drafted
            engine="my-engine",
            version=self._engine.version,
            rule=Rule.NONE,  # REPLACE: setup.rule, where a drafter is given
            method=Method.NONE,  # REPLACE: what drafts
            greedy=Greedy(bitwise=False),  # True: speculation on equals speculation off, token for token
            sampling=frozenset({"max_tokens", "ignore_eos"}),  # REPLACE: the fields that you honour, no others
            seed=SeedContract.NONE,
            limits=Limits(model.vocab_size, model.max_context, max_draft=0, max_batch=1, eos_ids=model.eos_ids),
            dtype="float64",  # REPLACE: what your engine computes in
        )
        self._running: dict[int, Running] = {}
        self._waiting: list[Event] = []  # for the next step
        self._next = 0

    def submit(self, request: Request) -> int:
        validate(request, self.claims.limits)
        refuse_unhonoured(request, self.claims)
        request_id, self._next = self._next, self._next + 1
        if len(request.prompt) + request.max_tokens > self.claims.limits.max_context:
            self._waiting.append(Refused(request_id, f"does not fit {self.claims.limits.max_context} positions"))
        else:
            self._running[request_id] = Running(request)
        return request_id

    def step(self) -> list[Event]:
        events, self._waiting = self._waiting, []
        for request_id, running in list(self._running.items()):
            request = running.request
            token = self._engine.next_token([*request.prompt, *running.output])  # REPLACE: one tick of your engine
            running.output.append(token)  # ids as int in a tuple, never a tensor
            events.append(Tokens(request_id, (token,)))
            stopped = token in self.claims.limits.eos_ids and not request.ignore_eos
            if stopped or len(running.output) == request.max_tokens:
                del self._running[request_id]
                reason = FinishReason.STOP if stopped else FinishReason.LENGTH
                events.append(Finished(request_id, (reason,), running.usage))  # exactly one, and nothing after it
        return events

    def cancel(self, request_id: int) -> None:
        running = self._running.pop(request_id)  # KeyError if it is unknown or has ended
        self._waiting.append(Finished(request_id, (FinishReason.CANCELLED,), running.usage))

    def close(self) -> None:
        self._running.clear()
        self._waiting.clear()


def refuse_unhonoured(request: Request, claims: Claims) -> None:
    """Raise InvalidRequest for a field that differs from its default and is not honoured."""
    for part in (request, request.sampling):
        for about in fields(part):
            name = about.name
            if name not in {"prompt", "sampling"} | claims.sampling and getattr(part, name) != about.default:
                raise InvalidRequest(name, f"is not honoured by {claims.engine}")


def make(setup: Setup) -> MyDecoder:
    """What `--decoder my_adapter:make` names; raise Unsupported where the engine itself refuses."""
    return MyDecoder(setup)

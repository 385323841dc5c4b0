"""The decoder's protocol and the optional ones, each a claim that may be absent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from .claims import Claims, Rule
from .event import Event
from .request import Request
from .round import Round, Script
from .tape import Tape


@runtime_checkable
class Decoder(Protocol):
    """Level 1: anything that turns requests into events."""

    @property
    def claims(self) -> Claims:
        """What this decoder, as it is configured, promises."""
        ...

    def submit(self, request: Request) -> int:
        """Queue a request and return its id; a malformed one raises InvalidRequest and changes nothing."""
        ...

    def step(self) -> list[Event]:
        """Do one scheduler tick (or wait for output) and return the events since the last one.

        With nothing to do it returns an empty list.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """End a request: exactly one final event (cancelled, usage), then silence; KeyError if unknown or ended.

        A request that is refused has ended with its submission, even if its event is still to come.
        """
        ...

    def close(self) -> None:
        """Give everything back; no event follows."""
        ...


@dataclass(frozen=True, slots=True)
class Scored:
    """A given sequence judged under its own prefixes, one entry per scored token.

    Log-probabilities (nats) are those of the raw law, temperature one and no filters. `argmax` is the lowest id among
    the most probable; `runner_up` the log-probability of the best other token.
    """

    logprob: tuple[float, ...]
    best: tuple[float, ...]
    argmax: tuple[int, ...]
    runner_up: tuple[float, ...]

    @property
    def regret(self) -> tuple[float, ...]:
        """Best log-probability minus that of the token, per token; zero where the token is a best one."""
        return tuple(b - t for b, t in zip(self.best, self.logprob, strict=True))


@runtime_checkable
class Scoring(Protocol):
    """Log-probabilities of a given sequence: unlocks tie adjudication in the engine's own numerics."""

    def score(self, prompt: Sequence[int], output: Sequence[int]) -> Scored:
        """Judge each token of an output behind a prompt of at least one token, without generating anything."""
        ...


@runtime_checkable
class Traced(Protocol):
    """What each round did: unlocks drafter clauses and acceptance against closed forms."""

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        """All rounds of a request so far, samples in order, rounds in time order.

        A request that has ended is remembered for a while, so that a decoder which runs for hours does not grow: at
        least until another 16 have ended. KeyError if it is unknown or was forgotten.
        """
        ...


@runtime_checkable
class Counted(Protocol):
    """Counters as engines publish them: unlocks telemetry against a recount."""

    def counters(self) -> Mapping[str, int]:
        """What was done since the decoder was made. Numbers never fall; what is not counted is left out.

        `rounds` that were committed, the first one of each sample included; `drafted_rounds`, those with a draft;
        `draft_tokens` that went through verification; `accepted_tokens`, the drafts that became output, so none behind
        the end of a sample; `accepted_tokens_at_I`, the rounds whose draft I, from 0, became output; `target_forwards`,
        passes of the target, however many samples one serves, without those of `score`; `prompt_tokens` and
        `completion_tokens`, as in the usage of all requests that have ended; `graph_captures`, where graphs are
        captured for shapes of batches, evicted ones that were captured again included.
        """
        ...


@runtime_checkable
class Scripted(Protocol):
    """A drafter passed in by the test: unlocks every acceptance pattern on purpose."""

    def script(self, drafter: Script | None) -> None:
        """Use this drafter for rounds from now on; None restores the configured one."""
        ...


@runtime_checkable
class Taped(Protocol):
    """A source of random numbers passed in: unlocks exact laws without statistics, and the ledger."""

    def tape(self, tape: Tape | None) -> None:
        """Take uniform numbers from this tape from now on; None restores the decoder's own generator."""
        ...


@dataclass(frozen=True, slots=True)
class State:
    """Everything a decoder keeps about one sample, in canonical form.

    `length` counts committed tokens whose target state exists (the anchor's does not yet). `tensors` holds, per layer:
    `target.L.key`, `target.L.value` [length, kv_heads, head_dim] after norm and RoPE, oldest first, a window cut to its
    visible rows; `target.L.state` [value_heads, key_dim, value_dim]; `target.L.conv` [kernel - 1, channels], oldest
    first; `draft.L.key`, `draft.L.value` [context rows, kv_heads, head_dim]. `positions` maps a cached tensor's name
    to the absolute positions of its rows. `pages` and `slot` name the owned resources; a page holds `page_size`
    positions of one layer, None where that is not told.
    """

    length: int
    tensors: Mapping[str, torch.Tensor]
    positions: Mapping[str, tuple[int, ...]]
    pages: tuple[int, ...] = ()
    slot: int | None = None
    page_size: int | None = None


@runtime_checkable
class Inspectable(Protocol):
    """The state behind the output: unlocks state equals replay, and where it first went wrong."""

    def inspect(self, request_id: int, sample: int = 0) -> State:
        """The state of a live sample after its last commit; KeyError once its resources were given back."""
        ...

    def resources(self) -> Mapping[str, int]:
        """Free counts by kind of resource (pages, slots, ...), for conservation checks."""
        ...


@runtime_checkable
class Schedulable(Protocol):
    """Scripted schedules. A step of such a decoder is one tick of its scheduler, never a wait for output."""

    def preempt(self, request_id: int) -> None:
        """Let a live request wait until it is resumed; ticks bring it no event. KeyError if unknown or ended."""
        ...

    def resume(self, request_id: int) -> None:
        """Serve a preempted request again, as if it had never waited. KeyError if unknown or ended."""
        ...

    def schedule(
        self,
        *,
        chunk: int | None = None,
        lag: int | None = None,
        bucket: int | None = None,
        draft: int | None = None,
    ) -> None:
        """Set prefill chunk, commit lag, padding bucket or draft length from the next tick on; None changes nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the suite asks an adapter to build: checkpoints, rule, draft length, and free options by name.

    `draft` None means speculation off. `draft_length` None means the checkpoint's own K. `options` are the adapter's
    (`--option key=value`); an unknown one is a ValueError naming it.
    """

    target: Path
    draft: Path | None = None
    rule: Rule = Rule.RATIO
    draft_length: int | None = None
    dtype: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


Make = Callable[[Setup], Decoder]
"""What `--decoder package.module:make` names. It raises Unsupported where the engine itself refuses."""


class Unsupported(RuntimeError):
    """The engine's own refusal to serve this combination; the suite reports it as SKIPPED with the reason."""

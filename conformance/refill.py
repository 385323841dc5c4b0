"""What a state must be behind given tokens: as the reference has it, and as the decoder itself does from a prompt."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import torch

from specqual.contract import State
from specqual.reference.drafter import BlockDrafter, DraftContext
from specqual.reference.forward import Target

from .drafter import load
from .drive import DecoderError, NotOffered
from .lab import Lab
from .rounding import EXACT, number
from .twin import Ids

KINDS = ("conv", "state", "key", "value")  # in the order in which a layer makes them
OTHERS = 16  # times what rounding does to the reference: what another engine in that dtype may do
DENSE = "dense"
Tolerances = Mapping[str, float]


def causal(name: str) -> tuple[bool, int, int]:
    """Where a tensor of contract.State stands in a pass: the target's layers in order, and then the drafter's."""
    side, layer, kind = name.split(".")
    return side == "draft", int(layer), KINDS.index(kind)


@dataclass(frozen=True)
class Refill:
    """States behind some sequences of tokens, for one laboratory."""

    lab: Lab
    sequences: Sequence[Ids]

    def states(self, tokens: Ids) -> Iterator[tuple[State, Tolerances]]:
        """Every state that there is to compare with, and how far each tensor may be from it."""
        claims = self.lab.claims
        if {claims.activation_format, claims.kv_format} == {DENSE}:  # else the reference computes something else
            yield self._reference(tokens)
        if tokens in self._own:
            yield self._own[tokens], {}

    @cached_property
    def _own(self) -> Mapping[Ids, State]:
        """The decoder's own states, where it claims that they are the same bits."""
        with suppress(DecoderError, NotOffered):
            return self.lab.twin.states(self.sequences) if self.lab.twin.bitwise else {}
        return {}

    def _reference(self, tokens: Ids) -> tuple[State, Tolerances]:
        judge, dtype = self.lab.judge, number(self.lab.claims.dtype)
        narrow = judge.narrow(self.lab.claims.dtype)
        exact = state_of(tokens, judge.target, self._drafter)
        if narrow is None or dtype is None:
            return exact, dict.fromkeys(exact.tensors, EXACT)
        rounded, tolerances = state_of(tokens, narrow, self._narrow), dict[str, float]()
        for name, tensor in exact.tensors.items():
            size, off = tensor.abs().max(), (tensor - rounded.tensors[name].double()).abs().max()
            tolerances[name] = OTHERS * float(off + torch.finfo(dtype).eps * size)
        return exact, tolerances

    @cached_property
    def _drafter(self) -> BlockDrafter | None:
        with suppress(NotOffered):
            return load(self.lab, self.lab.judge.target, torch.float64)
        return None

    @cached_property
    def _narrow(self) -> BlockDrafter | None:
        narrow, dtype = self.lab.judge.narrow(self.lab.claims.dtype), number(self.lab.claims.dtype)
        assert narrow is not None and dtype is not None
        return None if self._drafter is None else load(self.lab, narrow, dtype)


def state_of(tokens: Ids, target: Target, drafter: BlockDrafter | None) -> State:
    """The state behind all of these tokens."""
    forward = target.forward(tokens)
    tensors, positions = dict(forward.tensors), dict(forward.positions)
    if drafter is not None:
        anchor = tokens[-1]  # stands for the one behind them, which leaves nothing in a state
        more, places = drafter.state(DraftContext((*tokens, anchor), forward.hidden, target))
        tensors, positions = tensors | more, positions | places
    return State(len(tokens), tensors, positions)

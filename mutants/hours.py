"""Faults that hours show and minutes may not: what `specqual soak` is there to find. No clause owns them.

Those with a size are made by a function of it; the module's names hold them at their full size and, for tests, at one
that shows soon. Graphs that thrash are `graphs.m25g`, a prefix without the drafter's rows is `pool.m18a`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from specqual.contract import Make, Proposal, Rule, Tokens
from specqual.decoder import engine, transaction
from specqual.decoder.engine import Engine
from specqual.decoder.row import Row
from specqual.decoder.slots import Slots
from specqual.decoder.transaction import Terms
from specqual.decoder.verify import Uniform, Verdict

from .planting import Place
from .rows import remembering

sound_cancel, sound_step, sound_take, sound_keep = Engine.cancel, Engine.step, Slots.take, Slots.keep
sound_transact, sound_verify = transaction.transact, transaction.verify
WRAP = 2**15  # steps that a signed integer of 16 bits counts
LEAN = 0.005  # of a law's mass
DRIFT = 1e-3 / 10_000  # of a state, per step


def leaking(every: int) -> Make:
    """One page is lost with each `every` cancellations of requests that own some."""

    def leak() -> dict[Place, object]:
        """One page is lost with each so many cancellations."""
        owed = [0]

        def cancel(self: Engine, request_id: int) -> None:
            for row in self._live.get(request_id, ()):
                tables = [] if row.memory is None else [table for table in row.memory.tables.values() if table]
                owed[0] += 1
                if owed[0] >= every and tables:
                    tables[-1].pop()
                    owed[0] -= every
            sound_cancel(self, request_id)

        return {(Engine, "cancel"): cancel}

    return remembering(leak)


leak, leak_often = leaking(500), leaking(50)


@remembering
def dirty() -> dict[Place, object]:
    """The recurrent slot of a request that was cancelled is handed on with what is in it."""
    left = set[int]()

    def cancel(self: Engine, request_id: int) -> None:
        rows = self._live.get(request_id, ())
        left.update(row.memory.slot for row in rows if row.memory is not None and row.memory.slot is not None)
        sound_cancel(self, request_id)

    def take(self: Slots) -> int | None:
        slot = self._free[-1] if self.layers else None
        if slot not in left:
            return sound_take(self)
        left.remove(slot)
        return self._free.pop()

    return {(Engine, "cancel"): cancel, (Slots, "take"): take}


def wrapping(limit: int) -> Make:
    """Behind so many steps of the decoder, the first row of every round's logits is looked up at a negative index."""

    def wrap() -> dict[Place, object]:
        """Behind so many steps, the first row of a round's logits is looked up at a negative index."""
        steps = [0]

        def step(self: Engine) -> list[Any]:
            steps[0] += 1
            return sound_step(self)

        def transact(row: Row, proposal: Proposal, logits: Any, terms: Terms, policy: Mapping[str, int]) -> Tokens:
            if steps[0] % (2 * limit) >= limit:
                logits = np.concatenate([logits[-1:], logits[1:]])
            return sound_transact(row, proposal, logits, terms, policy)

        return {(Engine, "step"): step, (engine, "transact"): transact}

    return remembering(wrap)


wrap, wrap_soon = wrapping(WRAP), wrapping(16)


@remembering
def lean() -> dict[Place, object]:
    """The emitted law is 0.005 of total variation off: that much of the best token's mass goes to the second best."""

    def leaned(law: Any) -> Any:
        best, second = np.argsort(-law, kind="stable")[:2]
        moved = law.copy()
        moved[best] -= LEAN
        moved[second] += LEAN
        return moved if law[best] > LEAN else law

    def verify(rule: Rule, p: Callable[[int], Any], proposal: Proposal, uniform: Uniform) -> Verdict:
        return sound_verify(rule, lambda slot: leaned(p(slot)), proposal, uniform)

    return {(transaction, "verify"): verify}


@remembering
def drift() -> dict[Place, object]:
    """A recurrent state grows by a thousandth in ten thousand steps."""

    def keep(self: Slots, layer: int, slots: Tensor, states: Tensor) -> None:
        sound_keep(self, layer, slots, states * (1 + DRIFT))

    return {(Slots, "keep"): keep}


HOURS: Sequence[Make] = (leak, dirty, wrap, lean, drift)

"""Histories: what a client and a scheduler do to a decoder, as plain data that can be told and played again."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from specqual.contract import Request, Sampling

from .generators import CHUNK, FARTHEST, PAGE, prompt, sizes, usable

if TYPE_CHECKING:
    from .lab import Lab

FAMILIES = 3


Cast = tuple[Request, ...]
"""The requests that a history submits, by place."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rule. `who` is a place in the cast for `submit`, else that of a submission in its history; `amount` is a
    size: draft length, chunk, lag, ticks, or what `script` counts.

    `script` m: drafts are right in the first m places and wrong behind them, m up to K; K + 1 is silence, and K + 2 an
    m of its own for every request and round. `own_drafter` gives the drafts back to the configured drafter.
    """

    verb: str
    who: int = 0
    amount: int = 0


def name(place: int) -> str:
    """A, B, … Z, A1, …: what a history calls its requests."""
    turn, letter = divmod(place, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(turn) if turn else "")


def told(steps: Sequence[Step], cast: Sequence[Request], longest: int) -> str:
    """A history in words: submit A(prompt 17, max 9) · step · preempt A · …"""
    words, submitted = list[str](), 0
    for step in steps:
        who = name(step.who)
        if step.verb == "submit":
            words.append(f"submit {name(submitted)}({described(cast[step.who])})")
            submitted += 1
        elif step.verb in ("cancel", "preempt", "resume"):
            words.append(f"{step.verb} {who}")
        elif step.verb == "step":
            words.append("step" if step.amount == 1 else f"step ×{step.amount}")
        elif step.verb == "script":
            silent = {longest + 1: "drafts silent", longest + 2: "drafts right in 0, 1, 2 …"}
            words.append(silent.get(step.amount, f"drafts right in {step.amount}"))
        elif step.verb == "alternate":
            words.append("every other round undrafted")
        elif step.verb in ("own_drafter", "drain"):
            words.append("own drafter" if step.verb == "own_drafter" else "step until idle")
        else:
            words.append(f"{step.verb.removeprefix('set_')} {step.amount}")
    return " · ".join(words)


def described(request: Request) -> str:
    """prompt 17, max 9, sampled, 2 samples"""
    words = [f"prompt {len(request.prompt)}", f"max {request.max_tokens}"]
    words += [] if request.sampling.greedy else ["sampled"]
    words += [f"{request.n} samples"] if request.n > 1 else []
    return ", ".join(words)


def family_of(request: Request, cast: Sequence[Request]) -> list[int]:
    """The places in the cast whose prompts begin as this one does."""
    return [place for place, other in enumerate(cast) if other.prompt[0] == request.prompt[0]]


def cast_of(lab: "Lab") -> tuple[Request, ...]:
    """The requests that histories submit, shortest prompts first.

    They come in families: within one, prompts share their beginning, up to all of it; across families, not even the
    first token. Prompts end around pages, chunks and the sliding window; outputs run past the next edge.
    """
    chance = lab.random("histories")
    window = lab.window if lab.window is not None and lab.window <= FARTHEST else CHUNK + 2
    far = max(window, CHUNK + 2)
    lengths = (1, 15, 2, PAGE, 17, 3, CHUNK - 1, CHUNK, CHUNK + 1, far - 3, far + 1)
    firsts = chance.sample(usable(lab), FAMILIES)
    bases = [(first, *prompt(lab, chance, far + 8)[1:]) for first in firsts]
    honoured = lab.honours("temperature", "seed")
    found = list[Request]()
    for family, base in enumerate(bases):
        for place, length in enumerate(lengths[family:] if family else lengths):
            sampled = honoured and (place + family) % 3 == 2
            ids = base[:length]
            if length > CHUNK and place % 2:  # leaves its family behind the first chunk
                ids = (*base[:CHUNK], *reversed(base[CHUNK:length]))
            size, budget = sizes(lab, length, (9, 14, 5, 12, 1, 16, 7, 2)[(place + 3 * family) % 8])
            found.append(
                Request(
                    prompt=ids[:size],
                    max_tokens=budget,
                    sampling=Sampling(temperature=0.9) if sampled else Sampling(),
                    seed=chance.randrange(2**32) if sampled else 0,
                    n=2 if lab.honours("n") and lab.has("samples") and (place + family) % 5 == 3 else 1,
                    ignore_eos=lab.honours("ignore_eos"),
                )
            )
    return tuple(sorted(found, key=lambda request: len(request.prompt)))

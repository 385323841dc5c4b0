"""Long runs: every draft rejected, beside plain decoding; and what is held as the length grows."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from specqual.contract import Finished, Proposal, Request, ScriptContext, Tokens

from .compare import tolerance_of
from .drive import DecoderError, guarded
from .evidence import Case
from .kinds.values import excused
from .lab import Lab
from .scripts import allowed
from .states import first_difference, largest
from .ties import tie_of
from .twin import look

EVERY = 8  # tokens between two comparisons of states


class Arm:
    """One decoder with one request, advanced token by token."""

    def __init__(self, decoder: Any, request: Request) -> None:
        self.decoder, self.request, self.output, self.ended = decoder, request, list[int](), False
        self.id = guarded("submit", lambda: decoder.submit(request))

    def follow(self, output: Sequence[int]) -> None:
        """Go on behind another output than its own, as a new request that has it in its prompt."""
        if not self.ended:
            guarded("cancel", lambda: self.decoder.cancel(self.id))
        left = self.request.max_tokens - len(output)
        longer = replace(self.request, prompt=(*self.request.prompt, *output), max_tokens=left)
        self.output, self.ended = list(output), False
        self.id = guarded("submit", lambda: self.decoder.submit(longer))

    def advance(self, tokens: int) -> None:
        """Step until so many tokens are out, or the request has ended."""
        idle = 0
        while len(self.output) < tokens and not self.ended:
            events = [event for event in guarded("step", self.decoder.step) if event.request_id == self.id]
            self.output += [int(t) for event in events if isinstance(event, Tokens) for t in event.ids]
            self.ended = any(isinstance(event, Finished) for event in events)
            idle = 0 if events else idle + 1
            if idle > 200:
                raise DecoderError(f"a request said nothing for {idle} ticks")


def rejected(lab: Lab, request: Request) -> tuple[Case, int, int]:
    """A run in which no draft is right, against one that drafts nothing: the first difference, the rejections, and how
    many states were compared. Where the two part at a tie, the other one goes on behind the first one's tokens."""
    twin, vocabulary = lab.campaign.twin, lab.claims.limits.vocab_size
    with ExitStack() as stack:
        rejecting, plain = (Arm(stack.enter_context(twin.fresh()), request) for _ in range(2))

        def wrong(context: ScriptContext) -> Proposal:
            """Whatever the other run does not say next."""
            place = len(context.tokens) - len(request.prompt)
            plain.advance(place + 1)
            right = plain.output[place] if place < len(plain.output) else 0
            drafts = [(right + 1 + slot) % vocabulary for slot in range(context.max_draft)]
            return allowed(lab, context, drafts, [right])

        guarded("script", lambda: rejecting.decoder.script(wrong))
        guarded("schedule", lambda: plain.decoder.schedule(draft=0))
        compared, ties, different, worst = 0, 0, None, 0.0
        while different is None and not rejecting.ended:
            rejecting.advance(len(rejecting.output) + 1)
            plain.advance(len(rejecting.output))
            count = len(rejecting.output)
            if plain.output[:count] != rejecting.output:
                if not excused(tie_of(lab, request, plain.output[:count], rejecting.output)):
                    different = ("output", plain.output[-4:], rejecting.output[-4:])
                elif not rejecting.ended:
                    plain.follow(rejecting.output)
                ties += 1
            elif count % EVERY == 0 and not rejecting.ended and len(plain.output) == count:
                mine, other = (look(arm.decoder, arm.id, 0) for arm in (plain, rejecting))
                if mine is not None and other is not None:
                    compared += 1
                    found = first_difference(
                        mine.tensors, other.tensors, other.positions, mine.positions, tolerance_of(lab, twin)
                    )
                    different = next(iter(found), None)
                    worst = max(worst, largest(mine.tensors, other.tensors))
        rounds = guarded("rounds", lambda: rejecting.decoder.rounds(rejecting.id))
    seen = None
    if different is not None:
        what = f"after {len(rejecting.output)} tokens: {different[0]}"
        seen = {"what": what, "expected": different[1], "actual": different[2], "tolerance": tolerance_of(lab, twin)}
    case = {
        "history": f"prompt {len(request.prompt)}, {len(rejecting.output)} tokens, every draft wrong",
        "rules": len(rejecting.output),
        "comparisons": compared + len(rejecting.output),
        "largest": worst,
        "ties": ties,
        "difference": seen,
    }
    return case, sum(bool(r.proposals) and not r.accepted for r in rounds), compared


def held(lab: Lab, request: Request) -> tuple[list[Case], int]:
    """Pages held, token by token, against what the visible rows need, and how far the longest window was passed.

    A decoder that does not tell its page size has it inferred: from the first length that takes another page than the
    first token did. Beyond what its rows fill, a stream may hold one page at either end, and one for the round to come.
    """
    inferred, passed, cases = None, 0, list[Case]()
    with lab.campaign.twin.fresh() as decoder:
        arm = Arm(decoder, request)
        while not arm.ended:
            arm.advance(len(arm.output) + 1)
            state = None if arm.ended else look(decoder, arm.id, 0)
            if state is None:
                continue
            counts = [len(places) for name, places in sorted(state.positions.items()) if name.endswith(".key")]
            if inferred is None and state.page_size is None:
                if len(state.pages) <= len(counts):
                    continue
                inferred = max(1, state.length - 1 - lab.longest)
            size = state.page_size or inferred or 1
            told = f"{size} positions" if state.page_size else f"at least {size} positions, as inferred"
            most = sum(-(-count // size) + 2 for count in counts)
            passed = max(passed, state.length - min(counts, default=state.length))
            cases.append(
                {
                    "what": f"{state.length} tokens, {len(state.pages)} pages of {told}: more than {most}",
                    "expected": 0,
                    "actual": max(0, len(state.pages) - most),
                }
            )
    return cases, passed

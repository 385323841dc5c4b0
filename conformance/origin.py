"""Where an output went wrong first: the round, layer and tensor in which a decoder leaves the reference.

Told of a violation only, and from what its history showed. Each state is compared with the reference's for the same
tokens, as far as rounding lets it, and, where bits are claimed to be equal, with that of the same decoder given these
tokens as a prompt; each token with the law behind its own prefix. What a layer holds follows from the layers before it,
so the first layer of the first round is where to look.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from specqual.contract import Decoder, Inspectable, Request, Round, State, Traced

from .compare import replayed
from .draws import Number, decisions, slack_of
from .drive import serve_any
from .evidence import Evidence, decide
from .kinds import Case, draws
from .lab import Lab
from .looks import Look, Watch
from .refill import Refill, Tolerances, causal
from .states import first_difference
from .verdicts import Verdict

TARGET, TOKEN, DRAFTER = range(3)  # in the order of a round: a pass, what is chosen, what the drafter takes in
Found = tuple[int, int, Case]
"""The round and the part of it in which something differs, and what."""


def explained(lab: Lab, evidence: Evidence, again: Callable[[int], Case | None]) -> Evidence:
    """The same evidence; of a violation, its case says where it began, as `again(case)` finds out.

    A decoder that is wrong may well break when it is asked again, or show a state that nothing can be compared with:
    then nothing is said of where it began, and the violation stands.
    """
    decision = decide(evidence.json())
    if decision.verdict is not Verdict.VIOLATED or decision.case is None:
        return evidence
    cases = [*evidence.cases]
    with suppress(Exception):
        cases[decision.case] = began(cases[decision.case], again(decision.case))
    return replace(evidence, cases=cases)


def began(case: Case, found: Case | None) -> Case:
    """A case with where it began, if that is known."""
    return case if found is None else case | {"origin": found}


def served_again(
    lab: Lab, decoder: Decoder, requests: Sequence[Request], place: int = 0, number: Number | None = None
) -> Case | None:
    """Serve requests again and look at one of them: where it goes wrong first; None if it does not, or unseen.

    `number(key)` are the random numbers that the decoder uses, where they are known.
    """
    if not (isinstance(decoder, Inspectable) and isinstance(decoder, Traced)):
        return None
    watch = Watch(decoder, requests[place], place)
    with suppress(Exception):  # as in `explained`
        answer = serve_any(decoder, requests, on_tick=watch)[place]
        return origin(lab, answer.request, answer.rounds or (), watch.looks, number)
    return None


def origin(
    lab: Lab, request: Request, rounds: Sequence[Round], looks: Sequence[Look], number: Number | None = None
) -> Case | None:
    """What differs first in the history of a request, or None; rounds are counted from the prefill of their sample.

    What the drafter holds cannot change a greedy token, so there it comes last.
    """
    found: list[Found] = []
    for sample in range(request.n):
        own = [r for r in rounds if r.sample == sample]
        seen = [one for one in looks if one.sample == sample and one.state.length]
        for index, part, what in (*states(lab, own, seen), *tokens(lab, request, own, number)):
            told = {"sample": sample, "round": index, "did": did(request, own, index)}
            found.append((index, part, told | what))
    greedy = request.sampling.greedy
    first = min(found, key=lambda one: (greedy and one[1] == DRAFTER, one[:2]), default=None)
    return None if first is None else first[2]


def did(request: Request, rounds: Sequence[Round], index: int) -> str:
    """A round in words."""
    if not index:
        return f"prefill {len(request.prompt)}"
    r = rounds[index]
    return f"draft {len(r.proposals)} accept {r.accepted}" if r.proposals else "no draft"


def round_of(rounds: Sequence[Round], position: int) -> int:
    """The round that decided the token at a position; the first one where the position is in the prompt."""
    return max((index for index, r in enumerate(rounds) if r.start < position), default=0)


def states(lab: Lab, rounds: Sequence[Round], looks: Sequence[Look]) -> Iterator[Found]:
    """The first look at which the target's state differs, and the first at which the drafter's does."""
    parts, before = {TARGET, DRAFTER}, 0
    refill = Refill(lab, [replayed(seen) for seen in looks])
    for seen in looks:
        index, found = round_of(rounds, len(seen.tokens) - 1), list[Case]()
        for expected, tolerances in refill.states(replayed(seen)):
            found += unlike(expected, seen.state, tolerances)
        for part in sorted(parts):
            mine = [what for what in found if causal(what["tensor"])[0] == (part == DRAFTER)]
            if mine:
                first = min(mine, key=lambda what: causal(what["tensor"]))
                place = position(first["what"])
                yield index, part, first | {"before": place is not None and place < before}
                parts.remove(part)
        if not parts:
            return
        before = seen.state.length


def unlike(expected: State, actual: State, tolerances: Tolerances) -> Iterator[Case]:
    """Every tensor that differs, in the order in which a pass makes them; `beside` names those of the same layer that
    differ, too."""
    found: list[Case] = []
    for name in sorted(expected.tensors.keys() & actual.tensors.keys(), key=causal):
        one, other = ({name: side.tensors[name]} for side in (expected, actual))
        places, tolerance = (actual.positions, expected.positions), tolerances.get(name, 0.0)
        for what, wanted, got in first_difference(one, other, *places, tolerance):
            found.append({"tensor": name, "what": what, "expected": wanted, "actual": got})
    for case in found:
        layer = [o["tensor"] for o in found if causal(o["tensor"])[:2] == causal(case["tensor"])[:2]]
        yield case | {"beside": [name for name in layer if name != case["tensor"]]}


def position(what: str) -> int | None:
    """The position that the difference of a row names."""
    place = what.rpartition(", position ")[2]
    return int(place) if place.isdigit() else None


def tokens(lab: Lab, request: Request, rounds: Sequence[Round], number: Number | None) -> Iterator[Found]:
    """The first token, or decision of a sampled request, that the target's law behind its own prefix does not yield."""
    output = [token for r in rounds for token in r.committed]
    if request.sampling.greedy:
        judged, start = lab.judge.judge(request, output), len(request.prompt)
        for place, (best, own) in enumerate(zip(judged.best, judged.logprob, strict=True)):
            if own is None or best - own > lab.envelope():
                what = {"what": f"token at position {start + place}", "expected": judged.argmax[place]}
                yield round_of(rounds, start + place), TOKEN, {"tensor": "logits", **what, "actual": output[place]}
                return
    elif number is not None:
        made = decisions(lab, request, list(rounds), number, scripted=False)
        wrong = draws.decide([{"slack": slack_of(lab), "decisions": made}])
        if wrong.verdict is Verdict.VIOLATED and wrong.place is not None:
            index = round_of(rounds, made[wrong.place]["position"])
            yield index, TOKEN, {"tensor": "logits", "what": wrong.detail, "expected": None, "actual": None}

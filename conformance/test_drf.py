"""DRF: the drafter sees what it was trained to see; proposals, q and context equal the reference drafter's."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from specqual.conformance.chapter import clause
from specqual.conformance.drive import Answer, NotOffered, guarded, serve, serve_any
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import basic_requests, greedy_requests, prompt
from specqual.conformance.lab import Lab, taped
from specqual.contract import CompactLaw, Key, Proposal, Purpose, Request, Round, Sampling
from specqual.contract.errors import CheckpointError
from specqual.reference.drafter import DraftContext, Drafter, load_drafter
from specqual.reference.rng import Counter
from specqual.reference.target import load_target

Numbers = Callable[[Key], float]


class Twin:
    """The reference drafter beside the decoder's: in float64, and where that leaves a tie, in the claimed dtype."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._narrow = lab, None
        self.drafter = self._load(lab.judge.target, torch.float64)

    def _load(self, target: Any, dtype: torch.dtype) -> Drafter:
        draft = self._lab.run.setup.draft
        if draft is None:
            raise NotOffered("there is no drafter checkpoint")
        try:
            return load_drafter(draft, target, dtype=dtype)
        except CheckpointError as error:
            raise NotOffered(f"the reference does not know this drafter: {error}") from error

    def context(self, tokens: Sequence[int]) -> DraftContext:
        """What the drafter may look at before a round; `tokens` are prompt and committed output, the anchor last."""
        target = self._lab.judge.target
        return DraftContext(tuple(tokens), self._lab.judge.hidden(tokens[:-1]), target)

    def propose(self, tokens: Sequence[int], length: int, sampling: Sampling, u: Callable[[int], float]) -> Proposal:
        return self.drafter.propose(self.context(tokens), length, sampling, u)

    def propose_narrow(self, tokens: Sequence[int], length: int, sampling: Sampling) -> Proposal:
        """Greedy proposals in the decoder's own dtype, to tell a tie from a fault."""
        number = getattr(torch, self._lab.claims.dtype, torch.float64)
        if self._narrow is None:
            target = load_target(self._lab.run.setup.target, dtype=number)
            self._narrow = (target, self._load(target, number))
        target, drafter = self._narrow
        context = DraftContext(tuple(tokens), target.forward(tokens[:-1]).hidden, target)
        return drafter.propose(context, length, sampling, lambda slot: 0.0)


def drafted(answer: Answer) -> Iterator[tuple[str, list[int], Round]]:
    """Every round that drafted, with the tokens before it, the anchor last."""
    tokens = list(answer.request.prompt)
    for index, r in enumerate(answer.rounds or ()):
        if r.proposals:
            yield f"prompt of {len(answer.request.prompt)}, round {index}", list(tokens), r
        tokens += r.committed


def lengths(lab: Lab, r: Round) -> list[int]:
    """Block sizes that may have led to this round: as many slots as drafts, or the whole block cut short."""
    return list(dict.fromkeys((len(r.proposals), lab.longest)))


@clause("DRF-1")
def test_proposals_equal_the_reference_drafters(lab: Lab) -> Evidence:
    twin, cases = Twin(lab), list[Case]()
    partial = full = 0
    for request in basic_requests(lab):
        answer = lab.answer(request)
        lab.judge.forward((*request.prompt, *answer.output))  # one pass serves every round
        for where, tokens, r in drafted(answer):
            actual, expected = list(r.proposals), list[int]()
            for length in lengths(lab, r):
                found = twin.propose(tokens, length, request.sampling, lambda slot: 0.0).tokens
                expected = expected or list(found[: len(actual)])
                if list(found[: len(actual)]) == actual:
                    expected = actual
            if expected != actual and lab.claims.dtype != "float64":
                narrow = list(twin.propose_narrow(tokens, len(actual), request.sampling).tokens)
                expected = narrow if narrow == actual else expected
            cases.append({"what": f"{where}: drafts behind {tokens[-4:]}", "expected": expected, "actual": actual})
            partial += 0 < r.accepted < len(r.proposals)
            full += len(r.proposals) == lab.longest
    return Evidence(
        "values", cases, [Guard("partial acceptances before", partial), Guard("rounds of full length", full)]
    )


def flat(law: CompactLaw | None) -> list[Any]:
    return ["certain"] if law is None else [list(law.ids), [float(p) for p in law.probabilities]]


@clause("DRF-2")
def test_q_equals_the_reference_drafters_on_the_same_tape(lab: Lab) -> Evidence:
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    twin, tape, cases = Twin(lab), Counter(), list[Case]()
    tolerance = max(1e-9, 16 * lab.envelope())
    chance = lab.random("DRF-2")
    for temperature in (1.0, 0.6):
        request = Request(
            prompt=prompt(lab, chance, 9),
            max_tokens=lab.effort.span,
            sampling=Sampling(temperature=temperature),
            seed=chance.randrange(2**32),
        )
        with taped(lab.decoder, tape):
            answer = serve(lab.decoder, [request])[0]
        for where, tokens, r in drafted(answer):

            def number(slot: int, start: int = r.start + 1, seed: int = request.seed) -> float:
                return tape.uniform(Key(seed, 0, start, start + slot, Purpose.DRAFT))

            actual = [list(r.proposals), [flat(law) for law in r.q]]
            for length in lengths(lab, r):
                found = twin.propose(tokens, length, request.sampling, number)
                expected = [list(found.tokens[: len(r.proposals)]), [flat(law) for law in found.q[: len(r.proposals)]]]
                if expected[0] == actual[0]:
                    break
            what = f"temperature {temperature}, {where}: drafts and q behind {tokens[-4:]}"
            cases.append({"what": what, "expected": expected, "actual": actual, "tolerance": tolerance})
    return Evidence("values", cases)


@clause("DRF-3")
def test_the_drafters_context_equals_a_replay(lab: Lab) -> Evidence:
    twin, decoder, cases = Twin(lab), lab.decoder, list[Case]()
    tolerance = max(1e-9, 16 * lab.envelope())
    request = greedy_requests(lab, "DRF-3", 1, lab.effort.span, far=True)[0]
    lab.judge.forward((*request.prompt, *lab.answer(request).output))  # one pass serves every tick

    def look(tick: int, ids: Sequence[int]) -> None:
        try:
            state = decoder.inspect(ids[0])  # type: ignore[attr-defined]
        except KeyError:
            return  # it has ended
        rounds = guarded("rounds", lambda: decoder.rounds(ids[0]))  # type: ignore[attr-defined]
        tokens = [*request.prompt, *(token for r in rounds for token in r.committed)]
        if len(tokens) < 2:
            return
        tensors, positions = twin.drafter.state(twin.context(tokens))
        held = {name for name in state.tensors if name.startswith("draft.")}
        cases.append({"what": f"tick {tick}: length", "expected": len(tokens) - 1, "actual": state.length})
        cases.append({"what": f"tick {tick}: names", "expected": sorted(tensors), "actual": sorted(held)})
        for name in sorted(held & set(tensors)):
            expected = list(positions[name])
            actual = list(state.positions.get(name, ()))
            cases.append({"what": f"tick {tick}: positions of {name}", "expected": expected, "actual": actual})
            mine, theirs = tensors[name].double(), state.tensors[name].double()
            same = mine.shape == theirs.shape
            off = float((mine - theirs).abs().max()) if same and mine.numel() else 0.0 if same else float("1e300")
            what = f"tick {tick}: largest difference in {name}"
            cases.append({"what": what, "expected": 0.0, "actual": off, "tolerance": tolerance})

    serve_any(decoder, [request], on_tick=look)
    return Evidence("values", cases)

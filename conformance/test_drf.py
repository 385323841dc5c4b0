"""DRF: the drafter sees what it was trained to see; proposals, q and context equal the reference drafter's."""

from collections.abc import Iterator, Sequence

from specqual.conformance.bracket import variation
from specqual.conformance.chapter import clause
from specqual.conformance.drafter import DraftTwin, dense, off
from specqual.conformance.draws import SUMS
from specqual.conformance.drive import Answer, guarded, serve, serve_any
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import basic_requests, greedy_requests, prompt
from specqual.conformance.hazards import drafted as drafted_rounds
from specqual.conformance.lab import Lab, taped
from specqual.conformance.rounding import EXACT
from specqual.conformance.tapes import interval
from specqual.contract import Key, Purpose, Request, Round, Sampling
from specqual.reference.rng import Counter


def drafted(answer: Answer) -> Iterator[tuple[str, list[int], Round]]:
    """Every round that drafted, with the tokens before it, the anchor last."""
    tokens = list(answer.request.prompt)
    for index, r in enumerate(answer.rounds or ()):
        if r.proposals:
            yield f"prompt of {len(answer.request.prompt)}, round {index}", list(tokens), r
        tokens += r.committed


@clause("DRF-1")
def test_proposals_equal_the_reference_drafters(lab: Lab) -> Evidence:
    twin, cases = DraftTwin.of(lab), list[Case]()
    envelope, partial, full = twin.measured[0], 0, 0
    for request in basic_requests(lab):
        answer = lab.answer(request)
        lab.judge.forward((*request.prompt, *answer.output))  # one pass serves every round
        for where, tokens, r in drafted(answer):
            what = f"{where}, behind {tokens[-4:]}"
            case = {"what": what, "drafts": list(r.proposals), "envelope": envelope.nats}
            cases.append(case | twin.greedy(tokens, r, envelope.nats))
            partial += 0 < r.accepted < len(r.proposals)
            full += len(r.proposals) == lab.longest
    guards = [Guard("rounds of full length", full)]
    guards += [Guard("partial acceptances before", partial)] if lab.longest > 1 else []
    return Evidence("drafts", cases, guards, {"envelope": str(envelope)})


@clause("DRF-2")
def test_q_equals_the_reference_drafters_on_the_same_tape(lab: Lab) -> Evidence:
    lab.sampled_rule  # noqa: B018 - raises where no law is claimed
    twin, tape, cases, chance = DraftTwin.of(lab), Counter(), list[Case](), lab.random("DRF-2")
    nats = twin.measured[0].nats
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
            what = f"temperature {temperature}, {where}, behind {tokens[-4:]}"
            limits = {"tolerance": max(variation(nats, temperature), EXACT), "envelope": nats, "sums": SUMS}
            keys = [Key(request.seed, 0, r.start + 1, r.start + 1 + i, Purpose.DRAFT) for i in range(len(r.proposals))]
            own = [interval(dense(q, lab.judge.target.vocab_size), d) for q, d in zip(r.q, r.proposals, strict=True)]
            numbers = {
                "u": [tape.uniform(key) for key in keys],
                "low": [i[0] for i in own],
                "high": [i[1] for i in own],
            }
            cases.append({"what": what, **limits, **numbers, **twin.sampled(tokens, r, request.sampling)})
    return Evidence("laws", cases, [Guard("laws of a draft", len(cases))])


@clause("DRF-3")
def test_the_drafters_context_equals_a_replay(lab: Lab) -> Evidence:
    twin, decoder, cases = DraftTwin.of(lab), lab.decoder, list[Case]()
    tolerance = twin.measured[1].nats
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
            worst = min(float(off({name: tensors[name]}, state.tensors)[name].max(initial=0.0)), 1e300)
            what = f"tick {tick}: largest relative error of a row of {name}"
            cases.append({"what": what, "expected": 0.0, "actual": worst, "tolerance": tolerance})

    rounds = drafted_rounds(serve_any(decoder, [request], on_tick=look))
    rejected = sum(r.accepted < len(r.proposals) for r in rounds)
    return Evidence("values", cases, [Guard("rounds with a rejected draft", rejected)])

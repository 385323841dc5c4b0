"""NUM: stored numbers mean what their formats say, kernels compute what they must, and NaN makes no token."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import combinations
from math import inf, nan
from pathlib import Path

import torch
from torch import Tensor

from specqual.conformance.chapter import clause
from specqual.conformance.definitions import attended, decoded, error, every_code, spread, stored, torchs, unlike
from specqual.conformance.drafter import DraftTwin
from specqual.conformance.drive import Answer, DecoderError, NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence, Guard
from specqual.conformance.generators import greedy_requests, usable
from specqual.conformance.greedy import case_of
from specqual.conformance.hazards import batch
from specqual.conformance.hazards import beside as served_beside
from specqual.conformance.lab import Lab, elsewhere, scripted
from specqual.conformance.mutate import changed
from specqual.conformance.operations import LENGTHS, Bench
from specqual.conformance.quantise import beside, quantised, quantised_draft, tiny
from specqual.conformance.rounding import summation
from specqual.conformance.scripts import mask_id
from specqual.conformance.ties import tie_of
from specqual.contract import CompactLaw, Proposal, Request, Rule, Sampling, ScriptContext, Traced
from specqual.contract.checkpoint import open_target
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Format

QUANTISED = (Format.FP8, Format.NVFP4, Format.NVFP4_PACKED)
PUBLIC = 0.0078125  # largest difference of SDPA and FlashAttention on this geometry in a public report
GEOMETRY = (32, 8, 128, 8, 2048)  # heads, key heads, their size, queries of a block, window


def each(lab: Lab, look: Callable[[Lab, Format], list[Case]]) -> tuple[list[Case], dict[str, str]]:
    """Cases of every format that the decoder loads, and why it does not load others; NotOffered if it loads none."""
    cases, refused = list[Case](), dict[str, str]()
    for kind in QUANTISED:
        try:
            with quantised(lab, kind) as other:
                cases += look(other, kind)
        except NotOffered as reason:
            refused[kind] = str(reason)
    if not cases:
        raise NotOffered(f"the decoder loads no quantised target: {refused[QUANTISED[0]]}")
    return cases, refused


@clause("NUM-1")
def test_quantised_targets_are_decoded_exactly(lab: Lab) -> Evidence:
    def look(other: Lab, kind: Format) -> list[Case]:
        wanted = greedy_requests(other, "NUM-1", 2, other.effort.span)
        answers = [other.answer(request) for request in wanted]
        return [case_of(other, answer, label=f"target in {kind}", envelope=other.envelope()) for answer in answers]

    cases, refused = each(lab, look)
    return Evidence("greedy", cases, notes={"not loaded": refused})


@clause("NUM-2")
def test_scores_of_quantised_targets_are_the_references(lab: Lab) -> Evidence:
    def look(other: Lab, kind: Format) -> list[Case]:
        request = greedy_requests(other, "NUM-2", 1, other.effort.span)[0]
        output = other.answer(request).output
        scored = guarded("score", lambda: other.decoder.score(request.prompt, output))  # type: ignore[attr-defined]
        judged = other.judge.judge(request, output)
        return [
            {
                "what": f"{name} of {len(output)} tokens of a target in {kind}",
                "expected": list(getattr(judged, name)),
                "actual": [float(value) for value in getattr(scored, name)],
                "tolerance": other.envelope(),
            }
            for name in ("logprob", "best", "runner_up")
        ]

    cases, refused = each(lab, look)
    return Evidence("values", cases, notes={"not loaded": refused})


@clause("NUM-3")
def test_quantised_drafters_are_decoded_exactly(lab: Lab) -> Evidence:
    DraftTwin.of(lab)  # which says why there is nothing to compare with
    cases, refused = list[Case](), dict[str, str]()
    assert lab.run.setup.draft is not None
    for kind in QUANTISED:
        try:
            with quantised_draft(lab.run.setup.draft, kind) as copy, beside(lab, draft=copy) as other:
                twin = DraftTwin.of(other)
                nats = twin.measured[0].nats
                for request in greedy_requests(other, "NUM-3", 1 + other.thorough, other.effort.span):
                    tokens = list(request.prompt)
                    for index, r in enumerate(other.answer(request).rounds or ()):
                        what = f"drafter in {kind}, round {index}, behind {tokens[-4:]}"
                        case = {"what": what, "drafts": list(r.proposals), "envelope": nats}
                        cases += [case | twin.greedy(tokens, r, nats)] if r.proposals else []
                        tokens += r.committed
        except (NotOffered, CheckpointError) as reason:
            refused[kind] = str(reason)
    if len(refused) == len(QUANTISED):
        raise NotOffered(f"the decoder loads no quantised drafter: {refused[QUANTISED[0]]}")
    return Evidence("drafts", cases, notes={"not loaded": refused})


# -- what is no number -------------------------------------------------------------------------------------------------


def legal(lab: Lab, label: str, answers: Iterable[Answer]) -> Iterator[Case]:
    """Answers hold tokens of the vocabulary, as many as asked for, and at least one of every round."""
    vocabulary = range(lab.claims.limits.vocab_size)
    for place, answer in enumerate(answers):
        what = f"{label}, {'greedy' if answer.request.sampling.greedy else 'sampled'} request {place}"
        strange = [token for token in answer.output if token not in vocabulary]
        yield {"what": f"{what}: tokens that are none", "expected": [], "actual": strange}
        full = answer.request.max_tokens if answer.request.ignore_eos else len(answer.output)
        yield {"what": f"{what}: tokens", "expected": full, "actual": len(answer.output)}
        if answer.rounds is not None:
            idle = sum(not r.committed for r in answer.rounds)
            yield {"what": f"{what}: rounds without a token", "expected": 0, "actual": idle}


def mixed(lab: Lab, clause_id: str) -> list[Request]:
    """Greedy requests, and a sampled one where that is honoured; none has the last usable token in its prompt."""
    found = greedy_requests(lab, clause_id, 3, lab.effort.span)
    if lab.honours("temperature", "seed"):
        sampling = Sampling(temperature=0.9, **({"top_p": 0.9} if lab.honours("top_p") else {}))
        found.append(replace(found[0], sampling=sampling, seed=5))
    return found


def rows_of(directory: Path) -> tuple[str, str]:
    """The tensors that hold a row for each token: the embedding and the head."""
    config = open_target(directory).config
    embedding = f"{config.prefix}embed_tokens.weight"
    return embedding, embedding if config.tied else "lm_head.weight"


def beside_own(lab: Lab, directory: Path) -> AbstractContextManager[Lab]:
    """A laboratory for another target, with the run's drafter where the target is the run's own or a copy of it."""
    own = directory.name == lab.run.setup.target.name
    alone: dict[str, None] = {} if own else {"draft": None, "draft_length": None}
    return elsewhere(lab, target=directory, **alone)


def served(lab: Lab, requests: list[Request], notes: dict[str, str]) -> tuple[Answer, ...]:
    """Serve these together; without the sampled ones where the decoder raises rather than draw from what is no law."""
    try:
        return batch(lab, requests)
    except DecoderError as error:
        greedy = [request for request in requests if request.sampling.greedy]
        if len(greedy) == len(requests):
            raise
        notes["not sampled"] = str(error)
        lab.renew()
        return batch(lab, greedy)


@clause("NUM-4")
def test_what_is_no_number_in_a_target_makes_no_illegal_token(lab: Lab) -> Evidence:
    directory, cases, notes, batches = tiny(lab), list[Case](), dict[str, str](), list[tuple[Answer, ...]]()
    embedding, head = rows_of(directory)
    compared = 0
    with beside_own(lab, directory) as sound:
        wanted = mixed(sound, "NUM-4")
        answers = {answer.request: answer for answer in serve(sound.decoder, wanted)}
        known = {mask_id(sound), *sound.claims.limits.eos_ids}
        for answer in answers.values():  # a draft is met, too
            known |= {*answer.request.prompt, *answer.output, *(t for r in answer.rounds or () for t in r.proposals)}
        seen = isinstance(sound.decoder, Traced) or not sound.longest
        token = next((t for t in reversed(range(sound.claims.limits.vocab_size)) if t not in known), None)
    if token is None:
        raise NotOffered("every token of the vocabulary occurs in the requests")
    places = {"head": head, "embedding": embedding}  # one tensor where they are tied
    spoils = [("head", nan), ("head", inf), ("embedding", nan)]
    spoils += [("head", -inf), ("embedding", inf)] if lab.thorough else []
    spoils = [spoil for spoil in spoils if spoil[0] == "head" or lab.has("no-numbers")]
    for place, value in spoils:
        name = places[place]

        def spoil(tensors: dict[str, Tensor], name: str = name, value: float = value) -> None:
            tensors[name][token] = value

        with changed(directory, tensors=spoil) as copy, beside_own(lab, copy) as other:
            if place == "head":
                cases += legal(other, f"a row of {value} in {name}", served(other, wanted, notes))
                continue
            behind = replace(wanted[0], prompt=(*wanted[0].prompt, token))
            found = served(other, [behind, *wanted], notes)
            batches.append(found)
            cases += legal(other, f"a row of {value} in {name}, the first prompt ends there", found)
            for answer in found[1:] if seen and embedding != head else ():
                request, before = answer.request, answers[answer.request].output
                if lab.must_repeat or request.sampling.greedy:  # else rounding may have moved a draw
                    what = f"output beside a request behind a row of {value}"
                    case = {"what": what, "expected": list(before), "actual": list(answer.output)}
                    cases.append(case | tie_of(other, request, before, answer.output))
                    compared += 1
    guards = [served_beside(lab, batches)]
    if embedding != head:  # else every law holds the row, and no output is as before
        guards.append(Guard("outputs compared beside such a row", compared if seen else None))
    return Evidence("values", cases, guards, notes)


@clause("NUM-5")
def test_what_is_no_law_of_a_drafter_makes_no_illegal_token(lab: Lab) -> Evidence:
    if not lab.longest:
        raise NotOffered("speculation is off")
    cases, ids, offered = list[Case](), usable(lab), 0
    wanted = mixed(lab, "NUM-5")[0 if lab.thorough else -2 :]
    laws = {"NaN": (nan, 0.5), "infinite": (inf, 0.5), "negative": (-0.5, 1.5), "no mass": (0.0, 0.0)}
    for name, masses in laws.items() if lab.has("no-laws") else ():

        def script(context: ScriptContext, masses: tuple[float, float] = masses) -> Proposal:
            nonlocal offered
            offered += context.max_draft > 0
            drafts = tuple(ids[(len(context.tokens) + slot) % len(ids)] for slot in range(context.max_draft))
            others = (ids[0] if draft != ids[0] else ids[1] for draft in drafts)
            return Proposal(drafts, tuple(CompactLaw(pair, masses) for pair in zip(drafts, others, strict=True)))

        with scripted(lab.decoder, script):
            answers = serve(lab.decoder, wanted)
        cases += legal(lab, f"{name} laws", answers)
        for answer in answers:
            if not answer.request.sampling.greedy and lab.claims.rule in (Rule.RATIO, Rule.BLOCK):
                kept = sum(r.accepted for r in answer.rounds or ())
                cases.append({"what": f"{name} laws: drafts accepted by sampling", "expected": 0, "actual": kept})
            if answer.request.sampling.greedy:
                judged = lab.judge.judge(answer.request, answer.output)
                regret = max(b - (-inf if p is None else p) for b, p in zip(judged.best, judged.logprob, strict=True))
                case = {"what": f"{name} laws: largest regret of a greedy token", "expected": 0.0, "actual": regret}
                cases.append(case | {"tolerance": lab.envelope()})
    return Evidence("values", cases, [Guard("proposals with such laws", offered)])  # what becomes of them is its affair


# -- kernels -----------------------------------------------------------------------------------------------------------


@clause("NUM-6")
def test_a_linear_kernel_reads_every_stored_weight(lab: Lab) -> Evidence:
    bench, cases = Bench.of(lab, "NUM-6"), list[Case]()
    linear, inputs = bench.kernels.linear, 64
    if linear is None:
        raise NotOffered("the decoder has no linear kernel of its own")
    step = torch.finfo(bench.dtype).eps / 2 + torch.finfo(bench.wide).eps  # the result's, and those of the scales
    rows = torch.eye(inputs, dtype=bench.dtype)
    for kind in Format:
        weight = every_code(stored(kind, bench.normal(96, inputs), bench.dtype))
        exact = decoded(weight, torch.float64).T
        off = (linear(rows, weight).double() - exact).abs() / exact.abs().clamp(min=torch.finfo(bench.dtype).tiny)
        row, column = divmod(int(off.nan_to_num(inf).argmax()), exact.shape[1])
        what = f"linear {kind}: relative error of a weight, the worst that of output {column}, input {row}"
        cases.append({"what": what, "expected": 0.0, "actual": float(off[row, column]), "tolerance": step})
    return Evidence("values", cases)


@clause("NUM-7")
def test_kernels_are_as_exact_as_their_definitions(lab: Lab) -> Evidence:
    bench, cases = Bench.of(lab, "NUM-7"), list[Case]()
    for operation in bench.operations():
        found, worst, own, size = operation.run(operation.spans), 0.0, 0.0, 0.0
        for span, actual in zip(operation.spans, found, strict=True):
            exact = operation.define(span, torch.float64)
            worst = max(worst, error(actual, exact))
            own = max(own, error(operation.define(span, bench.dtype), exact))
            size = max(size, float(exact.abs().max()))
        allowed = 2 * own + summation(bench.dtype) * torch.finfo(bench.dtype).eps * size
        case = {"what": f"{operation.name}: largest error", "expected": 0.0, "actual": worst}
        cases.append(case | {"tolerance": 0.0 if operation.exact else allowed})
    return Evidence("values", cases)


@clause("NUM-8")
def test_attention_is_exact_on_the_dflash_geometry(lab: Lab) -> Evidence:
    bench, cases, apart = replace(Bench.of(lab, "NUM-8"), dtype=torch.bfloat16), list[Case](), dict[str, float]()
    if not bench.kernels.attention:
        raise NotOffered("the decoder has no attention kernel of its own")
    for context, causal in ((0, False), (500, False), (2048 + 77, False), (300, True)):
        spans = [bench.block(GEOMETRY, length) for length in (context, context // 3)[: 1 + lab.thorough]]
        window = None if causal else GEOMETRY[-1]
        exact = [attended(span, torch.float64, window=window, causal=causal) for span in spans]
        plain = [torchs(span, window, causal) for span in spans]
        found = {name: back_end(spans, window, causal) for name, back_end in bench.kernels.attention.items()}
        where = f"{context} positions, {'causal' if causal else 'not causal'}"
        for name, seen in found.items():
            for measure, of in (("largest", error), ("root mean square", spread)):
                off, torchs_own = (max(of(*pair) for pair in zip(side, exact, strict=True)) for side in (seen, plain))
                case = {"what": f"{name}, {where}: {measure} error", "expected": 0.0, "actual": off}
                cases.append(case | {"tolerance": 2 * torchs_own})
        for one, two in combinations(found, 2):
            difference = max(error(*pair) for pair in zip(found[one], found[two], strict=True))
            apart[f"{one} and {two}, {where}"] = difference
    inputs = "standard normal"
    return Evidence("values", cases, notes={"largest difference": apart, "inputs": inputs, "public figure": PUBLIC})


@clause("NUM-9")
def test_a_kernels_bits_depend_on_its_row_alone(lab: Lab) -> Evidence:
    if not lab.claims.greedy.bitwise:
        raise NotOffered("the decoder does not claim to be bitwise")
    bench, chance, cases = Bench.of(lab, "NUM-9"), lab.random("NUM-9/order"), list[Case]()
    for operation in bench.operations(lab.claims.attention):
        alone = [operation.run([span])[0] for span in operation.spans]
        places, calls = list(range(len(alone))), 0
        for count in range(1, len(alone) + 1):
            some = chance.sample(places, count)
            together = operation.run([operation.spans[place] for place in some])
            for rank, (place, mine) in enumerate(zip(some, together, strict=True)):
                what = f"{operation.name}: span {place} alone, and as number {rank} of {count}"
                cases += unlike(what, alone[place], mine)
            calls += count
        for place, span in enumerate(operation.spans):
            everywhere = range(1, LENGTHS[place])
            for at in (
                () if operation.cut is None else everywhere if lab.thorough else {*everywhere[:1], *everywhere[-1:]}
            ):
                what = f"{operation.name}: span of {LENGTHS[place]}, whole and cut behind {at}"
                cases += unlike(what, alone[place], operation.cut(span, at))
                calls += 1
        cases.append({"what": f"{operation.name}: {calls} spans again", "expected": 0, "actual": 0})
    return Evidence("values", cases)

"""Facts that every reference drafter obeys, in float64: definitions, laws, edges of windows, formats, refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specqual.contract import CompactLaw, Method, Proposal, Request, Sampling, Setup
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.schema import draft_linears
from specqual.fixtures import path
from specqual.reference import make, selector
from specqual.reference.choice import pick
from specqual.reference.convolution import convolve, convolve_by_definition
from specqual.reference.dflash import block_pass, context_rows
from specqual.reference.drafter import BlockDrafter, DraftContext, load_drafter
from specqual.reference.ngram import NgramDrafter
from specqual.reference.nvfp4 import dequantise, quantise_nvfp4
from specqual.reference.table import TableTarget
from specqual.reference.target import Target, load_target

from .decoding import output
from .draft_checkpoints import (
    BLOCK,
    FULL,
    LAYERS,
    MASK,
    METHODS,
    SELECTOR,
    SLIDING,
    VOCAB,
    WINDOW,
    configuration,
    no_uniforms,
    tensors,
    write,
)


def load(
    directory: Path, target: Target, config: dict[str, Any], weights: dict[str, Tensor] | None = None
) -> BlockDrafter:
    return load_drafter(write(directory, config, weights or tensors(config)), target)


@pytest.fixture(scope="module")
def exact() -> Target:
    return load_target(path("nano/hybrid"))


def draft_context(target: Target, tokens: Sequence[int]) -> DraftContext:
    return DraftContext(tuple(tokens), target.forward(tokens[:-1]).hidden, target)


TOKENS = (5, 9, 17, 40, 8, 22, 31, 60, 2, 11, 47, 19, 33)


def test_zero_successors_and_identity_convolutions_leave_the_first_dflash(tmp_path: Path, exact: Target) -> None:
    config, plain = (configuration((SLIDING, FULL), False, **METHODS[method]) for method in ("dflash2", "dflash"))
    weights = tensors(config)
    for name, tensor in weights.items():
        if "kernel_projection" in name or "successor" in name:
            tensor.zero_()
        if "base_kernel" in name:
            tensor.zero_()[:, 0] = 1
    second = load(tmp_path / "second", exact, config, weights)
    first = load(tmp_path / "first", exact, plain, {name: weights[name] for name in tensors(plain)})
    context = draft_context(exact, TOKENS)
    assert torch.equal(second.hidden(context, 5), first.hidden(context, 5))
    assert second.propose(context, 5, Sampling(), no_uniforms) == first.propose(context, 5, Sampling(), no_uniforms)


@pytest.mark.parametrize("causal", [False, True])
def test_the_last_slot_reaches_the_first_only_without_causality(tmp_path: Path, exact: Target, causal: bool) -> None:
    drafter = load(tmp_path, exact, configuration((SLIDING, FULL), causal, **METHODS["dflash2"]))
    rows = context_rows(drafter.model, draft_context(exact, TOKENS).hidden)
    block = exact.embed([TOKENS[-1]] + [MASK] * 5)
    before = block_pass(drafter.model, rows, block)
    block[-1] += 1
    after = block_pass(drafter.model, rows, block)
    assert torch.equal(before[1], after[1]) == causal


@pytest.mark.parametrize("causal", [False, True])
def test_a_short_block_is_the_start_of_a_long_one_only_with_causality(
    tmp_path: Path, exact: Target, causal: bool
) -> None:
    drafter = load(tmp_path, exact, configuration((SLIDING, FULL), causal, **METHODS["dflash2"]))
    context = draft_context(exact, TOKENS)
    short, long = drafter.hidden(context, 2), drafter.hidden(context, 5)[:2]
    assert torch.allclose(short, long, rtol=1e-12) == causal


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("age", [WINDOW - 1, WINDOW, WINDOW + 1])
def test_the_window_ends_exactly_at_its_width(tmp_path: Path, exact: Target, age: int, causal: bool) -> None:
    drafter = load(tmp_path, exact, configuration((SLIDING, SLIDING), causal, **METHODS["dflash2"]))
    context = draft_context(exact, TOKENS)
    changed = tuple(rows.clone() for rows in context.hidden)
    for rows in changed:
        rows[len(TOKENS) - 1 - age] += 1
    other = DraftContext(context.tokens, changed, exact)
    assert torch.equal(drafter.hidden(context, 5), drafter.hidden(other, 5)) == (age >= WINDOW)
    assert (drafter.state(context)[1]["draft.0.key"][0] > len(TOKENS) - 1 - age) == (age >= WINDOW)


def test_every_slot_measures_the_window_from_itself(tmp_path: Path, exact: Target) -> None:
    drafter = load(tmp_path, exact, configuration((SLIDING,), False))  # one layer: nothing is passed on by other slots
    context = draft_context(exact, TOKENS)
    start = len(TOKENS) - 1
    for slot in range(1, 6):
        for offset, same in ((0, True), (1, False)):
            changed = tuple(rows.clone() for rows in context.hidden)
            for rows in changed:
                rows[start + slot - WINDOW + offset] += 1
            other = DraftContext(context.tokens, changed, exact)
            before, after = (drafter.hidden(each, 5)[slot - 1] for each in (context, other))
            assert torch.equal(before, after) == same


def test_features_are_read_in_the_order_of_the_list_one_place_on(tmp_path: Path, exact: Target) -> None:
    drafter = load(tmp_path, exact, configuration((FULL,), False))
    context = draft_context(exact, TOKENS)
    feature = torch.cat([context.hidden[3], context.hidden[1], context.hidden[2]], dim=-1)  # target_layer_ids 2, 0, 1
    projected = feature @ drafter.model.linears["fc"].weight.T
    unit = projected / (projected.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    expected = unit * drafter.model.tensors["hidden_norm.weight"]
    assert torch.allclose(context_rows(drafter.model, context.hidden), expected, rtol=1e-12)


@pytest.mark.parametrize(("rows", "taps", "group"), [(6, 2, 4), (1, 3, 2), (2, 4, 8), (5, 1, 1)])
def test_the_convolution_is_its_definition(rows: int, taps: int, group: int) -> None:
    random = torch.Generator().manual_seed(rows)
    z, base, dynamic = (
        torch.randn(shape, generator=random, dtype=torch.float64)
        for shape in ((rows, 16), (taps, 16), (rows, taps, 16 // group))
    )
    assert torch.allclose(convolve(z, dynamic, base), convolve_by_definition(z, dynamic, base), rtol=0, atol=1e-12)


def test_the_convolution_never_lets_a_slot_reach_an_earlier_one() -> None:
    z, dynamic, base = torch.randn(6, 16), torch.randn(6, 3, 4), torch.randn(3, 16)
    before = convolve(z, dynamic, base)
    z[3:], dynamic[3:] = 0, 0
    assert torch.equal(convolve(z, dynamic, base)[:3], before[:3])


def test_the_context_is_never_convolved(tmp_path: Path, exact: Target) -> None:
    config, plain = (configuration((SLIDING, FULL), False, **METHODS[method]) for method in ("dflash2", "dflash"))
    weights = tensors(config)
    second = load(tmp_path / "second", exact, config, weights)
    first = load(tmp_path / "first", exact, plain, {name: weights[name] for name in tensors(plain)})
    context = draft_context(exact, TOKENS)
    for name, rows in first.state(context)[0].items():
        assert torch.equal(rows, second.state(context)[0][name])


def middle(slot: int) -> float:
    return 0.5


def test_the_selector_s_q_knows_temperature_and_nothing_else(tmp_path: Path, exact: Target) -> None:
    drafter = load(tmp_path, exact, configuration((FULL,), False, **METHODS["dflash2"]))
    context = draft_context(exact, TOKENS)
    plain = drafter.propose(context, 5, Sampling(temperature=1.5), middle)
    shaped = Sampling(
        temperature=1.5, top_k=2, top_p=0.3, min_p=0.4, repetition_penalty=2, presence_penalty=1, logit_bias=((4, 9.0),)
    )
    assert drafter.propose(context, 5, shaped, middle) == plain
    assert drafter.propose(context, 5, Sampling(temperature=0.7), middle).q != plain.q
    for q in plain.q:
        assert q is not None
        assert len(q.ids) == SELECTOR["selector_top_k"]
        assert sum(q.probabilities) == pytest.approx(1, abs=1e-12)


def test_the_first_dflash_filters_q_as_the_request_asks(tmp_path: Path, exact: Target) -> None:
    drafter = load(tmp_path, exact, configuration((FULL,), False))
    context = draft_context(exact, TOKENS)
    proposal = drafter.propose(context, 5, Sampling(temperature=1.5, top_k=3), middle)
    assert [len(q.ids) for q in proposal.q if q is not None] == [3] * 5
    one = drafter.propose(context, 5, Sampling(temperature=1.5, min_p=1), middle)
    assert one.tokens == drafter.propose(context, 5, Sampling(), no_uniforms).tokens
    assert one.q == tuple(CompactLaw((token,), (1.0,)) for token in one.tokens)


def test_ties_go_to_the_lowest_token_id() -> None:
    assert selector.candidates(np.array([1.0, 3, 3, 2, 3]), 2).tolist() == [1, 2]
    assert selector.candidates(np.array([1.0, 3, 2, 2]), 3).tolist() == [1, 2, 3]
    assert pick(np.array([7, 2, 5]), np.array([1.0, 1.0, 0.0]), Sampling(), 0.0) == (2, None)


def test_a_token_is_drawn_over_rising_ids_whatever_the_candidates_order() -> None:
    ids, scores = np.array([7, 2, 5]), np.log(np.array([0.5, 0.2, 0.3]))
    for u, token in ((0.0, 2), (0.19, 2), (0.21, 5), (0.49, 5), (0.51, 7), (1 - 2**-53, 7)):
        drawn, q = pick(ids, scores, Sampling(temperature=1), u)
        assert drawn == token
        assert q is not None and q.ids == (2, 5, 7)
        assert q.probabilities == pytest.approx((0.2, 0.3, 0.5))


MARKOV = {"markov_rank": 6, "sample_from_anchor": True}


def test_the_markov_head_biases_each_slot_by_the_token_chosen_before(tmp_path: Path, exact: Target) -> None:
    drafter = load(tmp_path, exact, configuration((SLIDING, FULL), False, **MARKOV))
    assert drafter.method is Method.MARKOV
    assert drafter.draft_length == BLOCK
    context = draft_context(exact, TOKENS)
    block = exact.embed([TOKENS[-1]] + [MASK] * (BLOCK - 1))  # slot 0 is a prediction: as many inputs as drafts
    states = block_pass(drafter.model, context_rows(drafter.model, context.hidden), block)
    w1, w2 = (drafter.model.tensors[f"markov_head.markov_w{factor}.weight"] for factor in (1, 2))
    greedy = drafter.propose(context, BLOCK, Sampling(), no_uniforms)
    sampled = drafter.propose(context, BLOCK, Sampling(temperature=0.9, top_k=2), middle)
    for proposal in (greedy, sampled):
        previous = TOKENS[-1]
        for slot, (token, q) in enumerate(zip(proposal.tokens, proposal.q, strict=True)):
            scores = exact.head(states[slot]) + w2 @ w1[previous]
            if q is None:
                assert token == scores.argmax()
            else:
                law = (scores / 0.9).softmax(-1)
                assert q.ids == tuple(range(VOCAB))
                assert np.allclose(q.probabilities, law, rtol=1e-9)
                assert law[:token].sum() <= 0.5 < law[: token + 1].sum()
            previous = token
    assert greedy.q == (None,) * BLOCK


def test_codebooks_load_with_and_without_the_suffix(tmp_path: Path, exact: Target) -> None:
    config = configuration((FULL,), False, **METHODS["dflash2"])
    weights = tensors(config)
    suffixed = {name + ".weight" if name.endswith("codebook") else name: tensor for name, tensor in weights.items()}
    bare, other = (load(tmp_path / str(i), exact, config, each) for i, each in enumerate((weights, suffixed)))
    context = draft_context(exact, TOKENS)
    sampling = Sampling(temperature=1)
    assert bare.propose(context, 5, sampling, middle) == other.propose(context, 5, sampling, middle)


MODELOPT = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"]}},
    "ignore": ["fc"],
}


@pytest.mark.parametrize("kind", ["FP8", "NVFP4", "packed"])
def test_a_quantised_drafter_drafts_like_its_decoded_weights(tmp_path: Path, exact: Target, kind: str) -> None:
    config = configuration((SLIDING, FULL), False, **METHODS["dflash2"])
    stored, decoded = tensors(config), tensors(config)
    modules = [name for name in draft_linears(parse_draft(config)) if name != "fc"]
    for name in modules:
        weight = stored.pop(f"{name}.weight")
        if kind == "FP8":
            scale = weight.abs().max() / 448
            parts = {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale": scale}
            value = parts["weight"].double() * scale.double()
        else:
            parts = quantise_nvfp4(weight, divide=kind == "packed")
            value = dequantise(*parts.values(), torch.float64, divide=kind == "packed")
        stored |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
        decoded[f"{name}.weight"] = value
    how = (
        PACKED
        if kind == "packed"
        else MODELOPT | {"quantized_layers": {each: {"quant_algo": kind} for each in modules}}
    )
    quantised = load(tmp_path / "quantised", exact, config | {"quantization_config": how}, stored)
    plain = load(tmp_path / "plain", exact, config, decoded)
    context = draft_context(exact, TOKENS)
    assert torch.equal(quantised.hidden(context, 5), plain.hidden(context, 5))
    sampling = Sampling(temperature=1)
    assert quantised.propose(context, 5, sampling, middle) == plain.propose(context, 5, sampling, middle)


def test_no_slots_are_an_empty_proposal_and_too_many_an_error(tmp_path: Path, exact: Target) -> None:
    drafter = load(tmp_path, exact, configuration((FULL,), False))
    context = draft_context(exact, TOKENS)
    assert drafter.propose(context, 0, Sampling(temperature=1), no_uniforms) == Proposal((), ())
    with pytest.raises(ValueError, match="length"):
        drafter.propose(context, BLOCK, Sampling(), no_uniforms)


@pytest.mark.parametrize("more", [{}, MARKOV])
def test_nothing_is_drafted_beyond_the_drafter_s_own_context(
    tmp_path: Path, exact: Target, more: dict[str, Any]
) -> None:
    long = load(tmp_path / "long", exact, configuration((FULL,), False, **more))
    context = draft_context(exact, TOKENS)
    for room in (5, 4, 1, 0, -1):
        config = configuration((FULL,), False, **more) | {"max_position_embeddings": len(TOKENS) + room}
        short = load(tmp_path / str(room), exact, config)
        for sampling, uniform in ((Sampling(), no_uniforms), (Sampling(temperature=1), middle)):
            expected = long.propose(context, max(room, 0), sampling, uniform)
            assert short.propose(context, 5, sampling, uniform) == expected
            assert len(expected.tokens) == max(room, 0)


def test_a_request_outlives_its_drafter(tmp_path: Path) -> None:
    config = configuration((SLIDING,), False) | {"max_position_embeddings": 20}
    draft = write(tmp_path, config, tensors(config))
    request = Request(prompt=TOKENS, max_tokens=14, ignore_eos=True)
    decoder = make(Setup(target=path("nano/hybrid"), draft=draft))
    assert output(decoder, request) == output(make(Setup(target=path("nano/hybrid"))), request)
    ends = [(round.start + len(round.proposals), len(round.proposals)) for round in decoder.rounds(0)]
    assert max(end for end, drafts in ends if drafts) == 19
    assert ends[-1] == (len(TOKENS) + 12, 0)


def test_a_drafter_for_another_target_is_refused_by_name(tmp_path: Path, exact: Target) -> None:
    config = configuration((FULL,), False) | {"num_target_layers": LAYERS + 1}
    with pytest.raises(CheckpointError, match="num_target_layers"):
        load(tmp_path, exact, config)


def test_a_target_without_hidden_states_is_refused(tmp_path: Path) -> None:
    table = TableTarget(VOCAB, (), 256, 0, {})
    with pytest.raises(CheckpointError, match="hidden states"):
        load(tmp_path, table, configuration((FULL,), False))


@pytest.mark.parametrize(
    ("tokens", "longest", "expected"),
    [
        ((1, 2, 3, 9, 1, 2), 3, (3, 9, 1, 2)),
        ((1, 2, 7, 1, 2, 8, 1, 2), 2, (8, 1, 2)),  # the most recent of equals
        ((5, 1, 2, 7, 9, 2, 8, 1, 2), 2, (7, 9, 2, 8)),  # a longer match before a nearer one
        ((5, 1, 2, 7, 9, 2, 8, 1, 2), 1, (8, 1, 2)),
        ((4, 4, 4, 4), 3, (4,)),  # the occurrence may overlap the suffix
        ((1, 2, 3), 3, ()),
        ((1,), 3, ()),
    ],
)
def test_prompt_lookup_continues_the_longest_and_latest_match(
    exact: Target, tokens: tuple[int, ...], longest: int, expected: tuple[int, ...]
) -> None:
    drafter = NgramDrafter(draft_length=4, longest=longest)
    proposal = drafter.propose(DraftContext(tokens, (), exact), 4, Sampling(temperature=1), no_uniforms)
    assert proposal == Proposal.certain(expected)

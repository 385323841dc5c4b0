"""The reference drafters against the `dflash` package, against definitions, and against facts that all of them obey."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from specqual.contract import CompactLaw, Method, Proposal, Sampling
from specqual.contract.draft import parse_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Quantisation
from specqual.contract.schema import draft_linears, draft_schema
from specqual.fixtures import names, path
from specqual.reference import selector
from specqual.reference.choice import pick
from specqual.reference.convolution import convolve, convolve_by_definition
from specqual.reference.dflash import block_pass, context_rows
from specqual.reference.drafter import BlockDrafter, DraftContext, load_drafter
from specqual.reference.ngram import NgramDrafter
from specqual.reference.nvfp4 import dequantise, quantise_nvfp4
from specqual.reference.table import TableTarget
from specqual.reference.target import Target, load_target
from torch import Tensor

package = pytest.importorskip("dflash.model")
transformers = pytest.importorskip("transformers")

VOCAB, HIDDEN, LAYERS, MASK, BLOCK = 61, 32, 5, 3, 6
FULL, SLIDING, WINDOW = "full_attention", "sliding_attention", 7
SELECTOR = {"selector_rank": 8, "selector_top_k": 16}
CONVOLUTION = {"conv_kernel_size": 2, "conv_group_size": 8}
METHODS: dict[str, dict[str, Any]] = {
    "dflash": {},
    "dflash-selector": SELECTOR,
    "dflash-conv": CONVOLUTION | {"conv_kernel_size": 3},
    "dflash2": SELECTOR | CONVOLUTION,
}


def configuration(layers: Sequence[str], causal: bool, window: int = WINDOW, **draft: Any) -> dict[str, Any]:
    slides = SLIDING in layers
    return {
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": len(layers),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
        "attention_bias": False,
        "tie_word_embeddings": False,
        "layer_types": list(layers),
        "use_sliding_window": slides,
        "sliding_window": window if slides else None,
        "is_causal": causal,
        "num_target_layers": LAYERS,
        "dflash_config": {"block_size": BLOCK, "mask_token_id": MASK, "target_layer_ids": [3, 0, 2]} | draft,
    }


def tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random weights: norms about one, convolutions and codebooks large enough to matter."""
    random, found = torch.Generator().manual_seed(seed), {}
    for name, expected in draft_schema(parse_draft(config), Quantisation()).items():
        shape = expected.shapes[0]
        noise = torch.randn(shape, generator=random)
        if len(shape) == 1:
            found[name] = 1 + 0.2 * noise
        elif "codebook" in name or "base_kernel" in name or "markov" in name:
            found[name] = 0.8 * noise
        else:
            found[name] = noise * 1.5 / shape[1] ** 0.5
    return found


def write(directory: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, directory / "model.safetensors")
    return directory


@pytest.fixture(scope="module")
def host() -> Any:
    """A tiny Qwen3 of Transformers: what the package drafts for, and what its features come from."""
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        eos_token_id=0,
        attn_implementation="eager",
    )
    model = transformers.Qwen3ForCausalLM(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            parameter.copy_(torch.randn_like(parameter) * (1.0 if "embed" in name else 1.5 / parameter.shape[1] ** 0.5))
    return model


@pytest.fixture(scope="module")
def target(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The same model through the reference, in float32."""
    directory = tmp_path_factory.mktemp("target")
    host.save_pretrained(directory)
    return load_target(directory, dtype=torch.float32)


def package_model(directory: Path, where: Path) -> Any:
    """The package's drafter on the same checkpoint; parts that a half drafter lacks are filled in as no-ops."""
    config, weights = json.loads((directory / "config.json").read_text()), load_file(directory / "model.safetensors")
    draft = config["dflash_config"]
    kind = package.DFlash2DraftModel if set(draft) & {"selector_rank", "conv_kernel_size"} else package.DFlashDraftModel
    if kind is package.DFlash2DraftModel:
        config["dflash_config"] = CONVOLUTION | {"selector_rank": 8, "selector_top_k": 1} | draft
        complete = tensors(config)
        for name in complete.keys() - weights.keys():
            complete[name].zero_()
            if "base_kernel" in name:
                complete[name][:, 0] = 1
        weights = complete | weights
    loaded = kind.from_pretrained(write(where, config, weights), dtype=torch.float32)
    return loaded.eval().requires_grad_(False)


@dataclass(frozen=True, slots=True)
class PackageRound:
    """One round of the package: what it drafted from, and what came out."""

    context: DraftContext
    states: Tensor  # [length, H], final-normed
    path: tuple[int, ...]  # its greedy drafts
    cache: Any  # its draft cache, cropped to the context

    @property
    def anchor(self) -> int:
        return self.context.tokens[-1]


def package_rounds(
    model: Any, host: Any, target: Target, prompt: Sequence[int], script: Sequence[tuple[int, int]]
) -> Iterator[PackageRound]:
    """The package's generation loop with its own caches, where a script of (drafts, accepted) decides every round."""
    target_cache, draft_cache = package._make_cache(host.config), package._make_cache(model.config)
    scale = float(package._draft_value(model.config, "input_embedding_scale", 1.0))

    def run(ids: Sequence[int], start: int) -> tuple[list[Tensor], Tensor]:
        positions = torch.arange(start, start + len(ids))[None]
        out = host(
            torch.tensor([ids]),
            position_ids=positions,
            past_key_values=target_cache,
            use_cache=True,
            output_hidden_states=True,
        )
        return [rows[0] for rows in out.hidden_states], out.logits[0].argmax(-1)

    fresh, best = run(prompt, 0)
    package._crop_to(target_cache, len(prompt))
    hidden, tokens = fresh, [*prompt, int(best[-1])]
    for length, accepted in script:
        start = len(tokens) - 1
        block = torch.tensor([[tokens[-1]] + [model.mask_token_id] * length])
        states = model(
            target_hidden=package.extract_context_feature([rows[None] for rows in fresh], model.target_layer_ids),
            noise_embedding=package._raw_input_embeddings(host, block, scale),
            position_ids=torch.arange(start - len(fresh[0]), start + 1 + length)[None],
            past_key_values=draft_cache,
            use_cache=True,
        )[0, 1:]
        package._crop_to(draft_cache, start)
        if isinstance(model, package.DFlash2DraftModel):
            path = model.propose(states[None], block[:, 0], host.lm_head, 0.0)[0][0].tolist()
        else:
            path = model.compute_logits(states, host.lm_head).argmax(-1).tolist()
        yield PackageRound(DraftContext(tuple(tokens), tuple(hidden), target), states, tuple(path), draft_cache)
        rows, best = run([tokens[-1], *path], start)
        fresh = [row[: accepted + 1] for row in rows]
        hidden = [torch.cat(pair) for pair in zip(hidden, fresh, strict=True)]
        tokens += [*path[:accepted], int(best[accepted])]
        package._crop_to(target_cache, start + accepted + 1)


def package_scores(model: Any, host: Any, states: Tensor, anchor: int, path: Sequence[int]) -> list[dict[int, Tensor]]:
    """The selector's scores of every candidate after each token of a path, from the package's own modules."""
    walk = model.candidate_selector
    unary, ids = model.compute_logits(states, host.lm_head).topk(walk.top_k)
    joint = walk.hidden_projection(states)
    found = []
    for slot, previous in enumerate((anchor, *path[:-1])):
        code = walk.predecessor_codebook(torch.tensor(previous)) * joint[slot]
        scores = unary[slot] + walk.successor_codebook(ids[slot]) @ code
        found.append(dict(zip(ids[slot].tolist(), scores, strict=True)))
    return found


def assert_close(mine: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.shape == theirs.shape
    assert np.abs(mine - theirs).max() <= tolerance * np.abs(theirs).max()


def setup(
    directory: Path, host: Any, target: Target, method: str, layers: Sequence[str], causal: bool, **draft: Any
) -> tuple[BlockDrafter, Any]:
    config = configuration(layers, causal, **METHODS[method], **draft)
    path = write(directory / "draft", config, tensors(config))
    mine = load_drafter(path, target, dtype=torch.float32)
    assert mine.method == method
    return mine, package_model(path, directory / "package")


SCRIPT = ((5, 0), (5, 5), (2, 1), (5, 2), (1, 1), (5, 4), (3, 0), (5, 3))  # every kind of round, and short blocks
MIXES = [
    pytest.param((FULL, FULL), False, WINDOW, id="full"),
    pytest.param((SLIDING, SLIDING), False, WINDOW, id="sliding"),
    pytest.param((SLIDING, FULL), False, BLOCK - 3, id="narrower-than-the-block"),
    pytest.param((FULL, SLIDING), True, WINDOW, id="causal"),
]
PROMPTS = {"short": (5, 9, 17, 40), "longer-than-window": tuple(range(4, 60, 3))}


@pytest.mark.parametrize(("layers", "causal", "window"), MIXES)
@pytest.mark.parametrize("method", METHODS)
def test_every_round_drafts_what_the_package_drafts(
    tmp_path: Path, host: Any, target: Target, method: str, layers: Sequence[str], causal: bool, window: int
) -> None:
    mine, theirs = setup(tmp_path, host, target, method, layers, causal, window=window)
    for prompt in PROMPTS.values():
        rounds = 0
        for round in package_rounds(theirs, host, target, prompt, SCRIPT):
            hidden = mine.hidden(round.context, len(round.path))
            assert_close(hidden, round.states)
            proposal = mine.propose(round.context, len(round.path), Sampling(), no_uniforms)
            assert proposal == Proposal.certain(round.path)
            assert_same_context(mine, round)
            rounds += 1
        assert rounds == len(SCRIPT)


def no_uniforms(slot: int) -> float:
    raise AssertionError("a greedy draft needs no random number")


def assert_same_context(mine: BlockDrafter, round: PackageRound) -> None:
    """The package's cache holds the same context rows, of a sliding layer at least those that are visible."""
    kept, positions = mine.state(round.context)
    for layer, cached in enumerate(round.cache.layers):
        for part, rows in (("key", cached.keys), ("value", cached.values)):
            name = f"draft.{layer}.{part}"
            assert_close(kept[name], rows[0].transpose(0, 1))
            assert positions[name] == tuple(range(len(round.context.tokens) - 1))[-len(kept[name]) :]


@pytest.mark.parametrize("method", ["dflash2", "dflash-selector"])
def test_candidates_and_scores_are_the_package_s(tmp_path: Path, host: Any, target: Target, method: str) -> None:
    mine, theirs = setup(tmp_path, host, target, method, (SLIDING, FULL), False)
    for round in package_rounds(theirs, host, target, PROMPTS["longer-than-window"], SCRIPT):
        hidden = mine.hidden(round.context, len(round.path))
        scored = mine.scored(hidden, mine.logits(target, hidden))
        before = (round.anchor, *round.path)
        for slot, expected in enumerate(package_scores(theirs, host, round.states, round.anchor, round.path)):
            ids, scores = scored(slot, before[slot])
            assert set(ids.tolist()) == expected.keys()
            assert len(ids) == SELECTOR["selector_top_k"]
            assert_close(scores, [expected[token] for token in ids.tolist()])


@pytest.mark.parametrize("method", METHODS)
def test_q_is_the_package_s_law_along_the_drawn_path(tmp_path: Path, host: Any, target: Target, method: str) -> None:
    mine, theirs = setup(tmp_path, host, target, method, (SLIDING, SLIDING), False)
    sampling = Sampling(temperature=0.8, top_k=9, top_p=0.9)
    random = np.random.default_rng(2)
    for round in package_rounds(theirs, host, target, PROMPTS["longer-than-window"], SCRIPT):
        uniforms = random.random(len(round.path))
        proposal = mine.propose(round.context, len(round.path), sampling, lambda slot, u=uniforms: float(u[slot]))
        if "selector_rank" in METHODS[method]:
            scores = package_scores(theirs, host, round.states, round.anchor, proposal.tokens)
            laws = [
                dict(zip(row, package._sampling_probs(torch.stack([*row.values()]), 0.8).tolist(), strict=True))
                for row in scores
            ]
        else:
            logits = theirs.compute_logits(round.states, host.lm_head)
            laws = [
                {token: float(p) for token, p in enumerate(row) if p > 0}
                for row in package._sampling_probs(logits, 0.8, 0.9, 9)
            ]
        for q, law, token, u in zip(proposal.q, laws, proposal.tokens, uniforms, strict=True):
            assert q is not None
            assert q.ids == tuple(sorted(law))
            assert_close(q.probabilities, [law[i] for i in q.ids], 1e-4)  # exp of logits near ten, each to 1e-5 of that
            below = sum(p for i, p in zip(q.ids, q.probabilities, strict=True) if i < token)
            assert below <= u < below + q.probabilities[q.ids.index(token)]


def test_scales_and_softcap_are_the_package_s(tmp_path: Path, host: Any, target: Target) -> None:
    extra = {"input_embedding_scale": 1.7, "output_multiplier": 0.6, "final_logit_softcapping": 2.5}
    for method in ("dflash", "dflash2"):
        mine, theirs = setup(tmp_path / method, host, target, method, (FULL, SLIDING), False, **extra)
        for round in package_rounds(theirs, host, target, PROMPTS["short"], SCRIPT[:4]):
            hidden = mine.hidden(round.context, len(round.path))
            assert_close(hidden, round.states)
            assert_close(mine.logits(target, hidden), theirs.compute_logits(round.states, host.lm_head))
            assert mine.propose(round.context, len(round.path), Sampling(), no_uniforms).tokens == round.path


# The drafters that are committed; the package has no class for a half DFlash 2 or a Markov head.
COMMITTED = [
    name for name in names() if name.startswith(("nano/", "small/")) and name.endswith(("-dflash", "-dflash2"))
]


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_drafter_drafts_what_the_package_drafts(name: str) -> None:
    pair = path(name), path(name.rpartition("-")[0])
    host = transformers.AutoModelForCausalLM.from_pretrained(pair[1], dtype=torch.float32).eval().requires_grad_(False)
    target = load_target(pair[1], dtype=torch.float32)
    mine = load_drafter(pair[0], target, dtype=torch.float32)
    kind = package.DFlashDraftModel if mine.method is Method.DFLASH else package.DFlash2DraftModel
    theirs = kind.from_pretrained(pair[0], dtype=torch.float32).eval().requires_grad_(False)
    full = mine.draft_length
    for round in package_rounds(theirs, host, target, range(1, 30), ((full, 0), (full, full), (1, 0), (full, 2))):
        hidden = mine.hidden(round.context, len(round.path))
        assert_close(hidden, round.states)
        assert mine.propose(round.context, len(round.path), Sampling(), no_uniforms).tokens == round.path
        if mine.method is Method.DFLASH2:
            scored = mine.scored(hidden, mine.logits(target, hidden))
            expected = package_scores(theirs, host, round.states, round.anchor, round.path)
            for slot, previous in enumerate((round.anchor, *round.path[:-1])):
                ids, scores = scored(slot, previous)
                assert set(ids.tolist()) == expected[slot].keys()
                assert_close(scores, [expected[slot][token] for token in ids.tolist()])


# Facts that hold for any drafter of the family, in float64 and without the package.


def load(
    directory: Path, target: Target, config: dict[str, Any], weights: dict[str, Tensor] | None = None
) -> BlockDrafter:
    return load_drafter(write(directory, config, weights or tensors(config)), target)


@pytest.fixture(scope="module")
def exact(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Target:
    directory = tmp_path_factory.mktemp("exact")
    host.save_pretrained(directory)
    return load_target(directory)


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
    feature = torch.cat([context.hidden[4], context.hidden[1], context.hidden[3]], dim=-1)  # target_layer_ids 3, 0, 2
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

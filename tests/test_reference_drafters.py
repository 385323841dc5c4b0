"""The reference drafters against the `dflash` package, round by round, in float32 on the same checkpoints."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from specqual.contract import Method, Proposal, Sampling
from specqual.fixtures import names, path
from specqual.reference.drafter import BlockDrafter, DraftContext, load_drafter
from specqual.reference.target import Target, load_target

from .draft_checkpoints import (
    BLOCK,
    CONVOLUTION,
    FULL,
    HIDDEN,
    LAYERS,
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

package = pytest.importorskip("dflash.model")
transformers = pytest.importorskip("transformers")


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

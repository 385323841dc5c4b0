"""Gates G1 to G8: what a trained drafter in fixtures/small must pass before anybody measures anything with it."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from specqual.fixtures import ROOT

pytest.importorskip("transformers", reason="the recipes train in Transformers' classes")
from specqual.fixtures.recipes import checkpoint, continuations, drafter, evaluate, target, train_drafter

SMALL = ROOT / "small"
TARGETS = ("dense", "hybrid")
DRAFTERS = sorted(d.name for d in SMALL.glob("*-*") if d.is_dir())
PACKAGED = [name for name in DRAFTERS if name.endswith(("-dflash", "-dflash2"))]
WINDOWS = json.loads((SMALL / "heldout.json").read_text())["windows"]
K = evaluate.DRAFTS


@cache
def target_of(name: str):
    return target.load(SMALL / name.split("-")[0], "cpu")


@cache
def drafter_of(name: str) -> drafter.Drafter:
    return checkpoint.load(SMALL / name)


def table_of(name: str) -> torch.Tensor:
    return target_of(name).get_input_embeddings().weight


@cache
def human(kind: str) -> evaluate.Paths:
    """Two held-out windows of 384 tokens: long enough that anchors lie on both sides of the window of 128."""
    return evaluate.paths(target_of(kind), torch.tensor(WINDOWS["code"][10:150:75]), 8, [1, 3, 5, 6])


@cache
def continued(kind: str, temperature: float, copies: int = 1) -> evaluate.Paths:
    """Continuations of 8 held-out prompts of 64 tokens by 64 tokens each, `copies` per prompt."""
    torch.manual_seed(1)
    prompts = torch.tensor(WINDOWS["code"][5:155:19])[:, :64].repeat_interleave(copies, 0)
    rows = continuations.sample(target_of(kind), prompts, 64, torch.full((len(prompts),), temperature))
    return evaluate.paths(target_of(kind), rows, 64, [1, 3, 5, 6])


def blocks(name: str, path: evaluate.Paths, anchors: torch.Tensor) -> torch.Tensor:
    return drafter_of(name).blocks(path.features, path.tokens, anchors, table_of(name))


def packaged(name: str) -> tuple[object, dict]:
    """The same directory as the `dflash` package loads it, float32, and the loader's account."""
    models = pytest.importorskip("dflash.model", reason="the package `dflash` is the oracle here")
    kind = models.DFlash2DraftModel if name.endswith("2") else models.DFlashDraftModel
    model, account = kind.from_pretrained(SMALL / name, dtype=torch.float32, output_loading_info=True)
    return model.eval(), account


@pytest.mark.parametrize("name", DRAFTERS)
def test_g1_training_and_cached_decoding_give_equal_logits(name):
    path, module, table = human(name.split("-")[0]), drafter_of(name), table_of(name)
    anchors = torch.randint(8, 370, (2, 16), generator=torch.Generator().manual_seed(0)).sort(1).values
    assert (anchors < 128).any() and (anchors > 128 + 8).any()
    trained = F.linear(blocks(name, path, anchors), table)
    for row in range(2):
        held, start = None, 0
        for i, at in enumerate(anchors[row].tolist()):
            if at > start:
                held, start = module.extend(held, path.features[row : row + 1, start:at], start), at
            decoded = F.linear(module.draft(held, path.tokens[row : row + 1, at], table), table)
            torch.testing.assert_close(decoded[0], trained[row, i], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", PACKAGED)
def test_g1_the_package_computes_the_same_slots_as_training(name):
    model, _ = packaged(name)
    path, anchors = human(name.split("-")[0]), torch.tensor([[40, 127, 140, 300]] * 2)
    ours = blocks(name, path, anchors)
    for i, at in enumerate(anchors[0].tolist()):
        embedded = drafter_of(name).inputs(path.tokens[:, at], table_of(name))
        positions = torch.arange(at + 8)[None]
        with torch.no_grad():
            theirs = model(target_hidden=path.features[:, :at], noise_embedding=embedded, position_ids=positions)
        torch.testing.assert_close(ours[:, i], theirs[:, 1:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", DRAFTERS)
def test_g2_a_block_sees_nothing_at_or_behind_its_anchor(name):
    path, at = human(name.split("-")[0]), 200
    anchors = torch.full((2, 1), at)
    before = blocks(name, path, anchors)
    features, tokens = path.features.clone(), path.tokens.clone()
    features[:, at:] += 1
    tokens[:, at + 1 :] = 7
    assert torch.equal(before, blocks(name, replace(path, features=features, tokens=tokens), anchors))
    features[:, at - 1] += 1
    assert not torch.equal(before, blocks(name, replace(path, features=features), anchors))


def test_g2_blocks_of_one_row_do_not_see_each_other():
    path = human("dense")
    alone = blocks("dense-dflash2", path, torch.full((2, 1), 200))
    together = blocks("dense-dflash2", path, torch.tensor([[200, 203, 198]] * 2))
    torch.testing.assert_close(alone[:, 0], together[:, 0], atol=1e-5, rtol=0)


def test_g3_sixty_four_rows_can_be_learnt_by_heart():
    model, table = target_of("dense"), table_of("dense")
    prompts = torch.tensor(WINDOWS["code"][:128:2])[:, :8]
    rows = continuations.sample(model, prompts, 4, torch.zeros(64))
    features, final = continuations.states(model, rows, [1, 3, 5, 6])
    data = continuations.Cache(rows, features, final, continuations.ends_of(rows, 8), 8)
    torch.manual_seed(0)
    fresh = drafter.Drafter(replace(train_drafter.PLAIN, layers=1, mlp=256))
    optimizer = torch.optim.AdamW(fresh.parameters(), lr=3e-3, betas=(0.9, 0.95))
    for _ in range(90):
        index, anchor, slots, weight = train_drafter.batch_of(data, 64, 1)
        token = rows[index[:, None], slots.flatten(1)].view_as(slots)
        law = F.one_hot(token, len(table)).float()  # by heart means the very tokens, not the target's law
        hidden = fresh.blocks(features[index], rows[index], anchor, table)
        loss = train_drafter.weighted(fresh.scores(hidden, token, table), law, weight)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(fresh.parameters(), 1.0)
        optimizer.step()
    anchors = torch.arange(8, 11).expand(64, -1)
    with torch.no_grad():
        drafted = F.linear(fresh.blocks(features, rows, anchors, table)[:, :, 0], table).argmax(-1)
    counted = anchors + 1 < data.ends[:, None]
    assert (drafted == rows.gather(1, anchors + 1))[counted].float().mean() > 0.95


@pytest.mark.parametrize("name", DRAFTERS)
def test_g4_without_features_at_least_half_of_the_gain_is_lost(name):
    path = continued(name.split("-")[0], 0.0)
    blind = replace(path, features=torch.zeros_like(path.features))
    gain, left = (
        evaluate.length(evaluate.jump(hit.first.numpy(), path.prompt, path.ends.numpy()), draws=1)["length"] - 1
        for hit in (evaluate.hits(drafter_of(name), table_of(name), p) for p in (path, blind))
    )
    assert gain > 0.5
    assert left <= gain / 2


@pytest.mark.parametrize("name", DRAFTERS)
def test_g5_accuracy_peaks_at_the_slots_own_token(name):
    path, module, table = continued(name.split("-")[0], 0.0), drafter_of(name), table_of(name)
    anchors = torch.arange(66, 110, 2).expand(len(path.tokens), -1)
    slots = anchors[..., None] + torch.arange(1, K + 1)
    tokens = {shift: path.tokens.gather(1, (slots + shift).flatten(1)).view_as(slots) for shift in (-1, 0, 1)}
    drafted = module.scores(blocks(name, path, anchors), tokens[-1], table).argmax(-1)
    accuracy = {shift: (drafted == label).float().mean().item() for shift, label in tokens.items()}
    assert max(accuracy, key=accuracy.__getitem__) == 0, accuracy


def test_g6_fresh_convolution_and_selector_change_no_draft():
    path, table, trained = continued("dense", 0.0), table_of("dense"), drafter_of("dense-dflash")
    extended = drafter.Drafter(replace(trained.shape, convolution=True, selector_rank=8)).eval()
    extended.load_state_dict(trained.state_dict(), strict=False)
    anchors = torch.arange(64, 110, 3).expand(len(path.tokens), -1)
    slots = anchors[..., None] + torch.arange(K)
    previous = path.tokens.gather(1, slots.flatten(1)).view_as(slots)
    with torch.no_grad():
        plain, fresh = (m.blocks(path.features, path.tokens, anchors, table) for m in (trained, extended))
        assert torch.equal(plain, fresh)
        choices = [m.scores(plain, previous, table).argmax(-1) for m in (trained, extended)]
    assert torch.equal(*choices)


@pytest.mark.parametrize(("kind", "backbone"), [("selector", "dflash"), ("dflash2", "conv")])
def test_g6_selectors_sit_on_unchanged_backbones(kind, backbone):
    with_selector, without = (drafter_of(f"hybrid-{k}").state_dict() for k in (kind, backbone))
    assert all(torch.equal(with_selector[n], t) for n, t in without.items())
    assert all(n.startswith("candidate_selector.") for n in with_selector.keys() - without.keys())


def decoded(name: str, prompts: torch.Tensor, temperature: float) -> list[tuple[list[int], list[int]]]:
    """What the package really does: the tokens and the anchors of its rounds, per prompt."""
    model, _ = packaged(name)
    from dflash.model import dflash_generate

    anchors: list[int] = []
    model.register_forward_pre_hook(
        lambda m, a, kw: anchors.append(int(kw["position_ids"][0, -1]) + 1 - kw["noise_embedding"].shape[1]),
        with_kwargs=True,
    )
    result = []
    for prompt in prompts:
        anchors.clear()
        out = dflash_generate(model, target_of(name), prompt[None], 64, [0], temperature=temperature)
        result.append((out[0].tolist(), list(anchors)))
    return result


def counted_rounds(anchors: list[int], end: int) -> np.ndarray:
    """Accepted drafts of the rounds that start more than K + 1 tokens before the end, from the anchors."""
    steps = zip(anchors, [*anchors[1:], end - 1], strict=True)
    return np.array([after - at - 1 for at, after in steps if at + K + 1 < end], dtype=int)


@pytest.mark.parametrize("name", ["dense-dflash", "dense-dflash2"])
def test_g7_jumping_equals_real_decoding_when_greedy(name):
    path = continued("dense", 0.0)
    predicted = evaluate.jump(
        evaluate.hits(drafter_of(name), table_of(name), path).first.numpy(), path.prompt, path.ends.numpy()
    )
    for row, (tokens, anchors) in enumerate(decoded(name, path.tokens[:4, :64], 0.0)):
        end = int(path.ends[row])
        assert tokens == path.tokens[row, :end].tolist()
        assert counted_rounds(anchors, end).tolist() == predicted[row].tolist()


def test_g7_jumping_equals_real_decoding_when_sampled_within_three_standard_errors():
    name, path = "dense-dflash2", continued("dense", 1.0, copies=4)
    chances = evaluate.hits(drafter_of(name), table_of(name), path).ratio.numpy()
    uniforms = np.random.default_rng(0).random(chances.shape[:2])
    predicted = evaluate.jump(chances, path.prompt, path.ends.numpy(), uniforms)
    torch.manual_seed(3)
    real = [counted_rounds(anchors, len(tokens)) for tokens, anchors in decoded(name, path.tokens[::4, :64], 1.0)]

    def mean_and_error(rounds: list[np.ndarray]) -> tuple[float, float]:
        summary = evaluate.length(rounds)
        return summary["length"], (summary["interval"][1] - summary["interval"][0]) / (2 * 1.96)

    (expected, error), (seen, spread) = mean_and_error(predicted), mean_and_error(real)
    assert abs(expected - seen) <= 3 * np.hypot(error, spread)


@pytest.mark.parametrize("name", DRAFTERS)
def test_g8_a_saved_drafter_reloads_with_every_tensor_used(name, tmp_path):
    checkpoint.save(drafter_of(name), tmp_path)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / file).read_bytes() == (SMALL / name / file).read_bytes()
    names = drafter_of(name).state_dict().keys()
    assert not any("codebook.weight" in n for n in names)


@pytest.mark.parametrize("name", PACKAGED)
def test_g8_the_package_uses_every_tensor_and_drafts(name):
    _, account = packaged(name)
    assert not account["missing_keys"] and not account["unexpected_keys"] and not account["mismatched_keys"]
    (tokens, anchors), *_ = decoded(name, continued(name.split("-")[0], 0.0).tokens[:1, :64], 0.0)
    assert len(anchors) < len(tokens) - 64  # fewer rounds than new tokens: some drafts were accepted


@pytest.mark.parametrize("kind", TARGETS)
def test_g8_transformers_loads_target_and_tokenizer_unchanged(kind):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, account = AutoModelForCausalLM.from_pretrained(SMALL / kind, output_loading_info=True)
    assert type(model).__name__ == {"dense": "Qwen3ForCausalLM", "hybrid": "Qwen3_5ForCausalLM"}[kind]
    assert not account["missing_keys"] and not account["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(SMALL / kind)
    assert len({tokenizer.eos_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id}) == 3
    text = "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.decode(WINDOWS["code"][0]).count("\n") > 1


def test_all_of_small_stays_within_thirty_megabytes():
    assert sum(f.stat().st_size for f in SMALL.rglob("*") if f.is_file()) <= 30_000_000

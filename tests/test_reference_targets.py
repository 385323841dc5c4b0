"""The reference targets against Transformers, against themselves, and table targets against their definition."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specqual.contract.config import LayerType
from specqual.contract.errors import CheckpointError
from specqual.reference.deltanet import recur
from specqual.reference.table import TableTarget, load_table
from specqual.reference.target import TransformerTarget, load_target

transformers = pytest.importorskip("transformers")

VOCAB, LENGTH, WINDOW = 97, 40, 7
BOUND = 1e-5  # largest difference over largest magnitude, against float32
FIXTURES = Path(__file__).parents[1] / "fixtures"
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 5,
}
SLIDING = {
    "use_sliding_window": True,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "tie_word_embeddings": True,
}
HYBRID = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"num_hidden_layers": 3}),
    "llama-biased": ("Llama", {"num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "qwen3": ("Qwen3", {"num_hidden_layers": 3, "head_dim": 16}),
    "qwen3-sliding": ("Qwen3", {"num_hidden_layers": 4, "head_dim": 16} | SLIDING),
    "hybrid": ("Qwen3_5", {"num_hidden_layers": 4, "head_dim": 16} | HYBRID),
}


def config_of(kind: str, options: dict[str, Any]) -> Any:
    name = "Qwen3_5TextConfig" if kind == "Qwen3_5" else f"{kind}Config"
    return getattr(transformers, name)(**COMMON | options)


@torch.no_grad()
def model_of(family: str, seed: int = 0) -> Any:
    """A Transformers model whose every parameter matters: logits of order one, norms away from their neutral weight."""
    torch.manual_seed(seed)
    kind, options = FAMILIES[family]
    model = getattr(transformers, f"{kind}ForCausalLM")(config_of(kind, options)).eval()
    for name, parameter in model.named_parameters():
        if "A_log" in name:  # decays that Transformers' chunked float32 form can still follow
            parameter.uniform_(-3, 0)
        elif "norm" in name and not ("Qwen3_5" in kind and "linear_attn" not in name):
            parameter.normal_(1, 0.2)  # plain w
        else:
            parameter.normal_(0, 0.2)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    made = {}
    for family in FAMILIES:
        directory = tmp_path_factory.mktemp(family)
        model = model_of(family)
        model.save_pretrained(directory)
        made[family] = model, directory
    return made


def prompt(length: int = LENGTH, vocab: int = VOCAB, seed: int = 1) -> list[int]:
    return torch.randint(0, vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def distance(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    assert mine.shape == theirs.shape
    return float((mine.double() - theirs.double()).abs().max() / theirs.abs().max())


@torch.no_grad()
def run(model: Any, ids: list[int]) -> Any:
    return model(torch.tensor([ids]), output_hidden_states=True, use_cache=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_hidden_states_equal_transformers(
    family: str, dtype: torch.dtype, saved: dict[str, tuple[Any, Path]]
) -> None:
    model, directory = saved[family]
    theirs, mine = run(model, prompt()), load_target(directory, dtype=dtype).forward(prompt())
    assert theirs.logits.std() > 0.5
    assert distance(mine.logits, theirs.logits[0]) <= BOUND
    assert len(mine.hidden) == len(theirs.hidden_states)
    for layer, (ours, other) in enumerate(zip(mine.hidden[:-1], theirs.hidden_states[:-1], strict=True)):
        assert distance(ours, other[0]) <= BOUND, layer
    # Transformers' last entry is after the final norm; ours is before it.
    with torch.no_grad():
        assert distance(model.model.norm(mine.hidden[-1].float()), theirs.hidden_states[-1][0]) <= BOUND


def directories(folder: str) -> list[Path]:
    """Targets among the committed fixtures that Transformers can load: neither drafters nor quantised."""
    found = []
    for path in sorted((FIXTURES / folder).glob("*/config.json")):
        content = json.loads(path.read_text())
        if "dflash_config" not in content and "block_size" not in content and "quantization_config" not in content:
            found.append(path.parent)
    return found


def test_both_small_targets_are_there() -> None:
    assert {"dense", "hybrid"} <= {path.name for path in directories("small")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("directory", directories("nano") + directories("small"), ids=lambda path: path.name)
def test_logits_of_committed_targets_equal_transformers(directory: Path, dtype: torch.dtype) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    target = load_target(directory, dtype=dtype)
    window = json.loads((directory / "config.json").read_text()).get("sliding_window")
    ids = prompt((window or LENGTH) + 10, target.vocab_size)
    assert distance(target.forward(ids).logits, run(model, ids).logits[0]) <= BOUND


def test_state_of_a_hybrid_equals_the_transformers_cache(saved: dict[str, tuple[Any, Path]]) -> None:
    model, directory = saved["hybrid"]
    cache, mine = run(model, prompt()).past_key_values.layers, load_target(directory).forward(prompt())
    linear = [i for i, kind in enumerate(model.config.layer_types) if kind == "linear_attention"]
    assert 0 < len(linear) < len(cache)
    for i, layer in enumerate(cache):
        if i in linear:
            assert distance(mine.tensors[f"target.{i}.state"], layer.recurrent_states[0][0]) <= BOUND
            assert distance(mine.tensors[f"target.{i}.conv"], layer.conv_states[0][0, :, -3:].T) <= BOUND
        else:
            for part, theirs in (("key", layer.keys), ("value", layer.values)):
                assert distance(mine.tensors[f"target.{i}.{part}"], theirs[0].transpose(0, 1)) <= BOUND
                assert mine.positions[f"target.{i}.{part}"] == tuple(range(LENGTH))
    assert len(mine.tensors) == 2 * len(cache)


def test_sliding_layers_keep_only_the_rows_that_the_next_token_sees(saved: dict[str, tuple[Any, Path]]) -> None:
    model, directory = saved["qwen3-sliding"]
    cache, mine = run(model, prompt()).past_key_values.layers, load_target(directory).forward(prompt())
    for i, layer in enumerate(cache):
        first = LENGTH - WINDOW + 1 if model.config.layer_types[i] == "sliding_attention" else 0
        for part, theirs in (("key", layer.keys), ("value", layer.values)):
            name = f"target.{i}.{part}"
            assert mine.positions[name] == tuple(range(first, LENGTH))
            assert distance(mine.tensors[name], theirs[0, :, first - LENGTH :].transpose(0, 1)) <= BOUND


def test_convolution_state_of_a_short_prompt_is_padded_with_zeros(saved: dict[str, tuple[Any, Path]]) -> None:
    model, directory = saved["hybrid"]
    mine = load_target(directory).forward(prompt(2)).tensors["target.0.conv"]
    assert mine[0].count_nonzero() == 0 and mine[1:].count_nonzero() == mine[1:].numel()
    assert distance(mine, run(model, prompt(2)).past_key_values.layers[0].conv_states[0][0, :, -3:].T) <= BOUND


def test_fast_decay_equals_transformers_token_by_token(tmp_path: Path) -> None:
    # With A up to 16 the chunked prefill of Transformers is off by 1e-4 in float32; its one-token path is not.
    model = model_of("hybrid")
    with torch.no_grad():
        for layer in model.model.layers[:3]:
            layer.linear_attn.A_log.uniform_(0, 2.8)
    model.save_pretrained(tmp_path)
    query, cache, rows = torch.tensor([prompt()]), None, []
    for place in range(LENGTH):
        with torch.no_grad():
            out = model(query[:, place : place + 1], past_key_values=cache, use_cache=True)
        cache, rows = out.past_key_values, [*rows, out.logits[0, -1]]
    assert distance(load_target(tmp_path).forward(prompt()).logits, torch.stack(rows)) <= BOUND


def test_delta_rule_overwrites_what_a_key_held() -> None:
    # With a unit key, beta one and no decay, the state reads back exactly the last value written at that key.
    key = torch.eye(3, dtype=torch.float64)[[0, 1, 0]][:, None]  # [3, 1, 3]
    value = torch.arange(6, dtype=torch.float64).reshape(3, 1, 2)
    one = torch.ones(3, 1, dtype=torch.float64)
    out, state = recur(key, key, value, one, one)
    assert torch.equal(out, value)
    assert torch.equal(state[0], torch.stack([value[2, 0], value[1, 0], torch.zeros(2, dtype=torch.float64)]))


@pytest.mark.parametrize("family", ["hybrid", "qwen3-sliding", "llama"])
def test_a_prefix_alone_gives_the_logits_and_states_that_it_has_within_the_whole(
    family: str, saved: dict[str, tuple[Any, Path]]
) -> None:
    target, ids = load_target(saved[family][1]), prompt()
    whole = target.forward(ids)
    for length in (1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 23):
        part = target.forward(ids[:length])
        assert (part.logits - whole.logits[:length]).abs().max() <= 1e-12
        for ours, theirs in zip(part.hidden, whole.hidden, strict=True):
            assert (ours - theirs[:length]).abs().max() <= 1e-12


def test_a_token_out_of_the_window_changes_a_sliding_layer_only_through_full_ones(
    saved: dict[str, tuple[Any, Path]],
) -> None:
    target, ids = load_target(saved["qwen3-sliding"][1]), prompt()
    other = [(ids[0] + 1) % VOCAB, *ids[1:]]
    mine, theirs = target.forward(ids).hidden[1], target.forward(other).hidden[1]  # after one sliding layer
    changed = (mine - theirs).abs().amax(-1) > 0
    assert changed.tolist() == [place < WINDOW for place in range(LENGTH)]


def test_embed_and_head_are_the_ends_of_the_forward_pass(saved: dict[str, tuple[Any, Path]]) -> None:
    model, directory = saved["qwen3"]
    target = load_target(directory)
    out = target.forward(prompt())
    assert torch.equal(target.embed(prompt()), out.hidden[0])
    assert distance(target.head(out.hidden[-1]), model.lm_head(out.hidden[-1].float()).detach()) <= BOUND
    assert (target.vocab_size, target.eos_ids, target.max_context) == (VOCAB, (5,), 256)


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_a_token_outside_the_vocabulary_is_refused_by_place(token: int, saved: dict[str, tuple[Any, Path]]) -> None:
    with pytest.raises(IndexError, match=r"ids\[2\]"):
        load_target(saved["llama"][1]).forward([1, 2, token])


def test_the_multimodal_wrapper_holds_the_same_text_model(tmp_path: Path, saved: dict[str, tuple[Any, Path]]) -> None:
    directory = saved["hybrid"][1]
    text = json.loads((directory / "config.json").read_text())
    tensors = {
        name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: tensor
        for name, tensor in load_file(directory / "model.safetensors").items()
    }
    tensors |= {"model.visual.patch_embed.weight": torch.zeros(2), "mtp.fc.weight": torch.zeros(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    wrapper = {"model_type": "qwen3_5", "text_config": text, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(wrapper))
    assert torch.equal(load_target(tmp_path).forward(prompt()).logits, load_target(directory).forward(prompt()).logits)


def test_layers_know_their_kind(saved: dict[str, tuple[Any, Path]]) -> None:
    target = load_target(saved["hybrid"][1])
    assert isinstance(target, TransformerTarget)
    assert [layer.kind for layer in target.layers] == [LayerType.LINEAR] * 3 + [LayerType.FULL]


TABLE: dict[str, Any] = {
    "model_type": "specqual_table",
    "vocab_size": 3,
    "context": 2,
    "eos_token_id": 2,
    "laws": {"": ["1/2", "1/3", "1/6"], "0": ["0", "1", "0"], "1,0": ["1/7", "2/7", "4/7"]},
}


def write_table(directory: Path, changes: dict[str, Any]) -> Path:
    content = {key: value for key, value in (TABLE | changes).items() if value is not None}
    (directory / "config.json").write_text(json.dumps(content))
    return directory


def test_a_table_answers_with_the_law_of_the_longest_listed_suffix(tmp_path: Path) -> None:
    table = load_table(write_table(tmp_path, {}))
    sevenths = [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
    assert table.law([]).tolist() == table.law([0, 1]).tolist() == [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    assert table.law([0]).tolist() == table.law([2, 0]).tolist() == [0, 1, 0]
    assert table.law([2, 1, 0]).tolist() == sevenths
    out = load_target(tmp_path).forward([1, 0])
    assert out.logits[0].exp().tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    assert out.logits[1].tolist() == pytest.approx([float(p) for p in torch.tensor([1, 2, 4]).div(7).log()])
    assert (out.hidden, out.tensors, out.positions) == ((), {}, {})


def test_a_zero_in_a_table_is_minus_infinity(tmp_path: Path) -> None:
    target = load_target(write_table(tmp_path, {}))
    assert isinstance(target, TableTarget)
    assert target.forward([0]).logits.tolist() == [[-torch.inf, 0, -torch.inf]]
    assert target.eos_ids == (2,)
    with pytest.raises(TypeError, match="no hidden states"):
        target.head(target.embed([0]))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vocab_size": None}, "config.json: vocab_size"),
        ({"context": None}, "config.json: context"),
        ({"laws": None}, "config.json: laws"),
        ({"temperature": 1}, "config.json: temperature"),
        ({"eos_token_id": 3}, "config.json: eos_token_id"),
        ({"laws": {"0": ["0", "1", "0"]}}, "config.json: laws"),
        ({"laws": {"": ["1/2", "1/3", "1/7"]}}, "config.json: laws['']"),
        ({"laws": {"": ["1/2", "1/2"]}}, "config.json: laws['']"),
        ({"laws": {"": ["3/2", "-1/2", "0"]}}, "config.json: laws[''][1]"),
        ({"laws": {"": ["1", "0/0", "0"]}}, "config.json: laws[''][1]"),
        ({"laws": {"": [1.0, 0, 0]}}, "config.json: laws[''][0]"),
        ({"laws": {"": ["1", "0", "1e-999999999"]}}, "config.json: laws[''][2]"),
        ({"laws": TABLE["laws"] | {"3": ["1", "0", "0"]}}, "config.json: laws['3']"),
        ({"laws": TABLE["laws"] | {"00": ["1", "0", "0"]}}, "config.json: laws['00']"),
        ({"laws": TABLE["laws"] | {"a": ["1", "0", "0"]}}, "config.json: laws['a']"),
        ({"laws": TABLE["laws"] | {"0,0,0": ["1", "0", "0"]}}, "config.json: laws['0,0,0']"),
    ],
)
def test_a_broken_table_is_refused_by_field(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_target(write_table(tmp_path, changes))
    assert caught.value.field == field

"""Scoring a given sequence: what it says, and that no more than a layer of the model is ever held."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specqual.contract import Scored
from specqual.contract.config import parse_target
from specqual.contract.errors import CheckpointError
from specqual.contract.quantisation import Quantisation
from specqual.contract.request import InvalidRequest
from specqual.contract.schema import target_schema
from specqual.reference.score import ENTRIES, score, score_many
from specqual.reference.target import load_target

from .checkpoints import HYBRID, tensors_of, write, write_hybrid

VOCAB = HYBRID["vocab_size"]
WIDE = HYBRID | {"vocab_size": 2 * ENTRIES + 100}  # three pieces of the head


def ids(length: int, vocab: int = VOCAB, seed: int = 0) -> list[int]:
    return torch.randint(0, vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def judged(logits: Tensor, prompt: list[int], output: list[int]) -> Scored:
    """The definition, from all logits [T, V] at once."""
    laws = logits.double().log_softmax(-1)[len(prompt) - 1 :]
    rows = [laws[place] for place in range(len(output))]
    ordered = [row.sort(descending=True, stable=True) for row in rows]
    return Scored(
        tuple(row[token].item() for row, token in zip(rows, output, strict=True)),
        tuple(values[0].item() for values, _ in ordered),
        tuple(int(places[0]) for _, places in ordered),
        tuple(values[1].item() for values, _ in ordered),
    )


def assert_close(mine: Scored, theirs: Scored, bound: float) -> None:
    assert mine.argmax == theirs.argmax
    for part in ("logprob", "best", "runner_up"):
        assert getattr(mine, part) == pytest.approx(getattr(theirs, part), abs=bound, rel=0)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hybrid whose vocabulary takes several pieces of the head."""
    tensors = tensors_of(target_schema(parse_target(WIDE), Quantisation()))
    return write(tmp_path_factory.mktemp("wide"), WIDE, tensors)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_judge_nothing(tmp_path: Path, number: float) -> None:
    tensors = tensors_of(target_schema(parse_target(HYBRID), Quantisation()))
    tensors["lm_head.weight"][5] = number
    directory = write(tmp_path, HYBRID, tensors)
    for target in (directory, load_target(directory)):
        with pytest.raises(ValueError, match="logits: the target's are NaN or infinite"):
            score(target, ids(3), ids(4))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=str)
def test_score_is_the_log_softmax_of_the_forward_pass(wide: Path, dtype: torch.dtype, bound: float) -> None:
    prompt, output = ids(5, WIDE["vocab_size"]), [*ids(9, WIDE["vocab_size"], seed=1), 2 * ENTRIES + 99]
    expected = judged(load_target(wide).forward(prompt + output[:-1]).logits, prompt, output)
    assert len({token // ENTRIES for token in output}) == 3
    mine = score(wide, prompt, output, dtype=dtype)
    assert_close(mine, expected, bound)
    assert all(regret >= 0 for regret in mine.regret)


def test_score_equals_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    directory = write_hybrid(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    prompt, output = ids(6), ids(20, seed=1)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + output])).logits[0]
    assert_close(score(directory, prompt, output), judged(logits, prompt, output), 1e-4)


def test_scoring_the_greedy_output_gives_no_regret(tmp_path: Path) -> None:
    directory = write_hybrid(tmp_path)
    target, prompt, output = load_target(directory), ids(4), []
    for _ in range(6):
        output.append(int(target.forward(prompt + output).logits[-1].argmax()))
    mine = score(directory, prompt, output, dtype=torch.float64)
    assert mine.argmax == tuple(output)
    assert mine.regret == (0.0,) * 6


def test_ties_go_to_the_lowest_id_within_and_across_pieces_of_the_head(tmp_path: Path) -> None:
    tensors = tensors_of(target_schema(parse_target(WIDE), Quantisation()))
    best = score(write(tmp_path / "plain", WIDE, tensors), [1], [0]).argmax[0]
    row = tensors["lm_head.weight"][best].clone()
    tensors["lm_head.weight"][best] = 0
    for twins in ([7, 9, ENTRIES + 3], [ENTRIES + 3, 2 * ENTRIES + 50], [2 * ENTRIES, 2 * ENTRIES + 50]):
        head = tensors["lm_head.weight"].clone()
        head[twins] = row
        directory = write(tmp_path / str(twins[0]), WIDE, tensors | {"lm_head.weight": head})
        for dtype in (torch.float32, torch.float64):
            mine = score(directory, [1], [twins[-1]], dtype=dtype)
            assert mine.argmax == (twins[0],)
            assert mine.runner_up == mine.best == mine.logprob
            assert mine.regret == (0.0,)


def test_several_sequences_give_what_each_gives_alone(wide: Path) -> None:
    vocab = WIDE["vocab_size"]
    pairs = [(ids(5, vocab), ids(9, vocab, 1)), (ids(1, vocab, 2), ids(1, vocab, 3)), (ids(7, vocab, 4), [])]
    together = score_many(wide, pairs, dtype=torch.float64)
    for mine, (prompt, output) in zip(together, pairs, strict=True):
        assert_close(mine, score(wide, prompt, output, dtype=torch.float64), 1e-12)
    assert together[2] == Scored((), (), (), ())
    assert score_many(wide, []) == []


def test_a_loaded_target_is_scored_as_its_directory_is(wide: Path) -> None:
    pairs = [(ids(5), ids(9, seed=1)), (ids(2, seed=2), ids(3, seed=3))]
    streamed = score_many(wide, pairs, dtype=torch.float64)
    for mine, theirs in zip(score_many(load_target(wide), pairs), streamed, strict=True):
        assert_close(mine, theirs, 1e-12)


@pytest.mark.parametrize("sequences", [1, 3])
def test_layers_and_pieces_of_the_head_are_read_once_for_all_sequences(wide: Path, sequences: int) -> None:
    seen: list[tuple[int, int]] = []
    score_many(wide, [([1, 2], [3])] * sequences, progress=lambda done, steps: seen.append((done, steps)))
    assert seen == [(done, 5) for done in range(1, 6)]  # two layers, three pieces


@pytest.mark.parametrize("quantise_activations", [False, True])
def test_an_nvfp4_checkpoint_is_scored_as_it_is_loaded(quantise_activations: bool) -> None:
    directory = Path(__file__).parents[1] / "fixtures" / "nano" / "hybrid-nvfp4"
    prompt, output = ids(6), ids(10, seed=1)
    target = load_target(directory, quantise_activations=quantise_activations)
    expected = judged(target.forward(prompt + output[:-1]).logits, prompt, output)
    mine = score(directory, prompt, output, dtype=torch.float64, quantise_activations=quantise_activations)
    assert_close(mine, expected, 1e-12)


def test_bfloat16_scores_stay_near(tmp_path: Path) -> None:
    directory = write_hybrid(tmp_path)
    exact, near = (score(directory, ids(6), ids(20, seed=1), dtype=d) for d in (torch.float64, torch.bfloat16))
    assert near.logprob == pytest.approx(exact.logprob, abs=0.5)


def test_a_table_is_scored_by_its_laws(tmp_path: Path) -> None:
    laws = '{"": ["1/2", "1/4", "1/4"], "0": ["0", "1/2", "1/2"]}'
    (tmp_path / "config.json").write_text(
        f'{{"model_type": "specqual_table", "vocab_size": 3, "context": 1, "laws": {laws}}}'
    )
    mine = score(tmp_path, [1], [0, 0, 2])
    half, quarter = torch.tensor([0.5, 0.25], dtype=torch.float64).log().tolist()
    assert mine.logprob == pytest.approx((half, -torch.inf, half))
    assert mine.best == pytest.approx((half, half, half))
    assert mine.argmax == (0, 1, 1)
    assert mine.runner_up == pytest.approx((quarter, half, half))
    assert mine.regret == pytest.approx((0, torch.inf, 0))


@pytest.mark.parametrize(
    ("prompt", "output", "field"),
    [
        ([], [1], "prompt"),
        ([1, VOCAB], [1], "prompt[1]"),
        ([1], [2, -1], "output[1]"),
        ([1] * 60, [1] * 5, "output"),
    ],
)
def test_bad_sequences_are_refused_by_field(tmp_path: Path, prompt: list[int], output: list[int], field: str) -> None:
    directory = write_hybrid(tmp_path)
    for target in (directory, load_target(directory)):
        with pytest.raises(InvalidRequest) as caught:
            score(target, prompt, output)
        assert caught.value.field == field


def test_a_broken_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    directory = write_hybrid(tmp_path)
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.norm.weight"]
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        score(write(tmp_path / "broken", HYBRID, tensors), [1], [2])


class Held(TorchDispatchMode):
    """Counts the bytes of storages that tensor operations made and that are still alive.

    safetensors sets tensors upon storages that map the file: those pages can be dropped at any time and do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        mapped = func is torch.ops.aten.set_.source_Storage
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                reference = StorageWeakRef(storage)
                self._alive.setdefault(reference.cdata, (reference, 0 if mapped else storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return out


DEEP = HYBRID | {
    "vocab_size": 4 * ENTRIES,
    "hidden_size": 64,
    "intermediate_size": 1024,
    "num_hidden_layers": 12,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 3,
}


def test_scoring_never_holds_more_than_one_layer_and_one_piece(tmp_path: Path) -> None:
    schema = target_schema(parse_target(DEEP), Quantisation())
    stored = {name: tensor.bfloat16() for name, tensor in tensors_of(schema).items()}  # so that reading must convert
    directory = write(tmp_path, DEEP, stored)
    sizes = {name: 4 * tensor.numel() for name, tensor in stored.items()}
    layer = max(sum(size for name, size in sizes.items() if f".layers.{i}." in name) for i in range(12))
    piece = 4 * ENTRIES * DEEP["hidden_size"]
    whole = sum(sizes.values())
    del stored
    prompt, output = ids(8), ids(8, seed=1)
    with Held() as loaded:
        target = load_target(directory, dtype=torch.float32)
        target.forward(prompt + output)
    assert loaded.peak >= whole - sizes["model.embed_tokens.weight"]  # the count sees what is held
    del target
    with Held() as held:
        score(directory, prompt, output)
    activations = 2**20 + 4 * 8 * 8 * ENTRIES  # logits of eight tokens over a piece, a few of them in float64
    assert held.peak <= max(layer, piece) + activations
    assert held.peak <= whole / 4

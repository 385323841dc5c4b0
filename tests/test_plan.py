"""`specqual plan`: what the GPU decoder holds, from the configurations alone."""

from pathlib import Path

import pytest

from specqual import fixtures
from specqual.cli import main
from specqual.commands.plan import size_of
from specqual.contract.checkpoint import read_draft, read_target
from specqual.decoder.gpu.budget import Load, Pair, budget, longest_context, total

LARGE, SMALL = "geometry/qwen3.8-27b", "geometry/qwen3-4b"
GIB = 2**30


def pair_of(name: str) -> Pair:
    target, quantisation = read_target(fixtures.path(name))
    return Pair(target, quantisation, *read_draft(fixtures.path(f"{name}-dflash2"), target))


def options(name: str, memory: str, *more: str) -> list[str]:
    target, draft = fixtures.path(name), fixtures.path(f"{name}-dflash2")
    return ["plan", "--target", str(target), "--draft", str(draft), "--memory", memory, *more]


def sums(pair: Pair, load: Load) -> dict[str, int]:
    return {item.name: item.bytes for item in budget(pair, load)}


def test_fifteen_requests_of_4096_tokens_fit_into_32_gib_with_the_27b_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(options(LARGE, "32GiB")) == 0
    said = capsys.readouterr().out
    assert "15 × 4,096 fits: drafter as stored, drafter in NVFP4" in said
    assert total(pair_of(LARGE), Load(15, 4096, quantise_draft=True)) < 29.21 * GIB


def test_status_1_says_that_they_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options(LARGE, "24GiB")) == 1
    assert capsys.readouterr().out.endswith("15 × 4,096 does not fit\n")
    assert main(options(SMALL, "16GiB")) == 1
    assert main(options(SMALL, "16GiB", "--kv", "fp8")) == 0
    assert main(options(SMALL, "16GiB", "--context", "2048")) == 0


def test_weights_weigh_what_the_published_files_weigh() -> None:
    found = sums(pair_of(LARGE), Load(1, 256))
    assert found["target: fp8 modules"] == pytest.approx(1.68e9 + 5.54e9, rel=0.01)
    assert found["target: nvfp4 modules"] == pytest.approx(9.63e9 + 0.715e9, rel=0.01)
    assert found["drafter: bfloat16 modules"] + found["drafter: tables and norms"] == 2 * 1_924_404_480
    quantised = sums(pair_of(LARGE), Load(1, 256, quantise_draft=True))
    assert quantised["drafter: nvfp4 modules"] == pytest.approx(
        found["drafter: bfloat16 modules"] * 0.5625 / 2, rel=1e-4
    )
    assert quantised["drafter: tables and norms"] == found["drafter: tables and norms"]


def test_states_and_caches_weigh_what_their_shapes_say() -> None:
    found = sums(pair_of(LARGE), Load(15, 4096))
    assert found["recurrent states, float32"] == 15 * 48 * 3 * 2**20
    assert found["target: FP8 keys and values"] == pytest.approx(15 * 4096 * 32 * 1024, rel=0.01)
    assert sums(pair_of(LARGE), Load(15, 4096, prefixes=256))["recurrent states, float32"] == 30 * 48 * 3 * 2**20
    whole = sums(pair_of(LARGE), Load(15, 65536))["drafter: bfloat16 keys and values"]
    assert found["drafter: bfloat16 keys and values"] == whole  # the window holds no more
    half = sums(pair_of(SMALL), Load(15, 4096, fp8_cache=True))["target: FP8 keys and values"]
    assert sums(pair_of(SMALL), Load(15, 4096))["target: bfloat16 keys and values"] == 2 * half


def test_more_never_needs_less_and_the_longest_context_is_the_last_that_fits() -> None:
    pair = pair_of(LARGE)
    sizes = [total(pair, Load(batch, context)) for batch, context in ((1, 512), (1, 4096), (2, 4096), (15, 4096))]
    assert sizes == sorted(sizes)
    assert total(pair, Load(15, 4096, quantise_draft=True)) < total(pair, Load(15, 4096))
    for memory in (28 * GIB, 32 * GIB):
        longest = longest_context(pair, Load(15, 0), memory)
        assert total(pair, Load(15, longest + 256)) > memory
        assert not longest or total(pair, Load(15, longest)) <= memory
    assert longest_context(pair, Load(1, 0), 10 * GIB) == 0
    assert longest_context(pair, Load(1, 0), 1000 * GIB) == pair.target.max_context


def test_states_of_cached_prefixes_are_counted_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for prefixes in ("0", "256"):
        assert main(options(LARGE, "32GiB", "--prefixes", prefixes)) == 0
        said.append(capsys.readouterr().out)
    assert ["4.219" in text for text in said] == [False, True]  # GiB, twice as many states
    told = "without a prefix cache; with 256 chunks, the decoder's default, 2.440 GiB more (--prefixes 256)"
    assert [told in text for text in said] == [True, False]
    assert main(options(SMALL, "32GiB")) == 0
    assert "prefix cache" not in capsys.readouterr().out  # which takes its room from the pages of the pool


def test_a_target_may_go_alone(capsys: pytest.CaptureFixture[str]) -> None:
    target = fixtures.path("nano/hybrid-nvfp4")
    assert main(["plan", "--target", str(target), "--memory", "2GB", "--batch", "2", "--context", "300"]) == 0
    assert "without a drafter" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "size"), [("32GiB", 32 * GIB), ("1.5 gb", 1_500_000_000), ("4096", 4096)])
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--memory", "much"], "memory: must be a size like 32GiB or 16GB, got 'much'"),
        (["--prefixes", "-1"], "prefixes: must be at least 0, got -1"),
        (["--batch", "0"], "batch: must be at least 1, got 0"),
        (["--context", "300000"], "context: must be between 1 and the target's 262144, got 300000"),
        (["--draft", str(fixtures.path("geometry/qwen3-4b-dflash2"))], "config.json: vocab_size: is 151936, but"),
        (["--target", "/nowhere"], "config.json: no such file in /nowhere"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(
    wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options(LARGE, "32GiB"), *wrong]) == 2
    assert message in capsys.readouterr().err


def test_the_configuration_is_all_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((fixtures.path(SMALL) / "config.json").read_bytes())
    assert main(["plan", "--target", str(tmp_path), "--memory", "32GiB"]) == 0

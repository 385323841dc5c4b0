"""What is said where kernels cannot run."""

import pytest
import torch

from specqual import fixtures
from specqual.contract import Setup, Unsupported
from specqual.decoder import make
from specqual.decoder.gpu import need


def present(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(need, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(need, "probe", lambda: None)


def test_without_triton_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(need, "find_spec", lambda name: None)
    for check in (need.triton, need.gpu):
        with pytest.raises(Unsupported, match="triton: is not installed"):
            check()


def test_without_a_gpu_torchs_own_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, (9, 0))
    reasons = (
        RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nmore"),
        AssertionError("no"),
    )
    for reason in reasons:

        def init(reason: Exception = reason) -> None:
            raise reason

        monkeypatch.setattr(torch.cuda, "init", init)
        with pytest.raises(Unsupported, match=r"device: no GPU can be used \((The NVIDIA driver .* 11040\)\.|no)\)$"):
            need.gpu()


def test_a_torch_that_was_built_for_other_gpus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, (12, 0))

    def probe() -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")

    monkeypatch.setattr(need, "probe", probe)
    with pytest.raises(Unsupported, match=r"device: no GPU can be used \(CUDA error: no kernel image .* device\)$"):
        need.gpu()


def test_a_pool_that_memory_does_not_hold_is_refused_by_name() -> None:
    asked = Setup(target=fixtures.path("nano/dense"), options={"pages": 10**12})
    with pytest.raises(Unsupported, match=r"^pages: pool and states do not fit into memory; .*allocate memory"):
        make(asked)


def test_memory_that_a_device_lacks_is_told_by_what_it_was_for_and_nothing_else_is_hidden() -> None:
    with (
        pytest.raises(Unsupported, match=r"^target: weights \(CUDA out of memory\.\)$"),
        need.room("target", "weights"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")
    with pytest.raises(RuntimeError, match="^shapes differ$"), need.room("target", "weights"):
        raise RuntimeError("shapes differ")


def test_what_flash_attention_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^attention: flash needs dtype bfloat16, got float32$"):
        need.flash("cuda", torch.float32)
    monkeypatch.setattr(need, "find_spec", lambda name: None)
    with pytest.raises(
        Unsupported, match=r"^attention: flash needs flash-attn, .* \(pip install 'specqual\[flash\]'\)$"
    ):
        need.flash("cuda", torch.bfloat16)
    assert not need.has_flash("cuda", torch.bfloat16)
    monkeypatch.setattr(need, "find_spec", lambda name: object())
    assert need.has_flash("cuda", torch.bfloat16)


def test_an_old_gpu_is_refused_and_a_new_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, (8, 6))
    with pytest.raises(Unsupported, match=r"device: has compute capability 8.6, and the GPU kernels need 9.0"):
        need.gpu()
    present(monkeypatch, (12, 0))
    need.gpu()

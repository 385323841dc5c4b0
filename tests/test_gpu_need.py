"""What is said where kernels cannot run."""

import pytest
import torch

from specqual.contract import Unsupported
from specqual.decoder.gpu import need


def present(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(need, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)


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


def test_what_flash_attention_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = torch.device("cuda")
    with pytest.raises(ValueError, match=r"^attention: flash needs dtype bfloat16, got float32$"):
        need.flash(there, torch.float32)
    monkeypatch.setattr(need, "find_spec", lambda name: None)
    with pytest.raises(
        Unsupported, match=r"^attention: flash needs flash-attn, .* \(pip install 'specqual\[flash\]'\)$"
    ):
        need.flash(there, torch.bfloat16)
    assert not need.has_flash(there, torch.bfloat16)
    monkeypatch.setattr(need, "find_spec", lambda name: object())
    assert need.has_flash(there, torch.bfloat16)


def test_an_old_gpu_is_refused_and_a_new_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, (8, 6))
    with pytest.raises(Unsupported, match=r"device: has compute capability 8.6, and the GPU kernels need 9.0"):
        need.gpu()
    present(monkeypatch, (12, 0))
    need.gpu()

"""The oracle is judged, too: a fault planted in the reference itself (M31d) is found by the suite's own tests.

Public reports have it that a test was wrong and not the kernel: a reference reader unswizzled scales that are linear.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from specqual import fixtures, reference
from specqual.conformance import check
from specqual.conformance.lab import Run
from specqual.mutants.pairs import DFLASH2
from specqual.mutants.planting import Place, swapped
from specqual.reference import attention, deltanet, fp8, law, nvfp4, target
from tests import test_formats, test_reference_targets

Planted = Callable[..., Any]

sound_judged, sound_unpack, sound_round = law.judged, nvfp4.unpack, fp8.round_e4m3
sound_causal, sound_attention, sound_rotate = attention.causal, attention.attention, attention.rotate
sound_convolve, sound_norm = deltanet.convolve, target.rms_norm


def interleaved(x: Tensor, turn: Any) -> Tensor:
    """Neighbouring dimensions are paired, not those half a head apart."""
    half = turn.cos.shape[-1]
    order = torch.arange(2 * half).view(2, half).T.flatten()
    rest = torch.arange(2 * half, x.shape[-1])
    return sound_rotate(x[..., torch.cat([order, rest])], turn)[..., torch.cat([order, rest]).argsort()]


def late_decay(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """The state forgets behind a write, and not before."""
    state, outputs = value.new_zeros(query.shape[1], query.shape[2], value.shape[2]), []
    for token in range(len(query)):
        write = beta[token, :, None] * (value[token] - (key[token, :, None] @ state).squeeze(1))
        state = (state + key[token, :, :, None] * write[:, None]) * decay[token, :, None, None]
        outputs.append((query[token, :, None] @ state).squeeze(1))
    return torch.stack(outputs), state


RULES: dict[str, tuple[Place, Planted]] = {
    "a correction drawn from p": ((law, "residual"), lambda p, q: p),
    "acceptance lenient by a tenth": (
        (law, "judged"),
        lambda rule, q, draft, p: sound_judged(rule, q, draft, p) * Fraction(9, 10),
    ),
}
NUMBERS: dict[str, tuple[str, Place, Planted]] = {
    "scores scaled by too much": (
        "nano/dense",
        (attention, "attention"),
        lambda query, key, value, seen, scale: sound_attention(query, key, value, seen, 1.01 * scale),
    ),
    "a window of one row more": (
        "nano/window",
        (attention, "causal"),
        lambda rows, window=None, device="cpu": sound_causal(rows, window and window + 1, device),
    ),
    "dimensions paired otherwise": ("nano/llama", (attention, "rotate"), interleaved),
    "a norm without the one": (
        "nano/hybrid",
        (target, "rms_norm"),
        lambda x, weight, eps, *, plus_one=False: sound_norm(x, weight, eps),
    ),
    "forgetting behind the write": ("nano/hybrid", (deltanet, "recur"), late_decay),
    "taps in reverse": (
        "nano/hybrid",
        (deltanet, "convolve"),
        lambda rows, taps: sound_convolve(rows, taps.flip(-1)),
    ),
}


@pytest.mark.parametrize("fault", RULES)
def test_a_wrong_rule_in_the_oracle_is_violated_by_the_judges_own_clause(fault: str) -> None:
    place, planted = RULES[fault]
    with swapped({place: planted}):
        (found,) = check.run(Run("reference", reference.make, DFLASH2.setup), ["LAW-1"])
    assert found.verdict == "VIOLATED", found.detail
    assert found.proof


@pytest.mark.parametrize("fault", NUMBERS)
def test_wrong_arithmetic_in_the_oracle_is_not_what_transformers_computes(fault: str) -> None:
    name, place, planted = NUMBERS[fault]
    agree = test_reference_targets.test_logits_of_committed_targets_equal_transformers
    with swapped({place: planted}), pytest.raises(AssertionError):
        agree(fixtures.path(name), torch.float64)


def test_codes_read_in_the_wrong_order_are_not_what_compressed_tensors_reads() -> None:
    swaps = {(nvfp4, "unpack"): lambda packed: sound_unpack((packed << 4) | (packed >> 4))}
    with swapped(swaps), pytest.raises(AssertionError):
        test_formats.test_compressed_tensors_layout_equals_the_package_bit_for_bit()


def test_rounding_that_cuts_is_not_what_torch_rounds() -> None:
    with swapped({(fp8, "round_e4m3"): lambda x: sound_round(x * (1 - 2.0**-10))}), pytest.raises(AssertionError):
        test_formats.test_e4m3_rounding_equals_torch_bit_for_bit()

"""A malformed request gives one clear error that names the field."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from specqual.contract import InvalidRequest, Limits, Request, Sampling, validate

LIMITS = Limits(vocab_size=10, max_context=100)
GOOD = Request(prompt=(1, 2), max_tokens=4)


def test_a_plain_request_is_valid() -> None:
    validate(GOOD, LIMITS)
    validate(replace(GOOD, sampling=Sampling(temperature=1.0, top_k=3, top_p=0.5, min_p=0.1)), LIMITS)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("prompt", {"prompt": ()}),
        ("prompt[1]", {"prompt": (1, 10)}),
        ("prompt[0]", {"prompt": (-1,)}),
        ("prompt[0]", {"prompt": (True,)}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": -3}),
        ("max_tokens", {"max_tokens": 2.0}),
        ("min_tokens", {"min_tokens": 5}),
        ("n", {"n": 0}),
        ("seed", {"seed": -1}),
        ("stop_ids[0]", {"stop_ids": (10,)}),
        ("stop_strings[0]", {"stop_strings": ("",)}),
        ("logprobs", {"logprobs": 11}),
    ],
)
def test_a_malformed_request_names_its_field(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(replace(GOOD, **change), LIMITS)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", nan),
        ("temperature", inf),
        ("temperature", 10**400),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", -0.5),
        ("repetition_penalty", 0.0),
        ("presence_penalty", nan),
        ("frequency_penalty", inf),
        ("logit_bias", ((10, 1.0),)),
        ("logit_bias", ((1, nan),)),
    ],
)
def test_a_malformed_sampling_parameter_names_itself(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(replace(GOOD, sampling=replace(Sampling(), **{field: value})), LIMITS)
    assert caught.value.field.split("[")[0] == field

"""One value for each field of a request that is not its default: what is not honoured must be refused by its name."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from specqual.contract import Request, Sampling

UNUSUAL: Mapping[str, Any] = {
    "temperature": 0.7,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.1,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": ((0, 1.0),),
    "seed": 7,
    "n": 2,
    "min_tokens": 2,
    "ignore_eos": True,
    "stop_ids": (0,),
    "stop_strings": ("a",),
    "logprobs": 1,
}


def unusual(base: Request) -> Iterator[tuple[str, Request]]:
    """The request with one field after the other at such a value, with the field's name."""
    of_sampling = {field.name for field in fields(Sampling)}
    for name, value in UNUSUAL.items():
        changes = {"sampling": replace(base.sampling, **{name: value})} if name in of_sampling else {name: value}
        yield name, replace(base, **changes)

"""What chapter SMP tries is everything that a request can say."""

from dataclasses import fields

from specqual.conformance.unusual import UNUSUAL
from specqual.contract import Request, Sampling


def test_every_parameter_of_a_request_is_tried_at_a_value_that_is_not_its_default() -> None:
    defaults = {field.name: field.default for kind in (Sampling, Request) for field in fields(kind)}
    for name in ("prompt", "max_tokens", "sampling"):  # no request is without them
        del defaults[name]
    assert set(UNUSUAL) == set(defaults)
    assert [name for name, value in UNUSUAL.items() if value == defaults[name]] == []

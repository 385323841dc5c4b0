"""Clauses on bad input."""

from . import MUST, Row

ROWS: tuple[Row, ...] = (
    (
        "ERR-1",
        MUST,
        "A malformed request raises InvalidRequest naming the field, and the decoder goes on serving.",
        "",
        "one malformed request per field and bound, then a good request with the same output as before",
        "K06 K27",
    ),
    (
        "ERR-2",
        MUST,
        "Cancelling an unknown or ended request raises KeyError.",
        "",
        "ids never given, and of a finished request",
        "K27",
    ),
)

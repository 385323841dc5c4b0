"""Clauses on what is kept between rounds, and on what happens around a request."""

from . import MUST, Row

SEEN = "Traced Scripted Inspectable Schedulable"
PLAYED = "random histories of a state machine against an undisturbed twin, shrunk"

ROWS: tuple[Row, ...] = (
    (
        "RWD-1",
        MUST,
        "After every commit, lengths, positions and rows of the target's caches and the drafter's context equal those "
        "of a decoder that was given the committed tokens.",
        SEEN,
        f"{PLAYED}; bitwise where claimed, else within rounding of the reference's state",
        "K13 K14 K16 K22",
    ),
)

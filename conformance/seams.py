"""The seams of a decoder: through what a clause has looked at it, for the detail of its verdict."""

from specqual.contract import Inspectable, Scoring, Scripted, Taped, Traced

from .lab import Lab

SEAMS = {
    "scores": Scoring,
    "a trace": Traced,
    "scripted drafts": Scripted,
    "a tape": Taped,
    "states": Inspectable,
}


def seam(lab: Lab, *names: str) -> dict[str, str]:
    """The seams among these that are offered, as notes of evidence; without any, all that is seen are the events."""
    found = [name for name in names if isinstance(lab.decoder, SEAMS[name])]
    return {"seam": " and ".join(found) if found else "events alone"}

"""The text of every clause, by group of chapters; `conformance.clauses` puts them together."""

from ..verdicts import Level

Row = tuple[str, Level, str, str, str, str]
"""id, level, requirement, the protocols it needs, how it is decided, where it comes from."""

MUST, SHOULD, INFO = Level.MUST, Level.SHOULD, Level.INFO

"""What a client may set about the order of work: it moves ticks and lengths, and no token of a greedy request."""

from dataclasses import dataclass, replace

from .pages import PAGE

LONGEST_CHUNK = 256  # tokens of a prompt that one tick takes at most; windowed streams reserve room for so many


@dataclass(frozen=True, slots=True)
class Schedule:
    """`draft`: drafts of a round, at most; `chunk`: tokens of a prompt in one pass, in whole pages, so that borders lie
    where they always lie; `lag`: ticks between a pass and its commit, 0 or 1."""

    draft: int
    chunk: int = LONGEST_CHUNK
    lag: int = 0

    def changed(self, longest: int, chunk: int | None, lag: int | None, draft: int | None) -> "Schedule":
        """A schedule with what is not None changed; ValueError names a value that does not fit."""
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk: must be at least 1, got {chunk}")
        if lag not in (None, 0, 1):
            raise ValueError(f"lag: must be 0 or 1, got {lag}")
        if draft is not None and not 0 <= draft <= longest:
            raise ValueError(f"draft: must be between 0 and {longest}, got {draft}")
        whole = None if chunk is None else min(-(-chunk // PAGE) * PAGE, LONGEST_CHUNK)
        given = {"chunk": whole, "lag": lag, "draft": draft}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

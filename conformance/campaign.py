"""The histories of a run: drawn and played once, as far as chapters ask for more, and shared by all of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from .compare import compare
from .drive import guarded
from .evidence import Case, Evidence, Guard
from .history import CHUNKS, Step, cast_of, told
from .lab import Lab
from .machine import Stage, draw
from .player import Player, Unlike
from .shrink import shrink
from .twin import Twin


@dataclass(frozen=True, slots=True)
class Story:
    """One history that was played: its steps, the rules that really ran, and the first difference of each chapter."""

    steps: tuple[Step, ...]
    rules: int
    comparisons: int
    largest: float
    unlike: dict[str, Unlike]
    counts: Counter[str]


@dataclass
class Campaign:
    """Plays histories as long as a chapter asks for more; every story serves all chapters."""

    lab: Lab
    twin: Twin = field(init=False)
    stage: Stage = field(init=False)
    stories: list[Story] = field(default_factory=list)
    _blocks: int = 0
    _shrunk: dict[str, Story] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.twin = Twin(self.lab)
        with self.twin.fresh() as decoder:
            lags = (0, 1) if takes(decoder, lag=1) else (0,)
            chunks = tuple(size for size in CHUNKS if takes(decoder, chunk=size))
        self.stage = Stage(cast_of(self.lab), self.lab.longest, lags, chunks)

    def play(self, steps: tuple[Step, ...]) -> Story:
        """Play a history on a decoder of its own, and compare it with the twin."""
        with self.twin.fresh() as decoder:
            player = Player(self.lab, self.twin, decoder, self.stage.cast)
            player.play(steps)
        found = compare(player, self.lab.effort.replays)
        first: dict[str, Unlike] = {}
        for unlike in found:
            first.setdefault(unlike.chapter, unlike)
        return Story(steps, player.ran, player.comparisons, player.largest, first, player.counts)

    def _another(self) -> Story:
        """The next history. It has a number of its own, because what Hypothesis draws in one go is much alike."""
        number = crc32(f"{self.lab.run.seed}/histories/{len(self.stories)}".encode())
        return self.play(draw(self.stage, number))

    def until(self, chapter: str) -> Story | None:
        """The first story in which the chapter's property does not hold, after as many as the profile asks for."""
        while not self._first(chapter) and len(self.stories) < self.lab.effort.histories:
            self.stories.append(self._another())
        return self._first(chapter)

    def _first(self, chapter: str) -> Story | None:
        return next((story for story in self.stories if chapter in story.unlike), None)

    def shrunk(self, chapter: str, story: Story) -> Story:
        """A smaller history in which the chapter's property does not hold either."""
        stories = {story.steps: story}

        def fails(steps: tuple[Step, ...]) -> int | None:
            stories[steps] = played = self.play(steps)
            unlike = played.unlike.get(chapter)
            return None if unlike is None else unlike.place

        unlike = story.unlike[chapter]
        steps = shrink(story.steps[: unlike.place + 1], fails, self.lab.effort.shrinks)
        return stories[steps] if steps in stories else self.play(steps)

    def evidence(self, chapter: str, guards: Sequence[str]) -> Evidence:
        """What the histories say about a chapter; the hazards named by `guards` must have occurred in them."""
        story = self.until(chapter)
        if story is not None:
            if chapter not in self._shrunk:
                self._shrunk[chapter] = self.shrunk(chapter, story)
            return Evidence("histories", [self.case(chapter, self._shrunk[chapter])])
        counts = sum((story.counts for story in self.stories), Counter[str]())
        cases = [self.case(chapter, story) for story in self.stories]
        hazards = [Guard(hazard, sum(n for name, n in counts.items() if name.startswith(hazard))) for hazard in guards]
        return Evidence("histories", cases, hazards, dict(sorted(counts.items())))

    def case(self, chapter: str, story: Story) -> Case:
        """A story as JSON, cut behind the step that shows the chapter's difference."""
        unlike = story.unlike.get(chapter)
        steps = story.steps if unlike is None else story.steps[: unlike.place + 1]
        seen = None
        if unlike is not None:
            seen = {name: getattr(unlike, name) for name in ("what", "expected", "actual", "tolerance")}
        return {
            "history": told(steps, self.stage.cast, self.lab.longest),
            "rules": story.rules,
            "comparisons": story.comparisons,
            "largest": story.largest,
            "difference": seen,
        }


def takes(decoder: Any, **sizes: int) -> bool:
    """Whether the decoder follows this schedule; a ValueError says that it has no such thing."""

    def ask() -> bool:
        try:
            decoder.schedule(**sizes)
        except ValueError:
            return False
        return True

    return guarded("schedule", ask)

"""The histories of a run: drawn and played once, as far as chapters ask for more, and shared by all of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from zlib import crc32

from specqual.contract import Request, Sampling

from .compare import compare
from .drive import NotOffered, guarded
from .evidence import Case, Evidence, Guard
from .generators import PAGE, sizes
from .history import Cast, Step, cast_of, told
from .lab import Lab
from .machine import Stage, draw
from .origin import explained, origin
from .played import Unlike
from .player import Player
from .shrink import Steps, shrink
from .states import recurrent
from .twin import Twin, look


@dataclass(frozen=True, slots=True)
class Story:
    """One history that was played: its steps, and the first difference of each chapter."""

    steps: Steps
    cast: Cast
    comparisons: int
    largest: float
    unlike: dict[str, Unlike]
    counts: Counter[str]
    longest: int  # K
    shrunk: str = ""  # from what, for one that was


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
        self.twin = self.lab.twin
        self.stage = Stage(cast_of(self.lab), self.lab.longest, self.twin.sizes)

    def play(self, steps: Steps, cast: Cast | None = None) -> Story:
        """Play a history on a decoder of its own, and compare it with the twin."""
        steps = allowed(self.lab, steps)
        with self.twin.fresh() as decoder:
            player = Player(self.lab, self.twin, decoder, self.stage.cast if cast is None else cast)
            player.play(steps)
        found = compare(player, self.lab.effort.replays)
        first: dict[str, Unlike] = {}
        for unlike in found:
            first.setdefault(unlike.chapter, unlike)
        return Story(steps, player.cast, player.comparisons, player.largest, first, player.counts, self.lab.longest)

    @cached_property
    def recurrent(self) -> bool:
        """Whether the decoder shows a recurrent state."""
        request = self.stage.cast[0]
        self.twin.plain(replace(request, max_tokens=2, sampling=Sampling(), n=1))
        state = next(iter(self.twin.states([request.prompt]).values()))
        return bool(recurrent(state.tensors))

    @cached_property
    def gradual(self) -> bool:
        """Whether a prompt of more than a chunk can be seen half filled behind a tick."""
        if not self.twin.sizes.chunks:
            return False
        chunk = self.twin.sizes.chunk(PAGE)
        length, budget = sizes(self.lab, 2 * chunk + 5, 2)
        request = Request(prompt=(self.stage.cast[0].prompt[0],) * length, max_tokens=budget)
        with self.twin.fresh() as decoder:
            guarded("schedule", lambda: decoder.schedule(chunk=chunk))
            request_id = guarded("submit", lambda: decoder.submit(request))
            guarded("step", decoder.step)
            state = look(decoder, request_id, 0)
        return state is not None and 0 < state.length < len(request.prompt) - 1

    @cached_property
    def lagging(self) -> bool:
        """Whether the decoder takes a commit lag."""
        return 1 in self.twin.sizes.lags

    def owning(self) -> None:
        """Raise NotOffered where there is nothing to account for."""
        with self.twin.fresh() as decoder:
            if not guarded("resources", decoder.resources):
                raise NotOffered("the decoder owns nothing between rounds: it counts no resources")

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

        def fails(steps: Steps) -> int | None:
            stories[steps] = played = self.play(steps)
            unlike = played.unlike.get(chapter)
            return None if unlike is None else unlike.place

        unlike = story.unlike[chapter]
        steps = shrink(story.steps[: unlike.place + 1], fails, self.lab.effort.shrinks)
        small = stories[steps] if steps in stories else self.play(steps)
        return replace(small, shrunk=f"from {len(story.steps)} steps") if chapter in small.unlike else story

    def evidence(self, chapter: str, guards: Sequence[str]) -> Evidence:
        """What the random histories say about a chapter; the hazards named by `guards` must have occurred in them."""
        story = self.until(chapter)
        if story is not None:
            if chapter not in self._shrunk:
                self._shrunk[chapter] = self.shrunk(chapter, story)
            return self.told([self._shrunk[chapter]], chapter, ())
        return self.told(self.stories, chapter, guards)

    def scenes(self, chapter: str, scenes: Iterable[tuple[Steps, Cast]], guards: Sequence[str]) -> Evidence:
        """What histories written on purpose say about a chapter; the first one that fails ends them."""
        stories: list[Story] = []
        for steps, cast in scenes:
            stories.append(self.play(steps, cast))
            if chapter in stories[-1].unlike:
                return self.told(stories[-1:], chapter, ())
        return self.told(stories, chapter, guards)

    def told(self, stories: Sequence[Story], chapter: str, guards: Sequence[str]) -> Evidence:
        """Stories as evidence; a guard counts every hazard whose name begins as it does."""
        counts = sum((story.counts for story in stories), Counter[str]())
        hazards = [Guard(hazard, sum(n for name, n in counts.items() if name.startswith(hazard))) for hazard in guards]
        cases = [case_of(story, chapter) for story in stories]
        found = Evidence("histories", cases, hazards, dict(sorted(counts.items())))

        def began(place: int) -> Case | None:
            one = stories[place].unlike[chapter].one
            return None if one is None else origin(self.lab, one.request, one.rounds, one.looks)

        return explained(self.lab, found, began)


def case_of(story: Story, chapter: str) -> Case:
    """A story as JSON, cut behind the step that shows the chapter's difference."""
    unlike = story.unlike.get(chapter)
    steps = story.steps if unlike is None else story.steps[: unlike.place + 1]
    seen = None
    if unlike is not None:
        seen = {name: getattr(unlike, name) for name in ("what", "expected", "actual", "tolerance")}
    return {
        "history": told(steps, story.cast, story.longest),
        "rules": len(steps),
        "comparisons": story.comparisons,
        "largest": story.largest,
        "ties": story.counts["ties"],
        "difference": seen,
        **({"shrunk": story.shrunk} if story.shrunk else {}),
    }


def allowed(lab: Lab, steps: Steps) -> Steps:
    """A history as far as the features of this run go."""
    kept = list[Step]()
    for step in steps:
        if step.verb == "submit" and kept and not lab.has("batches"):
            kept.append(Step("drain"))
        wanted = {
            "set_lag": lab.has("lag"),
            "bucket": lab.has("buckets"),
            "chunk": lab.has("chunks") and bool(lab.twin.sizes.chunks),
        }
        lengths = lab.has("unequal-drafts") and (step.amount or lab.has("silent-rounds"))
        if wanted.get(step.verb, True) and (step.verb != "draft" or lengths):
            kept.append(replace(step, amount=lab.twin.sizes.chunk(step.amount)) if step.verb == "chunk" else step)
    return tuple(kept)

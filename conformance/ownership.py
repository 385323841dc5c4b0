"""Who owns which pages and slots, tick by tick: conserved, one owner each, and back in time."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from specqual.contract import Request, State

from .drive import guarded
from .history import CHUNK

if TYPE_CHECKING:
    from .played import Played
    from .player import Player


@dataclass
class Books:
    """The accounts of one history. `total` is what was free before it began."""

    player: "Player"
    total: dict[str, int] = field(init=False)
    _ticks: int = 0
    _due: list[tuple[int, str]] = field(default_factory=list)  # (tick, chapter) by which something must be back
    _owned: list[tuple["Played", State]] = field(default_factory=list)  # of this tick
    _served: set[tuple[int, ...]] = field(default_factory=set)  # beginnings of prompts that were filled

    def __post_init__(self) -> None:
        self.total = self.free()

    def free(self) -> dict[str, int]:
        return dict(guarded("resources", self.player.decoder.resources))

    def due(self, ticks: int, chapter: str) -> None:
        """Something is given back now; it must be there in so many ticks."""
        self._due.append((self._ticks + ticks, chapter))

    def own(self, one: "Played", sample: int, state: State) -> None:
        """Note what a live sample owns behind the tick that is about to be accounted for."""
        self._owned.append((one, state))
        if state.length >= CHUNK:
            prompt = one.request.prompt
            self._served.update(prompt[:end] for end in range(CHUNK, min(state.length, len(prompt)) + 1, CHUNK))

    def begun(self, request: Request) -> bool:
        """Whether a whole chunk of this prompt was served before, with at least a token behind it."""
        return len(request.prompt) > CHUNK and request.prompt[:CHUNK] in self._served

    def tick(self) -> None:
        """Close the accounts of one tick."""
        self._ticks += 1
        owned, self._owned = self._owned, []
        expect, free = self.player.expect, self.free()
        owners = defaultdict[int, list["Played"]](list)
        slots = [state.slot for _, state in owned if state.slot is not None]
        for one, state in owned:
            for page in state.pages:
                owners[page].append(one)
        late = {chapter for tick, chapter in self._due if tick <= self._ticks}
        waiting = any(tick > self._ticks for tick, _ in self._due)
        self._due = [(tick, chapter) for tick, chapter in self._due if tick > self._ticks]
        self.player.counts["accounts closed"] += not waiting
        for kind, count in (("pages", len(owners)), ("slots", len(set(slots)))):
            if kind in free and not waiting:
                for chapter in sorted({"RES", *late}):
                    expect(chapter, f"{kind} free and owned together", self.total[kind], free[kind] + count)
        expect("RES", "slots with two owners", [], sorted({slot for slot in slots if slots.count(slot) > 1}))
        for page, users in owners.items():
            for one, other in combinations(users, 2):
                self.player.counts["pages shared"] += 1
                if one is not other:
                    common = one.request.prompt[0] == other.request.prompt[0]
                    what = f"page {page} is owned by {one.label} and {other.label}, whose prompts begin alike"
                    expect("RES", what, True, common)

    def close(self) -> None:
        """Nobody is left, so all is as it was."""
        self.player.expect("RES", "free resources when all requests have ended", self.total, self.free())

"""The state machine that draws histories: Hypothesis picks the rules and what they are about.

The rules only write a history down, against a model that knows what was submitted and what was cancelled. It is played,
compared and shrunk as plain data, so that a failure can be told in words and looked at again without a decoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from specqual.contract import Request

from .history import Step, family_of
from .sizes import Sizes

RULES = 63  # of one history, at most; Hypothesis leaves some out, and at least 50 shall run
DRAWN = 200  # histories drawn, until one is worth playing
AT_ONCE = 6  # submissions that may wait for each other
FILLING = 4  # ticks that a prompt may take, roughly
PADDED = 6  # changes of the padding bucket


@dataclass(frozen=True, slots=True)
class Stage:
    """What the rules choose from; `sizes` are those that the decoder takes."""

    cast: tuple[Request, ...]
    longest: int  # K
    sizes: Sizes


class Machine(RuleBasedStateMachine):
    """One history. The newest submission is the simplest choice of whom a rule is about."""

    stage: Stage

    def __init__(self) -> None:
        super().__init__()
        self.steps = list[Step]()
        self.submitted = list[int]()  # places in the cast
        self.left = dict[int, int]()  # of each submission that may be live: the ticks until it has surely ended
        self.held = set[int]()
        self.scripted = False

    def write(self, verb: str, who: int = 0, amount: int = 0) -> None:
        self.steps.append(Step(verb, who, amount))

    def enter(self, place: int) -> None:
        """Submit a request of the cast."""
        self.write("submit", place)
        self.left[len(self.submitted)] = self.stage.cast[place].max_tokens + FILLING
        self.submitted.append(place)

    def ticks(self, count: int) -> None:
        self.write("step", amount=count)
        self.left = {who: left - count * (who not in self.held) for who, left in self.left.items()}
        self.left = {who: left for who, left in self.left.items() if left > 0}

    @initialize(scripted=st.booleans())
    def drafter(self, scripted: bool) -> None:
        """Half of the histories leave drafts and draft lengths alone, so that they can be compared whole."""
        self.scripted = scripted and self.stage.longest > 0
        if self.scripted:
            self.write("script", amount=self.stage.longest + 2)

    @rule()
    def step(self) -> None:
        self.ticks(1)

    @rule(ticks=st.integers(1, 3), data=st.data())
    def steps_on(self, ticks: int, data: st.DataObject) -> None:
        """Some ticks, and somebody to be served in them."""
        if not self.left:
            self.enter(data.draw(st.integers(0, len(self.stage.cast) - 1)))
        self.ticks(ticks)

    @precondition(lambda self: len(self.left) < AT_ONCE)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        self.enter(data.draw(st.integers(0, len(self.stage.cast) - 1)))

    @precondition(lambda self: self.submitted and len(self.left) < AT_ONCE)
    @rule(data=st.data())
    def submit_sharing(self, data: st.DataObject) -> None:
        """A prompt that begins as an earlier one does."""
        other = self.stage.cast[self.submitted[data.draw(st.integers(0, len(self.submitted) - 1))]]
        self.enter(data.draw(st.sampled_from(family_of(other, self.stage.cast))))

    @precondition(lambda self: self.left)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.left, reverse=True)))
        del self.left[who]
        self.write("cancel", who)

    @precondition(lambda self: self.left.keys() - self.held)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.left.keys() - self.held, reverse=True)))
        self.held.add(who)
        self.write("preempt", who)

    @precondition(lambda self: self.held & self.left.keys())
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.held & self.left.keys())))
        self.held.remove(who)
        self.write("resume", who)

    @precondition(lambda self: len(self.left) > AT_ONCE // 2)
    @rule()
    def drain(self) -> None:
        """Resume whoever waits, step until all is done, and once more with nothing to do."""
        self.write("drain")
        self.left.clear()

    @precondition(lambda self: self.scripted)
    @rule(data=st.data())
    def script(self, data: st.DataObject) -> None:
        self.write("script", amount=data.draw(st.integers(0, self.stage.longest + 2)))

    @precondition(lambda self: self.scripted)
    @rule()
    def own(self) -> None:
        self.write("own_drafter")

    @precondition(lambda self: self.scripted)
    @rule(data=st.data())
    def draft(self, data: st.DataObject) -> None:
        self.write("draft", amount=data.draw(st.integers(0, self.stage.longest)))

    @rule(data=st.data())
    def schedule(self, data: st.DataObject) -> None:
        """Another chunk, or another lag."""
        sizes = self.stage.sizes
        choices = [("chunk", size) for size in sizes.chunks] + [("set_lag", size) for size in sizes.lags] * 2
        verb, amount = data.draw(st.sampled_from(choices))
        self.write(verb, amount=amount)

    def teardown(self) -> None:
        if worthwhile(self.steps):
            raise _Drawn(tuple(self.steps))


class _Drawn(BaseException):
    """The history that was asked for: not an Exception, so that Hypothesis lets it through and draws no more."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps


@lru_cache(maxsize=128)
def draw(stage: Stage, number: int) -> tuple[Step, ...]:
    """The first history that is worth playing of those that Hypothesis draws; the same for the same number."""

    class Numbered(Machine):
        pass

    Numbered.stage = stage
    limits = settings(
        max_examples=DRAWN,
        stateful_step_count=RULES,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    try:
        run_state_machine_as_test(seed(number)(Numbered), settings=limits)
    except _Drawn as drawn:
        return padded(drawn.steps, stage.sizes.buckets, Random(number))
    raise AssertionError(f"none of {DRAWN} drawn histories is worth playing")


def padded(steps: Sequence[Step], buckets: Sequence[int], chance: Random) -> tuple[Step, ...]:
    """The history with another padding bucket now and then; nothing else of it depends on that."""
    found = list(steps)
    for place in sorted(chance.sample(range(1, len(steps)), PADDED), reverse=True) if buckets else ():
        found.insert(place, Step("bucket", amount=chance.choice(buckets)))
    return tuple(found)


def worthwhile(steps: Sequence[Step]) -> bool:
    """Whether a drawn history is worth playing: Hypothesis leaves out rules at random, and draws plain ones, too."""
    submitted = sum(step.verb == "submit" for step in steps)
    ticks = sum(step.amount for step in steps if step.verb == "step")
    return len(steps) > 56 and submitted >= 4 and ticks >= 12 and len({step.verb for step in steps}) >= 5

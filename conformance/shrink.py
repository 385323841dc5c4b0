"""Shrinking a history: steps are left out, many at once and then one by one, and what is left is made plainer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from .history import Step

Steps = tuple[Step, ...]
ABOUT = ("cancel", "preempt", "resume")


def without(steps: Sequence[Step], left_out: range) -> Steps:
    """The history without these steps, and without those about requests that are then never submitted."""
    kept, numbers, submitted = list[Step](), dict[int, int](), 0
    for place, step in enumerate(steps):
        if step.verb == "submit":
            if place not in left_out:
                numbers[submitted] = len(numbers)
                kept.append(step)
            submitted += 1
        elif place not in left_out and step.verb not in ABOUT:
            kept.append(step)
        elif place not in left_out and step.who in numbers:
            kept.append(replace(step, who=numbers[step.who]))
    return tuple(kept)


def plainer(steps: Sequence[Step]) -> Iterator[Steps]:
    """Histories of the same length with one plainer step: a shorter prompt, fewer ticks, a smaller size."""
    for place, step in enumerate(steps):
        field = "who" if step.verb == "submit" else "amount"
        size = getattr(step, field) if step.verb in ("submit", "step", "script", "chunk") else 0
        low = int(step.verb in ("step", "chunk"))
        for smaller in dict.fromkeys((low, size // 2)):
            if low <= smaller < size:
                yield (*steps[:place], replace(step, **{field: smaller}), *steps[place + 1 :])


def shrink(steps: Steps, fails: Callable[[Steps], int | None], attempts: int) -> Steps:
    """A history that still fails, found in a bounded number of attempts; the same for the same history.

    `fails` says behind which step a history is seen to fail, or None.
    """
    tried = {steps}

    def attempt(candidate: Steps) -> Steps | None:
        """The failing history, cut where it fails, if it does."""
        if candidate in tried or not candidate or len(tried) > attempts:
            return None
        tried.add(candidate)
        place = None
        with suppress(Exception):  # a decoder that is wrong may break on another history, and the violation stands
            place = fails(candidate)
        return None if place is None else candidate[: place + 1]

    size = len(steps) // 2
    while size:
        end = len(steps)
        while end > 0:
            found = attempt(without(steps, range(end - size, end)))
            steps = steps if found is None else found
            end = min(end - size, len(steps))
        size //= 2
    for _ in range(attempts):
        found = next((smaller for candidate in plainer(steps) if (smaller := attempt(candidate)) is not None), None)
        if found is None:
            break
        steps = found
    return steps

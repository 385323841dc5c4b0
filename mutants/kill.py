"""A run of the mutants: sound decoders, mutants and controls, each in its process, and what follows."""

from collections.abc import Callable, Iterable
from itertools import chain

from .judgement import Tally
from .plan import Wanted, clean_trials, control_trials, mutant_trials, order_trials
from .processes import finished
from .record import Record
from .trial import Outcome, Trial

Told = Callable[[Trial, Outcome], None]


def kill(wanted: Wanted, record: Record, workers: int, told: Told) -> Tally:
    """Run what the record does not hold yet, and judge all of it; `told` hears of every trial that ends."""

    def through(trials: Iterable[Trial]) -> None:
        missing = [trial for trial in trials if not record.has(trial.role, trial.name)]
        for trial, outcome in finished(missing, workers):
            record.add(outcome)
            told(trial, outcome)

    through(order_trials(wanted))
    through(chain(mutant_trials(wanted, record.outcomes), control_trials(wanted)))
    through(clean_trials(wanted, record.outcomes))
    return Tally.of(wanted, record.outcomes)

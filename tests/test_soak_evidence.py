"""Evidence on laws: what it came to once stands."""

from specqual.conformance.verdicts import Verdict
from specqual.soak.journal import NAME, Journal
from specqual.soak.night import judged
from specqual.soak.records import Epoch, Increment, Served


def test_a_law_that_leans_for_a_while_is_violated_however_sound_the_rest_of_the_night_is(tmp_path):
    journal = Journal.open(tmp_path / NAME)
    segment = journal.begin({"scenarios": ["laws"]})
    for number, row in enumerate([(300, 200)] * 10 + [(250, 250)] * 400):
        one = Increment("law table", 0.0, sum(row), {"0": row}, {"0": (0.5, 0.5)})
        journal.add(segment, Epoch("laws", number, Verdict.EXACT, "", {}, (one,)), Served(0, number, 0.5, 0.0))
    night = judged(journal)
    assert night.log_e < 14 < night.peak
    assert night.decisions["laws"].verdict is Verdict.VIOLATED and "at its peak" in night.decisions["laws"].detail

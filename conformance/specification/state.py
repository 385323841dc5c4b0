"""Clauses on what is kept between rounds, and on what happens around a request."""

from . import MUST, Row

SEEN = "Traced Scripted Inspectable Schedulable"
PLAYED = "random histories of a state machine against an undisturbed twin, shrunk"

ONE_BY_ONE = "histories written on purpose, each against the twin"

ROWS: tuple[Row, ...] = (
    (
        "RWD-1",
        MUST,
        "After every commit, lengths, positions and rows of the target's caches and the drafter's context equal those "
        "of a decoder that was given the committed tokens.",
        SEEN,
        f"{PLAYED}; bitwise where claimed, else within rounding of the reference's state, and skipped where rounding "
        "explains as much as a state's own numbers",
        "K13 K14 K16 K22",
    ),
    (
        "RWD-2",
        MUST,
        "The same for every number m of accepted drafts from 0 to K, at every offset to the edges of pages and chunks "
        "and to where a sliding window is passed.",
        SEEN,
        f"{ONE_BY_ONE}: scripted drafts, right in the first m places",
        "K13 K14 K16 (a cap on persisted rows, a trim of a wrapped ring)",
    ),
    (
        "REC-1",
        MUST,
        "After every commit, recurrent and convolutional state equal those of a decoder that was given the committed "
        "tokens.",
        SEEN,
        f"{PLAYED}; bitwise where claimed",
        "K19",
    ),
    (
        "REC-2",
        MUST,
        "The same behind a round without drafts that follows an acceptance, and where drafted and undrafted rows share "
        "a pass.",
        SEEN,
        f"{ONE_BY_ONE}: drafters that fall silent, draft lengths that change",
        "K19 (an undrafted round that reads another column)",
    ),
    (
        "REC-3",
        MUST,
        "A long run in which every draft is rejected equals plain decoding, in tokens and in state.",
        SEEN,
        "two decoders side by side, one with wrong scripted drafts and one without drafts, which goes on behind the "
        "other's tokens where they part at a tie and bits are not claimed",
        "K19 K13; rounding that accumulates in states (K31)",
    ),
    (
        "ISO-1",
        MUST,
        "Output, accepted counts and q of a request equal those of the request alone, whatever its neighbours.",
        SEEN,
        f"{PLAYED}; whole rounds with the configured drafter, tokens and accepted counts with scripted ones and where "
        "a policy decided on drafts; where no bits are claimed to be equal, greedy tokens up to the first tie",
        "K14 K17 K24",
    ),
    (
        "ISO-2",
        MUST,
        "The same for any order of requests, and whoever owned a slot or a page before.",
        SEEN,
        f"{ONE_BY_ONE}: the same requests in several orders, one behind the other",
        "K17 K24",
    ),
    (
        "SCH-1",
        MUST,
        "A request that was preempted and resumed, or served in other chunks or with another commit lag, says what it "
        "says undisturbed; ticks bring a preempted request no event.",
        SEEN,
        PLAYED,
        "K26",
    ),
    (
        "SCH-2",
        MUST,
        "The same for a request preempted while waiting, being filled, behind a round and with a round in flight.",
        SEEN,
        f"{ONE_BY_ONE}: each phase with each lag, with the configured and with a scripted drafter",
        "K26 (drafts kept over a preemption, a length one round behind)",
    ),
    (
        "SCH-3",
        MUST,
        "A prompt of P tokens takes at most P / chunk passes of the target, rounded up, and a round takes one.",
        SEEN,
        "passes counted in the trace of cold requests",
        "invariance bought by serial work",
    ),
    (
        "CXL-1",
        MUST,
        "A cancelled request has one final event and then none; what it owned is back within 1 + lag ticks; its "
        "neighbours say what they say alone; cancelling it again, or one that has ended, raises KeyError.",
        SEEN,
        PLAYED,
        "K27",
    ),
    (
        "CXL-2",
        MUST,
        "The same at every phase: waiting, being filled, behind a round, with a round in flight, preempted.",
        SEEN,
        f"{ONE_BY_ONE}: each phase with each lag",
        "K27 (a cancellation ignored while a draft is pending)",
    ),
    (
        "CXL-3",
        MUST,
        "The same for many requests, most of them cancelled.",
        SEEN,
        ONE_BY_ONE,
        "K27 K17",
    ),
    (
        "RES-1",
        MUST,
        "Free and owned pages and slots make up the pool behind every tick; a slot has one owner, and a page two only "
        "where their prompts begin alike; all is back when no request is left.",
        SEEN,
        PLAYED,
        "K17",
    ),
    (
        "RES-2",
        MUST,
        "A request served from what an earlier prompt left behind says what it says cold, in tokens and in acceptance.",
        SEEN,
        f"{ONE_BY_ONE}: second servings, branches behind a shared chunk, owners that ended, go on or were cancelled",
        "K18 K22",
    ),
    (
        "RES-3",
        MUST,
        "The pages that a request holds are those that its visible rows fill, up to two a stream.",
        SEEN,
        "pages counted after every token of a long output; of the size that the decoder tells, else as inferred from "
        "the first length that takes another one",
        "K22 K17 (a buffer that is never trimmed)",
    ),
)

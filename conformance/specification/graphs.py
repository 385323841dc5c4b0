"""Clauses on captured graphs, padding and buckets: shapes of batches."""

from . import MUST, Row

ALONE = "requests that come and go, each against itself alone; whole rounds where that can be seen, and bits claimed"

ROWS: tuple[Row, ...] = (
    (
        "GRF-1",
        MUST,
        "Short and long spans that share a bucket say what they say alone.",
        "",
        f"{ALONE}; draft lengths that change from one to K and back, at one number of requests",
        "K25 (metadata of a first step used again)",
    ),
    (
        "GRF-2",
        MUST,
        "When a batch shrinks and grows, padded rows never leak into those that are left or that come after.",
        "",
        f"{ALONE}; up to eight requests that end one by one, and others that take their rows, in one bucket",
        "K25 (lengths of padded rows that grow, buffers not reset)",
    ),
    (
        "GRF-3",
        MUST,
        "Two captured sizes in turn, and within one tick, keep to their own buffers.",
        "",
        f"{ALONE}; a bucket that changes every other tick, rounds without drafts beside drafted ones, budgets that "
        "end at unlike times, and prompts that fill a bucket exactly",
        "K25 (outputs in the memory of another captured size)",
    ),
    (
        "GRF-4",
        MUST,
        "Batches that oscillate (8, 15, 8, 15 …) say what their requests say alone.",
        "",
        f"{ALONE}; as many as the decoder takes at once if those are fewer, and half as many",
        "K25; a public report of graphs captured anew in every oscillation",
    ),
    (
        "GRF-5",
        MUST,
        "A captured size serves any length: short and then long requests at one number of requests.",
        "",
        f"{ALONE}; prompts below a page, then beyond two chunks and the sliding window, then short ones again",
        "K25 (replay chosen by batch size although a length was baked in)",
    ),
    (
        "GRF-6",
        MUST,
        "Once every shape has been seen, oscillation captures nothing anew.",
        "Counted",
        "the decoder's own count of graph_captures before the same waves come again, and behind them",
        "K25; a public report of half a second for each capture",
    ),
    (
        "GRF-7",
        MUST,
        "The same for any waves of requests, buckets and draft lengths.",
        "",
        f"{ALONE}; waves by chance, the failing one shrunk",
        "K25 K14",
    ),
)

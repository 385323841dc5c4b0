"""Which fresh faults the suite did not see at first, and what it had to learn: a property each, never a case."""

MENDED = {
    "F07a": "RNG-2: zero is a seed like any other",
    "F08a": "SMP-4: two tokens take turns, so that a span holds both more than once and their counts decide",
    "F11a": "FIN-3: every sample of a request meets the token budget",
    "F12a": "FIN-6: ids a vocabulary below or above a token are drafted where it is the only choice, sampled, too",
    "F18b": "RES-2: a chunk that is known from behind another beginning, which is known, too",
    "F18c": "RES-2: prefixes from passes that went on behind the end of a chunk",
    "F25a": "GRF-3: prompts fill a bucket exactly, so that its last row is nobody's padding and decides a token",
}

"""Every clause that this suite decides, declared once: `--list`, the report and docs/SPEC.md derive from this table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .verdicts import Level, Profile, Status, Verdict, exit_status


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement. `needs` names the optional protocols of the contract without which it is skipped."""

    id: str
    level: Level
    requirement: str
    needs: tuple[str, ...]
    decided: str  # how
    source: str  # where the requirement comes from: kinds of known faults, the method's definition

    @property
    def chapter(self) -> str:
        return self.id.split("-")[0]


CHAPTERS = {
    "LIVE": "liveness of the check",
    "GE": "greedy equality",
    "LAW": "output law",
    "RNG": "random streams",
    "SMP": "sampling parameters",
    "FIN": "finish",
    "CKP": "checkpoint",
    "DRF": "drafter",
    "ERR": "bad input",
}

_M, _S, _I = Level.MUST, Level.SHOULD, Level.INFO
_ROWS: tuple[tuple[str, Level, str, str, str, str], ...] = (
    # id, level, requirement, needs, decided, source
    (
        "LIVE-1",
        _M,
        "Given a drafter, the decoder speculates: drafts are proposed and go through verification.",
        "Traced",
        "counted from the rounds of greedy and sampled requests; none at all is INCONCLUSIVE, and the run not live",
        "vacuous passes of published gates",
    ),
    (
        "LIVE-2",
        _M,
        "Rounds of every shape occur: a rejection at once, a partial acceptance, a full acceptance, no draft at all.",
        "Traced",
        "counted from the rounds of the whole run, scripted ones included; a shape that never occurred is INCONCLUSIVE",
        "K01 K05 K13 K19: faults that show in one shape of round only",
    ),
    (
        "LIVE-3",
        _M,
        "The trace is a history of the output: rounds join up, and what they commit is what was emitted.",
        "Traced",
        "recount of every round: anchor, start, accepted prefix, committed tokens, draft length at most K",
        "K30",
    ),
    (
        "GE-1",
        _M,
        "Every greedy token is a best token of the target under its own prefix, with the configured drafter.",
        "",
        "regret of each emitted token in the float64 reference, prompts of many lengths from 1",
        "K01 K13 K19; leaving the target's path near token 30 in public reports",
    ),
    (
        "GE-2",
        _M,
        "Greedy output with speculation equals greedy output without it.",
        "",
        "a second decoder without drafter; bitwise where claimed, else each difference must be a tie in the envelope",
        "K01 K13 K19 K31",
    ),
    (
        "GE-3",
        _M,
        "Greedy output does not depend on the draft length, for every K from 1 to the checkpoint's.",
        "",
        "regret of each token, one decoder per K",
        "K01 K13 (a cap on persisted rows shows only above it)",
    ),
    (
        "GE-4",
        _M,
        "Greedy output does not depend on the drafts: perfect, wrong, wrong at j, right-wrong-right, one token ahead, "
        "random, empty, end of sequence, mask id, out of range, changing K.",
        "Scripted",
        "regret of each token under scripted drafters",
        "K01 K12 K13 K19",
    ),
    (
        "GE-5",
        _M,
        "Greedy output of a request does not depend on its neighbours in the batch.",
        "",
        "requests of unequal lengths served together, regret of each token; bitwise against alone where claimed",
        "K14",
    ),
    (
        "GE-6",
        _M,
        "Greedy output is right for any request: drawn prompts, lengths and draft patterns.",
        "",
        "Hypothesis draws and shrinks; regret of each token",
        "K01 K13 K19",
    ),
    (
        "GE-7",
        _S,
        "The engine's own log-probabilities of its greedy output agree with the reference's.",
        "Scoring",
        "scored in a second pass and compared token by token; the claimed or measured envelope is the tolerance",
        "K30 K31; adjudication of ties in the engine's own numerics",
    ),
    (
        "LAW-1",
        _M,
        "The judge itself is exact: accept, residual and bonus of every rule reproduce p over the rationals.",
        "",
        "enumeration over Fraction: zeros, ties, disjoint supports, candidates fewer than the vocabulary",
        "speculative sampling, arXiv 2211.17192; controls N1 N2",
    ),
    (
        "LAW-2",
        _M,
        "Every sampled decision follows from its random number: acceptance, residual and bonus under p and q.",
        "Taped Traced",
        "each number taken from a tape, p from the reference, q from the trace; T, top-k, top-p, min-p",
        "K02 K04 K05",
    ),
    (
        "LAW-3",
        _M,
        "The same with drafts on purpose: q far from p, disjoint, one-hot, certain, equal; full and no acceptance.",
        "Scripted Taped Traced",
        "as LAW-2, under scripted drafters",
        "K02 K04 K05; controls N1 N3",
    ),
    (
        "LAW-4",
        _M,
        "Sampled output equals the reference decoder's on the same tape.",
        "Taped",
        "token equality, request by request",
        "coupling; K02 K03 K04 K05",
    ),
    (
        "LAW-5",
        _M,
        "The law of the whole transaction is the target's: joint law of the next tokens, exactly.",
        "Scripted Taped",
        "every path of the real code over cells of its numbers, on a target with rational laws, summed as Fraction",
        "K02 K03 K04 K05; draft lengths that look at the drafted token",
    ),
    (
        "LAW-6",
        _M,
        "The joint law of the first three sampled tokens is the target's.",
        "",
        "fixed number of samples on a tiny target; finite-sample bounds on total variation and on each cell, beyond "
        "what rounding explains; for decoders without a tape",
        "K02 K03 K04 K05",
    ),
    (
        "RNG-1",
        _M,
        "No random number decides twice, and every decision has its own: draft, accept, residual, bonus.",
        "Taped Traced",
        "ledger of a recording tape against the decisions in the trace, across purposes, rounds, samples and requests",
        "K03; shared noise of draft and residual in a public sampler",
    ),
    (
        "RNG-2",
        _M,
        "The same seed gives the same output, alone or among neighbours.",
        "",
        "token equality of repeated sampled requests, as far as the seed contract claims",
        "K03 K07",
    ),
    (
        "RNG-3",
        _M,
        "Different seeds, and different samples of one request, are different streams; sample 0 does not depend on n.",
        "",
        "outputs under 8 seeds, and of 4 samples; equal ones count where chance rules them out",
        "K03 K07 (seed without effect)",
    ),
    (
        "SMP-1",
        _M,
        "A greedy row stays greedy in a batch with sampled rows, whichever stands first.",
        "",
        "regret of each token in two orders of one mixed batch; bitwise against the row alone where claimed",
        "K06",
    ),
    (
        "SMP-2",
        _M,
        "A sampled row is the same alone and among rows with other parameters, budgets and draft lengths.",
        "",
        "token equality as far as the seed contract claims; rows drafted unequally on purpose where that is offered",
        "K06",
    ),
    (
        "SMP-3",
        _M,
        "Every row of a mixed batch is drawn by its own parameters, with unequal draft lengths.",
        "Scripted Taped Traced",
        "as LAW-2, the rows of a mixed batch in two orders, each drafted a number of tokens of its own",
        "K06",
    ),
    (
        "SMP-4",
        _M,
        "Penalties and logit bias hold at every place of a span, on accepted, rejected and bonus tokens.",
        "Scripted",
        "regret of each greedy token under the processed law, drafts wrong at every place; own span decides",
        "K08",
    ),
    (
        "SMP-5",
        _M,
        "min_tokens ends at its very token, at every place of a span.",
        "Scripted",
        "the end of sequence made the best token everywhere, min_tokens 0 to K + 3; drafted right, early, or not",
        "K08",
    ),
    (
        "SMP-6",
        _M,
        "Penalties and logit bias hold at every place of a sampled span.",
        "Scripted Taped Traced",
        "as LAW-2, under penalties, with drafts near to the processed law and far from it",
        "K08",
    ),
    (
        "SMP-7",
        _M,
        "Greedy output under penalties and logit bias equals the engine's own without speculation.",
        "",
        "regret of each token; a second decoder without drafter, bitwise where claimed",
        "K08",
    ),
    (
        "SMP-8",
        _M,
        "A parameter that is not claimed is refused by name; one that is claimed is not refused.",
        "",
        "each field of a request in turn at a value that is not its default",
        "K06 (dropped without a word)",
    ),
    (
        "FIN-1",
        _M,
        "Output ends with the first end-of-sequence or stop id, wherever it falls in a span; nothing stands behind it.",
        "",
        "each token of a known greedy output made a stop id in turn; reason, usage and tokens exact",
        "K10 K12",
    ),
    (
        "FIN-2",
        _M,
        "A stop id ends the output inside an accepted span, on its last draft and on the bonus token.",
        "Scripted",
        "perfect and wrong scripted drafters put the stop id at every place of a span, right ones and rejected ones",
        "K10 K05",
    ),
    (
        "FIN-3",
        _M,
        "max_tokens 1, 2, K, K+1, K+2 are met exactly.",
        "",
        "length, reason and usage",
        "K11",
    ),
    (
        "FIN-4",
        _M,
        "A request has exactly one final event, and no token after it; cancelling gives one final event, then silence.",
        "",
        "events recorded until the decoder is idle",
        "K10 K27",
    ),
    (
        "FIN-5",
        _M,
        "A stop string ends the output with the token that completes it, within and across spans.",
        "",
        "pieces of a known greedy output made stop strings; needs a tokenizer beside the target",
        "K10",
    ),
    (
        "FIN-6",
        _M,
        "Tokens that mean something elsewhere are tokens like any other: id 0, the last id, the drafter's mask id.",
        "",
        "a bias makes each of them the target's choice, with the configured drafter and drafted; tokens, reason, usage",
        "K12",
    ),
    (
        "CKP-1",
        _M,
        "The method in use is reported, and it is the checkpoint's.",
        "",
        "claims.method against the drafter's config.json",
        "K23",
    ),
    (
        "CKP-2",
        _M,
        "Every tensor of the drafter is used or refused: deleted, renamed, misshapen, retyped, permuted.",
        "Traced Inspectable",
        "changed copies of the checkpoint; a permuted tensor must change proposals, all else must be refused by name",
        "K23",
    ),
    (
        "CKP-3",
        _M,
        "Every tensor of the target is used or refused: deleted, renamed, misshapen, retyped, permuted.",
        "Inspectable",
        "as CKP-2; a permuted tensor must change scores",
        "K23",
    ),
    (
        "CKP-4",
        _M,
        "Keys that shape the drafter have no silent default, unknown keys are refused, and a nested key wins.",
        "Traced Inspectable",
        "changed copies of config.json",
        "K23",
    ),
    (
        "CKP-5",
        _M,
        "Truncated and malformed files are refused with an error that names the file.",
        "Inspectable",
        "changed copies of the checkpoint",
        "K23",
    ),
    (
        "DRF-1",
        _M,
        "Proposals of every round equal the reference drafter's on the same committed tokens.",
        "Traced",
        "greedy rounds recomputed: features, positions, masks, window, convolution, selector",
        "K20 K21 K22",
    ),
    (
        "DRF-2",
        _M,
        "q of every round equals the reference drafter's, and the draft was drawn from it.",
        "Traced Taped",
        "sampled rounds recomputed on the same tape",
        "K02 K20 K21 K22",
    ),
    (
        "DRF-3",
        _M,
        "The drafter's context rows equal a fresh replay of the committed tokens.",
        "Inspectable Traced",
        "names, rows, positions and values of draft keys and values after every commit",
        "K20 K22",
    ),
    (
        "ERR-1",
        _M,
        "A malformed request raises InvalidRequest naming the field, and the decoder goes on serving.",
        "",
        "one malformed request per field and bound, then a good request with the same output as before",
        "K06 K27",
    ),
    (
        "ERR-2",
        _M,
        "Cancelling an unknown or ended request raises KeyError.",
        "",
        "ids never given, and of a finished request",
        "K27",
    ),
)

CLAUSES: dict[str, Clause] = {
    row[0]: Clause(row[0], row[1], row[2], tuple(row[3].split()), row[4], row[5]) for row in _ROWS
}
JUDGE_ONLY = frozenset({"LAW-1"})  # says something about the suite, nothing about the decoder


def status_of(results: Sequence[Mapping[str, Any]], profile: Profile) -> Status:
    """Exit status of the lines of a run, by clause and verdict; the judge's own clauses count only if they fail."""
    found = [(line["clause"], CLAUSES[line["clause"]].level, Verdict(line["verdict"])) for line in results]
    decoder = [one for one in found if one[0] not in JUDGE_ONLY or one[2] in (Verdict.VIOLATED, Verdict.ERROR)]
    return exit_status(decoder or found, profile)


def matching(pattern: str) -> Iterator[Clause]:
    """Clauses with this id, of this chapter, or whose id starts with the pattern."""
    exact = CLAUSES.get(pattern.upper())
    if exact is not None:
        yield exact
        return
    yield from (clause for clause in CLAUSES.values() if clause.id.startswith(pattern.upper()))


def listing() -> str:
    """The table that `--list` prints: one clause a paragraph, chapters as headings."""
    lines: list[str] = []
    for chapter, title in CHAPTERS.items():
        lines += [f"{chapter}  {title}", ""]
        for clause in (c for c in CLAUSES.values() if c.chapter == chapter):
            needs = ", ".join(clause.needs) or "nothing optional"
            lines += [f"  {clause.id} {clause.level}: {clause.requirement}"]
            lines += [f"      needs {needs}; decided by {clause.decided}; from {clause.source}", ""]
    return "\n".join(lines)

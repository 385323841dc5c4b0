"""docs/SPEC.md as a rendering of the clause table: `python -m specqual.conformance.spec > docs/SPEC.md`."""

from .clauses import CHAPTERS, CLAUSES
from .features import FEATURES, needed_by

PREFACE = """\
# Specification

What a speculative decoder has to keep, clause by clause. This page is rendered from `conformance/specification/` by
`python -m specqual.conformance.spec`; `pytest --pyargs specqual.conformance --list` prints the same table. A clause
that needs an optional protocol is SKIPPED, with that reason, on a decoder that does not offer it; what a verdict means
and which exit status it leads to stands in [outcomes.md](outcomes.md).

## Terms

A *round* is one transaction: propose, verify, accept, commit. It starts from the *anchor*, the last committed token,
which has not been through the target yet. The drafter *proposes* up to K drafts; the target runs once over anchor and
drafts; the accepted drafts and one more token, the *correction* or, after full acceptance, the *bonus token*, are
*committed*. *Acceptance length* counts committed tokens per round, the bonus included. p is the target's law at a
position, q the law that a draft was drawn from. *Regret* of a token is the best log-probability (nats) under the
token's own prefix minus that of the token, in the float64 reference.

## The law p of a request

In this order: `logit_bias` is added; `repetition_penalty` (prompt and output), then `presence_penalty` and
`frequency_penalty` (output only); end-of-sequence ids are forbidden while fewer than `min_tokens` tokens were emitted.
Greedy takes the lowest id among the largest logits and looks at nothing else. Otherwise: division by `temperature`;
`top_k` (ties at the edge by lowest id, so that exactly k survive); softmax; `top_p` (by falling probability, ties by
lowest id, a token stays while the mass before it is below `top_p`); `min_p`; what stays is renormalised. Ties are
broken by the lowest token id everywhere.

## Acceptance rules

| rule | a draft d is accepted | otherwise the correction is drawn from |
|---|---|---|
| ratio | iff u q(d) < p(d) | max(p - q, 0), renormalised; p itself where that has no mass |
| one-hot | iff u < p(d) | p without d, renormalised |
| sampler-match | iff the target's own draw is d | nothing: the target's draw is the correction |
| greedy | iff d is the lowest best token | nothing: the best token is the correction |

A draft that comes without q counts as certain. After K acceptances the bonus token is drawn from the last row of p.
A draft that is no legal token, or whose law is none, is never accepted; the round still commits one legal token.

## Random numbers

Every number is named by (seed, sample, round start, position, purpose) with purposes draft, accept, residual and bonus,
and is a pure function of that name. A token is drawn by inverse CDF over ascending ids. Under the sampler-match rule
the target's draw at a position does not know how rounds were cut: its round start is its position.

A decision to cut a draft before slot j may look at the drafts before j and at the shape of q, never at draft j or
later: dropping d when q(d) < 1/2 with p = (2, 1, 1)/4 and q = (1, 2, 1)/4 yields (4, 3, 1)/8 (`tests/test_law.py`).
"""


HAZARDS = """\
## Hazards

A clause is about a hazard, and counts how often it occurred: in events, rounds and states, never in what was asked for.
Where it did not occur the clause is INCONCLUSIVE, whatever it saw; where nothing that the decoder offers would show it,
the verdict says so. `--without FEATURE` (repeatable; a name, or how several begin) leaves a feature out of everything
that is drawn. It is there to test the suite itself: the clauses that need the feature stay open.

| feature | what is drawn | INCONCLUSIVE without it |
|---|---|---|
"""


def render() -> str:
    """The whole page, one heading per clause."""
    rows = (f"| {feature.name} | {feature.drawn} | {', '.join(feature.clauses)} |" for feature in FEATURES.values())
    parts = [PREFACE, HAZARDS + "\n".join(rows) + "\n"]
    for chapter, title in CHAPTERS.items():
        parts.append(f"## {chapter}: {title}\n")
        for clause in CLAUSES.values():
            if clause.chapter == chapter:
                needs = " and ".join(clause.needs) if clause.needs else "nothing beyond the base protocol (L1)"
                parts.append(
                    f"### {clause.id} ({clause.level})\n\n{clause.requirement}\n\n"
                    f"- Needs: {needs}\n- Decided by: {clause.decided}\n- Source: {clause.source}\n"
                    + (f"- Open without: {', '.join(found)}\n" if (found := needed_by(clause.id)) else "")
                )
    return "\n".join(parts)


if __name__ == "__main__":
    print(render(), end="")

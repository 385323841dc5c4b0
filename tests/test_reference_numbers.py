"""The reference decoder's random numbers: a ledger without reuse, seeds, and the exact law of a table."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from specqual.contract import (
    Key,
    Proposal,
    Purpose,
    Request,
    Rule,
    Sampling,
    SeedContract,
    Setup,
)
from specqual.reference import ReferenceDecoder, make
from specqual.reference.rng import Counter
from specqual.reference.tape import Fixed, Recorded, decisions, reused, unexplained

from .decoding import DENSE, DFLASH2, PROMPT, WARM, law, output, outputs, serve


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH])
@pytest.mark.parametrize("draft", [None, DFLASH2])
def test_each_decision_uses_its_own_number_once(rule: Rule, draft: Path | None):
    decoder = make(Setup(target=DENSE, draft=draft, rule=rule, draft_length=3))
    if draft is None:
        flat = law(*[1 / 96] * 96)
        decoder.script(lambda context: Proposal((5, 6)[: context.max_draft], (flat, None)[: context.max_draft]))
    recorded = Recorded(Counter())
    decoder.tape(recorded)
    requests = [Request(prompt=PROMPT[:k], max_tokens=12, sampling=WARM, seed=k, n=2) for k in (3, 7)]
    serve(decoder, *requests)
    due = [
        decisions(rule, round, request.seed, drafted=draft is not None)
        for request_id, request in enumerate(requests)
        for round in decoder.rounds(request_id)
    ]
    assert sum(map(len, due)) == len(recorded.keys) > 40
    assert reused(recorded.keys) == ()
    assert unexplained(recorded.keys, due) == ()


def test_the_ledger_sees_a_number_used_twice_and_a_decision_without_one():
    decoder = make(Setup(target=DENSE, draft=DFLASH2))
    recorded = Recorded(Counter())
    decoder.tape(recorded)
    serve(decoder, Request(prompt=PROMPT, max_tokens=8, sampling=WARM))
    due = [decisions(Rule.RATIO, round, 0) for round in decoder.rounds(0)]
    first = recorded.keys[0]
    assert reused(recorded.keys, [first]) == (first,)
    assert unexplained([*recorded.keys, first], due) == (first,)
    assert unexplained(recorded.keys[1:], due) == (first,)


def test_greedy_decoding_uses_no_numbers(drafting: ReferenceDecoder):
    drafting.tape(Fixed({}))
    assert len(output(drafting, Request(prompt=PROMPT, max_tokens=12))) == 12


def test_a_recorded_tape_replays_the_output_and_an_unknown_key_is_an_error(drafting: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=12, sampling=WARM, seed=9)
    recorded = Recorded(Counter())
    drafting.tape(recorded)
    first = output(drafting, request)
    drafting.tape(Fixed(dict(recorded.asked)))
    assert output(drafting, request) == first
    drafting.tape(Fixed({}))
    with pytest.raises(KeyError):
        output(drafting, request)


def test_numbers_are_a_pure_function_of_the_key_and_uniform():
    keys = [
        Key(seed, sample, start, position, purpose)
        for seed in (0, 2**64 - 1)
        for sample in range(3)
        for start in range(20)
        for position in range(20)
        for purpose in Purpose
    ]
    numbers = np.array([Counter().uniform(key) for key in keys])
    assert numbers.tolist() == [Counter().uniform(key) for key in keys]
    assert len(set(numbers.tolist())) == len(keys)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 16, (0, 1))[0] / len(keys) - 1 / 16).max() < 0.01


def test_a_sample_does_not_depend_on_its_neighbours(drafting: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=15, sampling=WARM, seed=5)
    alone = output(drafting, request)
    other = replace(request, prompt=PROMPT[3:9], seed=6, n=3)
    (_, _), (three, _), (pair, _) = serve(drafting, other, replace(request, n=3), replace(request, n=2))
    assert three[0] == pair[0] == alone
    assert three[1] == pair[1]
    assert len(set(three)) == 3


def test_sampler_match_gives_the_same_output_for_every_draft_length(plain: ReferenceDecoder):
    request = Request(prompt=PROMPT, max_tokens=20, sampling=WARM, seed=3)
    found = {output(plain, request)}
    for length in (1, 2, 4):
        decoder = make(Setup(target=DENSE, draft=DFLASH2, rule=Rule.SAMPLER_MATCH, draft_length=length))
        assert decoder.claims.seed is SeedContract.ALWAYS
        found.add(output(decoder, request))
    assert len(found) == 1


class _Asked(Exception):
    pass


def test_the_decoder_has_exactly_the_law_of_its_table(tmp_path: Path):
    # Every decision is constant between multiples of 1/cells, so one number per cell gives the exact law of the code.
    quarters = {"": (1, 1, 2), "0": (1, 2, 1), "1": (2, 1, 1), "2": (0, 1, 3)}
    config = {"model_type": "specqual_table", "vocab_size": 3, "context": 1, "eos_token_id": []}
    laws = {suffix: [f"{weight}/4" for weight in row] for suffix, row in quarters.items()}
    (tmp_path / "config.json").write_text(json.dumps(config | {"laws": laws}))
    cells = {Purpose.BONUS: 4, Purpose.ACCEPT: 12, Purpose.RESIDUAL: 12}
    decoder = make(Setup(target=tmp_path, draft_length=1))
    request = Request(prompt=(0,), max_tokens=3, sampling=Sampling(temperature=1.0))
    q = law(0.75, 0.25, ids=(0, 2))

    def run(numbers: dict[Key, float], volume: Fraction) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        class Tree:
            def uniform(self, key: Key) -> float:
                if key not in numbers:
                    raise _Asked(key)
                return numbers[key]

        decoder.tape(Tree())
        request_id, events = decoder.submit(request), []
        try:
            while new := decoder.step():
                events += new
        except _Asked as asked:
            decoder.cancel(request_id)
            decoder.step()
            (key,) = asked.args
            count = cells[key.purpose]
            for cell in range(count):
                yield from run(numbers | {key: (cell + 0.5) / count}, volume / count)
            return
        yield outputs(events, request_id)[0], volume

    total: dict[tuple[int, ...], Fraction] = {}
    for draft, mass in ((0, Fraction(3, 4)), (2, Fraction(1, 4))):
        decoder.script(lambda context, draft=draft: Proposal((draft,), (q,)))
        for tokens, volume in run({}, mass):
            total[tokens] = total.get(tokens, Fraction(0)) + volume
    row = {0: quarters["0"], 1: quarters["1"], 2: quarters["2"]}
    expected = {
        (a, b, c): Fraction(row[0][a] * row[a][b] * row[b][c], 64)
        for a in range(3)
        for b in range(3)
        for c in range(3)
        if row[0][a] * row[a][b] * row[b][c]
    }
    assert total == expected

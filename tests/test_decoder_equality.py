"""The optimised decoder's output depends on a request alone: not on drafts, batch, chunks, preemption or pool."""

import pytest

from specqual import fixtures, reference
from specqual.conformance.drive import serve
from specqual.contract import Request, Rule, Sampling, SeedContract, Setup

from .engines import DRAFTERS, TARGETS, UNEQUAL, alone, engine, greedy, kept, next_id, right_but, said


@pytest.mark.parametrize("target", TARGETS)
def test_greedy_output_is_the_references(target: str) -> None:
    judge = reference.make(Setup(target=fixtures.path(f"nano/{target}"), dtype="float64"))
    for request, mine in zip(UNEQUAL[:3], alone(kept(target), UNEQUAL[:3]), strict=True):
        output = tuple(token for token, _ in mine[0])
        assert output == serve(judge, [request])[0].output
        theirs = judge.score(request.prompt, output).logprob
        assert [p for _, p in mine[0]] == pytest.approx(theirs, abs=2e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_speculation_on_equals_off_bit_for_bit(target: str, drafter: str) -> None:
    assert said(kept(target, drafter), UNEQUAL) == said(kept(target), UNEQUAL)


@pytest.mark.parametrize("target", TARGETS)
def test_speculation_on_equals_off_bit_for_bit_in_bfloat16(target: str) -> None:
    assert said(kept(target, "dflash2", "bfloat16"), UNEQUAL) == said(kept(target, dtype="bfloat16"), UNEQUAL)


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_of_unequal_requests_equals_each_alone(target: str) -> None:
    decoder = kept(target, "dflash2")
    assert said(decoder, UNEQUAL[::-1])[::-1] == alone(decoder, UNEQUAL)


@pytest.mark.parametrize("target", TARGETS)
def test_lookup_and_scripted_drafts_change_nothing(target: str) -> None:
    request = greedy([5, 9, 5, 9, 5], 24)
    expected = alone(kept(target), [request])
    assert alone(engine(target, options={"ngram": 2}), [request]) == expected
    known = [token for token, _ in expected[0][0]]
    decoder = engine(target, draft_length=6)
    for name in (1, 2, 3, 5):
        decoder.script(right_but(known, 5, lambda index, name=name: (index * name) % 7))
        assert alone(decoder, [request]) == expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("chunk", [1, 32, 64])
def test_chunked_prefill_equals_a_prompt_in_one_piece(target: str, chunk: int) -> None:
    request = greedy([1 + (3 * j * j + j) % 94 for j in range(150)], 6)
    decoder = engine(target, "dflash2", options={"prefixes": 0})
    expected = alone(decoder, [request])
    decoder.schedule(chunk=chunk)
    assert alone(decoder, [request]) == expected
    forwards = [r.target_forwards for r in decoder.rounds(1)]
    assert forwards == [-(-150 // max(16, chunk)), *[1] * (len(forwards) - 1)]


@pytest.mark.parametrize("target", TARGETS)
def test_preempted_and_resumed_at_every_tick_equals_undisturbed(target: str) -> None:
    decoder, requests = kept(target, "dflash2"), UNEQUAL[1:3]
    expected = said(decoder, requests)
    for at in (0, 1, 3):
        first = next_id(decoder)

        def disturb(tick: int, at: int = at, first: int = first) -> None:
            if tick == at and first in decoder._live:
                decoder.preempt(first)
            if tick == at + 2 and first in decoder._live:
                decoder.resume(first)

        assert said(decoder, requests, disturb) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_a_commit_lag_changes_nothing_but_the_tick(target: str) -> None:
    decoder, requests = engine(target, "dflash2"), UNEQUAL[1:]
    expected = said(decoder, requests)
    decoder.schedule(lag=1)
    assert said(decoder, requests) == expected

    def disturb(tick: int) -> None:
        first = next_id(decoder) - len(requests)
        decoder.schedule(lag=tick % 3 % 2)
        if tick in (2, 5) and first in decoder._live:
            decoder.preempt(first)
        if tick in (3, 7) and first in decoder._live:
            decoder.resume(first)

    assert said(decoder, requests, disturb) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_a_prefix_hit_equals_a_cold_start(target: str) -> None:
    prompt = [1 + (5 * j * j + j) % 94 for j in range(150)]
    wanted = [greedy(prompt, 12), greedy(prompt[:129], 8), greedy([*prompt[:100], *prompt[:70]], 8), greedy(prompt, 12)]
    cold = engine(target, "dflash2", options={"prefixes": 0})
    decoder = engine(target, "dflash2")
    before = dict(decoder.resources())
    assert alone(decoder, wanted) == alone(cold, wanted)
    decoder.schedule(chunk=16)
    assert alone(decoder, wanted) == alone(cold, wanted)
    assert decoder.rounds(3)[0].target_forwards == 1 and decoder.rounds(7)[0].target_forwards == 2
    assert decoder.resources() == before


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH])
def test_sampled_rows_do_not_see_their_neighbours(rule: Rule) -> None:
    decoder = engine("hybrid", "dflash2", rule=rule)
    warm = [Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=5), Sampling(temperature=1.2, top_p=0.8)]
    requests = [greedy([4 + i, 7, 9], 9, sampling=s, seed=i, n=1 + i) for i, s in enumerate(warm)]
    requests += [UNEQUAL[1]]
    assert said(decoder, requests) == alone(decoder, requests)


def test_sampler_match_gives_one_output_for_every_draft_length() -> None:
    decoder = engine("window", "dflash2", rule=Rule.SAMPLER_MATCH)
    assert decoder.claims.seed is SeedContract.ALWAYS
    request = Request(prompt=(3, 4, 5), max_tokens=20, sampling=Sampling(temperature=1.0), seed=9, logprobs=0)
    outputs = []
    for length in range(5):
        decoder.schedule(draft=length)
        outputs.append(alone(decoder, [request])[0])
    assert outputs == [outputs[0]] * 5

"""Other people's engines behind the contract: what they return is passed on, what they refuse is refused."""

import pytest
import torch

from specqual.adapters import dflash, transformers
from specqual.contract import (
    Decoder,
    Finished,
    FinishReason,
    InvalidRequest,
    Method,
    Refused,
    Request,
    Rule,
    Sampling,
    Scoring,
    Setup,
    Tokens,
    Traced,
    Unsupported,
)
from specqual.fixtures import nano, path

PROMPTS = [tuple(row) for row in nano.random_prompts(4, 9, seed=77).tolist()]
LENGTH = 32


def setup(target: str, draft: str | None = None, **more) -> Setup:
    return Setup(target=path(f"nano/{target}"), draft=draft and path(f"nano/{draft}"), **more)


def run(decoder: Decoder, *requests: Request) -> list[tuple[list[tuple[int, ...]], Finished]]:
    """Samples and final event of every request."""
    ids = [decoder.submit(request) for request in requests]
    events = []
    while new := decoder.step():
        events += new
    samples = {i: [e.ids for e in events if isinstance(e, Tokens) and e.request_id == i] for i in ids}
    final = {e.request_id: e for e in events if isinstance(e, Finished)}
    return [(samples[i], final[i]) for i in ids]


def outputs(decoder: Decoder, length: int = LENGTH) -> list[tuple[int, ...]]:
    requests = [Request(prompt=prompt, max_tokens=length, ignore_eos=True) for prompt in PROMPTS]
    return [samples[0] for samples, _ in run(decoder, *requests)]


@pytest.fixture(scope="module")
def greedy() -> dict[str, list[tuple[int, ...]]]:
    """Greedy output by a loop of whole forward passes: no cache, no generation code."""
    found = {}
    for name in ("dense", "window", "hybrid"):
        model = nano.load(path(f"nano/{name}"))
        rows = torch.tensor(PROMPTS)
        with torch.inference_mode():
            for _ in range(LENGTH):
                rows = torch.cat([rows, model(rows, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        found[name] = [tuple(row[len(PROMPTS[0]) :]) for row in rows.tolist()]
    return found


@pytest.mark.parametrize("target", ["dense", "window", "hybrid"])
def test_plain_generation_equals_a_loop_of_whole_passes(greedy, target):
    decoder = transformers.make(setup(target))
    assert isinstance(decoder, Decoder)
    assert (decoder.claims.rule, decoder.claims.method) == (Rule.NONE, Method.NONE)
    assert outputs(decoder) == greedy[target]


def test_prompt_lookup_equals_plain_generation(greedy):
    decoder = transformers.make(setup("dense", options={"prompt_lookup": "4"}))
    assert (decoder.claims.method, decoder.claims.limits.max_draft) == (Method.NGRAM, 4)
    assert outputs(decoder) == greedy["dense"]


def test_assisted_generation_equals_plain_generation(greedy):
    decoder = transformers.make(setup("dense", "llama"))
    assert decoder.claims.method is Method.ASSISTED
    assert outputs(decoder) == greedy["dense"]


@pytest.mark.parametrize("kind", [None, "dflash", "dflash2"])
def test_dflash_equals_plain_generation_on_a_dense_target(greedy, kind):
    decoder = dflash.make(setup("dense", kind and f"dense-{kind}"))
    assert outputs(decoder) == greedy["dense"]


def test_dflash_leaves_the_greedy_path_of_a_hybrid_target(greedy):
    """Its cache takes back the convolution's rows but not the recurrent state."""
    decoder = dflash.make(setup("hybrid", "hybrid-dflash2"))
    regrets = [
        max(transformers.make(setup("hybrid")).score(prompt, output).regret)
        for prompt, output in zip(PROMPTS, outputs(decoder), strict=True)
    ]
    assert min(regrets) > 0.1  # nats, in the engine's own numerics: far beyond rounding
    assert outputs(dflash.make(setup("hybrid"))) == greedy["hybrid"]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_p=0.9)])
@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_dflash_rounds_replay_the_output(kind, sampling):
    decoder = dflash.make(setup("dense", f"dense-{kind}"))
    assert isinstance(decoder, Traced)
    request = Request(prompt=PROMPTS[0], max_tokens=LENGTH, sampling=sampling, n=2, stop_ids=(20,))
    [(samples, _)] = run(decoder, request)
    rounds = decoder.rounds(0)
    assert any(0 < r.accepted < len(r.proposals) for r in rounds)
    for sample, output in enumerate(samples):
        tokens = list(request.prompt)
        for r in (r for r in rounds if r.sample == sample):
            assert (r.start, r.anchor) == (len(tokens) - 1, tokens[-1])
            assert r.committed[: r.accepted] == r.proposals[: r.accepted][: len(r.committed)]
            assert len(r.committed) <= r.accepted + 1
            for draft, law in zip(r.proposals, r.q, strict=True):
                assert (law is None) == sampling.greedy
                assert law is None or (draft in law.ids and abs(sum(law.probabilities) - 1) < 1e-5)
            tokens += r.committed
        assert tuple(tokens[len(request.prompt) :]) == output
    with pytest.raises(KeyError):
        decoder.rounds(1)


@pytest.mark.parametrize("more", [{"draft": "dense"}, {"draft": "hybrid-dflash2"}, {"options": {"prompt_lookup": 3}}])
def test_assistance_on_a_hybrid_target_carries_the_engines_own_refusal(more):
    with pytest.raises(Unsupported, match=r"assisted generation is not supported with stateful models"):
        transformers.make(setup("hybrid", **more))


def test_formats_and_drafters_that_an_engine_lacks_are_unsupported():
    with pytest.raises(Unsupported):
        transformers.make(setup("hybrid-nvfp4"))
    for kind in ("selector", "conv", "markov"):
        with pytest.raises(Unsupported, match="has no class for a .* drafter"):
            dflash.make(setup("dense", f"dense-{kind}"))


@pytest.mark.parametrize("engine", [transformers, dflash])
def test_wrong_setups_are_one_error_naming_the_field(engine):
    for more, field in (
        ({"dtype": "int3"}, "dtype"),
        ({"options": {"colour": "red"}}, "colour: is no option"),
        ({"draft": "dense-dflash" if engine is dflash else "llama", "draft_length": 0}, "draft_length"),
    ):
        with pytest.raises(ValueError, match=field):
            engine.make(setup("dense", **more))


@pytest.mark.parametrize("engine", [transformers, dflash])
def test_scores_are_those_of_one_forward_pass(engine, greedy):
    decoder = engine.make(setup("dense"))
    assert isinstance(decoder, Scoring)
    scored = decoder.score(PROMPTS[0], greedy["dense"][0])
    assert scored.argmax == greedy["dense"][0]
    assert max(scored.regret) == 0
    assert all(second <= best for second, best in zip(scored.runner_up, scored.best, strict=True))


@pytest.fixture(scope="module")
def pair() -> dflash.DFlashDecoder:
    return dflash.make(setup("dense", "dense-dflash2"))


@pytest.fixture(scope="module")
def plain() -> transformers.TransformersDecoder:
    return transformers.make(setup("dense"))


@pytest.mark.parametrize("length", [1, 2, 4, 5, 6])
def test_max_tokens_and_usage_are_exact(pair, plain, length):
    request = Request(prompt=PROMPTS[1], max_tokens=length, ignore_eos=True, n=2)
    for decoder in (pair, plain):
        [(samples, final)] = run(decoder, request)
        assert [len(ids) for ids in samples] == [length, length]
        assert final.reasons == (FinishReason.LENGTH,) * 2
        assert (final.usage.prompt_tokens, final.usage.completion_tokens) == (9, 2 * length)


def test_a_stop_id_ends_the_output_and_is_part_of_it(pair, plain, greedy):
    output = greedy["dense"][0]
    stop = output[7]
    request = Request(prompt=PROMPTS[0], max_tokens=LENGTH, stop_ids=(stop,))
    for decoder in (pair, plain):
        [(samples, final)] = run(decoder, request)
        assert samples == [output[: output.index(stop) + 1]]
        assert final.reasons == (FinishReason.STOP,)


def test_the_checkpoints_end_of_sequence_stops_unless_ignored(pair, plain):
    rows = nano.random_prompts(64, 8, seed=5)
    model = nano.load(path("nano/dense"))
    output = next(row for row in nano.greedy(model, rows, LENGTH).tolist() if nano.EOS in row[9:])
    prompt, rest = tuple(output[:8]), output[8:]
    for decoder in (pair, plain):
        [(stopped, final), (ignored, _)] = run(
            decoder,
            Request(prompt=prompt, max_tokens=LENGTH),
            Request(prompt=prompt, max_tokens=LENGTH, ignore_eos=True),
        )
        assert stopped == [tuple(rest[: rest.index(nano.EOS) + 1])]
        assert ignored == [tuple(rest)]
        assert final.reasons == (FinishReason.STOP,)


def test_the_same_seed_gives_the_same_samples_and_samples_differ(pair, plain):
    request = Request(prompt=PROMPTS[2], max_tokens=16, sampling=Sampling(temperature=1.0), seed=2**64 - 1, n=2)
    for decoder in (pair, plain):
        [(first, _), _, (again, _)] = run(decoder, request, Request(prompt=PROMPTS[0], max_tokens=3), request)
        assert first == again
        assert first[0] != first[1]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": ()}, "prompt"),
        ({"prompt": (96,)}, "prompt[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"sampling": Sampling(temperature=-1.0)}, "temperature"),
        ({"sampling": Sampling(presence_penalty=0.5)}, "presence_penalty"),
        ({"sampling": Sampling(logit_bias=((3, 1.0),))}, "logit_bias"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"stop_strings": ("x",)}, "stop_strings"),
        ({"logprobs": 2}, "logprobs"),
    ],
)
def test_malformed_and_unhonoured_fields_are_invalid_requests(pair, plain, change, field):
    for decoder in (pair, plain):
        with pytest.raises(InvalidRequest) as error:
            decoder.submit(Request(**({"prompt": PROMPTS[0], "max_tokens": 4} | change)))
        assert error.value.field == field
        assert decoder.step() == []


def test_a_request_beyond_the_context_is_refused_by_an_event(plain):
    request_id = plain.submit(Request(prompt=PROMPTS[0], max_tokens=504))
    [event] = plain.step()
    assert isinstance(event, Refused)
    assert event.request_id == request_id


def test_a_closed_decoder_is_silent():
    decoder = transformers.make(setup("dense"))
    first, _ = (decoder.submit(Request(prompt=prompt, max_tokens=3)) for prompt in PROMPTS[:2])
    decoder.cancel(first)
    decoder.close()
    assert decoder.step() == []


def test_cancelling_gives_one_final_event_and_then_silence(plain):
    first, second = (plain.submit(Request(prompt=prompt, max_tokens=3)) for prompt in PROMPTS[:2])
    plain.cancel(second)
    events = plain.step() + plain.step() + plain.step()
    assert [e.reasons for e in events if isinstance(e, Finished) and e.request_id == second] == [
        (FinishReason.CANCELLED,)
    ]
    assert sum(isinstance(e, Finished) and e.request_id == first for e in events) == 1
    for ended in (first, second, 10**6):
        with pytest.raises(KeyError):
            plain.cancel(ended)

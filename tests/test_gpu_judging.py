"""Verdicts and walks where the logits lie, in Triton's interpreter where there is no GPU, beside those of the host."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from .interpreter import DEVICE  # isort: split

from specqual import fixtures
from specqual.contract import CompactLaw, Key, Proposal, Request, Rule, Sampling
from specqual.contract.checkpoint import open_draft, open_target
from specqual.decoder import drafts
from specqual.decoder.flight import Flight
from specqual.decoder.gpu import top
from specqual.decoder.gpu.carry import brought, carried, picked, together
from specqual.decoder.gpu.judging import MOST, DeviceJudge
from specqual.decoder.gpu.walks import Codes, likeliest, proposals, walked, walks_of
from specqual.decoder.memory import Memory
from specqual.decoder.propose import Ask
from specqual.decoder.rng import Counter
from specqual.decoder.row import Row
from specqual.decoder.span import Span
from specqual.decoder.transaction import Terms, verdict_of
from specqual.decoder.verify import Verdict

WIDTH, SLOTS, WHERE = 96, 4, torch.device(DEVICE)
RULES = [Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH]
SETTINGS = [
    Sampling(),
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_k=5),
    Sampling(temperature=1.3, top_p=0.8),
    Sampling(temperature=1.0, min_p=0.1),
    Sampling(temperature=0.9, top_k=12, top_p=0.9, min_p=0.02),
    Sampling(temperature=1e-300),
]


def terms(rule: Rule, tape: Any = None) -> Terms:
    return Terms(rule, tape or Counter(), (7,), 512, None)


def flights(seed: int, settings: list[Sampling], **changes: Any) -> list[Flight]:
    """One round of each request, of 0 to K drafts that are probable, every second draft with a q of its own."""
    draw = torch.Generator().manual_seed(seed)
    counts = [(place + seed) % (SLOTS + 1) for place in range(len(settings))]
    logits = torch.randn(sum(counts) + len(counts), WIDTH, generator=draw).mul(4).to(DEVICE)
    found = list[Flight]()
    for place, (sampling, count, rows) in enumerate(
        zip(settings, counts, torch.split(logits, [count + 1 for count in counts]), strict=True)
    ):
        request = Request(prompt=(5, 9, place), max_tokens=9, sampling=sampling, seed=9 * seed + place, **changes)
        ids = rows[:count].topk(3).indices.sort(-1).values.tolist()
        tokens, laws = list[int](), list[CompactLaw | None]()
        for slot, three in enumerate(ids):
            q = torch.rand(3, generator=draw, dtype=torch.float64)
            tokens.append(three[int(q.argmax())])
            laws.append(CompactLaw(tuple(three), tuple((q / q.sum()).tolist())) if slot % 2 == 0 else None)
        row, memory = Row(place, request, 0), Memory({}, None, 0)
        span = Span((*row.tokens, *tokens), len(row.tokens) - 1, memory, 0, count + 1)
        found.append(Flight(row, Proposal(tuple(tokens), tuple(laws)), span, rows, rows[:, :0], {}))
    return found


def there(asked: list[Flight], rule: Rule) -> list[Verdict | None]:
    found = DeviceJudge(SLOTS, WHERE)(asked, terms(rule))
    return [None if flight.verdict is None else flight.verdict() for flight in found]


def here(flight: Flight, rule: Rule) -> Verdict:
    return verdict_of(flight.row, flight.proposal, flight.logits.cpu().numpy(), terms(rule))


@pytest.mark.parametrize("rule", RULES)
def test_verdicts_are_those_of_the_host_whatever_a_row_asks_for(rule: Rule) -> None:
    seen = set[int]()
    for seed in range(3):
        asked = flights(seed, SETTINGS)
        found = there(asked, rule)
        assert found == [here(flight, rule) for flight in asked]
        seen |= {one.accepted for one in found if one is not None}
    assert len(seen) > 1


@pytest.mark.parametrize("rule", RULES)
def test_whole_numbers_are_parameters_too(rule: Rule) -> None:
    asked = flights(1, [Sampling(temperature=1, top_p=1, min_p=0)])
    assert there(asked, rule) == [here(asked[0], rule)]


def test_without_drafts_and_without_a_rule_every_row_is_drawn() -> None:
    for settings in (SETTINGS, SETTINGS[:1]):
        asked = [
            flight._replace(proposal=Proposal.certain(()), logits=flight.logits[:1]) for flight in flights(3, settings)
        ]
        assert there(asked, Rule.NONE) == [here(flight, Rule.NONE) for flight in asked]


@pytest.mark.parametrize("rule", [Rule.RATIO, Rule.SAMPLER_MATCH])
def test_a_neighbour_changes_no_verdict(rule: Rule) -> None:
    asked = flights(2, SETTINGS[:4])
    assert there(asked, rule) == [there([flight], rule)[0] for flight in asked]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("rule", RULES)
def test_infinity_is_above_the_largest_number_whoever_is_in_the_batch(rule: Rule) -> None:
    asked = flights(1, SETTINGS[:2])
    for flight in asked:
        flight.logits[:, 3], flight.logits[:, 60:62] = torch.finfo(torch.float32).max, torch.inf
    found = there(asked, rule)
    assert found == [there([flight], rule)[0] for flight in asked] == [here(flight, rule) for flight in asked]
    assert {one.token for one in found if one is not None} <= {60, 61}


PENALTIES: list[dict[str, Any]] = [
    {"presence_penalty": 0.5},
    {"frequency_penalty": 0.5},
    {"repetition_penalty": 1.2},
    {"logit_bias": ((4, 2.0),)},
]


def test_what_the_kernels_do_not_have_is_left_to_the_host_and_changes_nothing_beside_it() -> None:
    shaped = [replace(SETTINGS[1], **change) for change in PENALTIES]
    asked = flights(4, [setting for pair in zip(shaped, SETTINGS[:4], strict=True) for setting in pair])
    found = there(asked, Rule.RATIO)
    assert found[::2] == [None] * 4
    assert found[1::2] == [here(flight, Rule.RATIO) for flight in asked[1::2]]
    for changes in ({"min_tokens": 1}, {"logprobs": 0}):
        assert there(flights(1, SETTINGS, **changes), Rule.RATIO) == [None] * len(SETTINGS)


def test_a_law_over_many_ids_is_left_to_the_host_where_it_is_asked_for() -> None:
    (flight,) = flights(1, SETTINGS[1:2])
    for size, judged in ((MOST, True), (MOST + 1, False)):
        wide = CompactLaw(tuple(range(size)), (1 / size,) * size)
        asked = flight._replace(proposal=Proposal((3,), (wide,)), logits=flight.logits[:2])
        assert there([asked], Rule.ONE_HOT) == [here(asked, Rule.ONE_HOT)]
        assert there([asked], Rule.RATIO) == [here(asked, Rule.RATIO) if judged else None]


def test_samples_that_share_a_pass_draw_by_numbers_of_their_own() -> None:
    (flight,) = flights(0, [Sampling(temperature=9.0)])
    asked = [flight._replace(row=Row(0, flight.row.request, index)) for index in range(8)]
    found = there(asked, Rule.RATIO)
    assert found == [here(one, Rule.RATIO) for one in asked]
    assert len({one.token for one in found if one is not None}) > 1


@pytest.mark.parametrize("rule", [Rule.NONE, *RULES])
def test_every_number_that_decides_is_read_once_and_greedy_rows_read_none(rule: Rule) -> None:
    keys = list[Key]()

    class Tape:
        def uniform(self, key: Key) -> float:
            keys.append(key)
            return Counter().uniform(key)

    asked = flights(3, SETTINGS)
    for flight in DeviceJudge(SLOTS, WHERE)(asked, terms(rule, Tape())):
        assert flight.verdict is not None
        flight.verdict()
    read = list(keys)
    assert len(set(read)) == len(read)
    assert {key.seed for key in read} == {flight.row.request.seed for flight in asked[1:]}  # the first is greedy
    keys.clear()
    for flight in asked:
        verdict_of(flight.row, flight.proposal, flight.logits.cpu().numpy(), terms(rule, Tape()))
    assert keys and set(keys) <= set(read)


def asks(seed: int, selector: bool) -> list[tuple[Ask, int]]:
    found = []
    for place, (setting, length) in enumerate(zip(SETTINGS, (4, 1, 3, 4, 2, 4, 4), strict=True)):
        draw = np.random.default_rng([seed, place])
        numbers = draw.random(SLOTS)
        memory = Memory({}, None, 0)
        ask = Ask(place, 0, (5, 9 + place), 1, length, setting, memory, lambda i, u=numbers: float(u[i]), selector)
        found.append((ask, length))
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("broken", [False, True])
def test_walks_of_a_selector_are_those_of_the_host(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (("GROUP", 8), ("COLUMNS", 16), ("STEP", 8)):
        monkeypatch.setattr(top, name, small)
    target = open_target(fixtures.path("nano/dense"))
    checkpoint = open_draft(fixtures.path("nano/dense-dflash2"), target.config)
    config, wanted, slots = checkpoint.config, [(ask, min(2, n)) for ask, n in asks(1, True)[:3]], 2
    assert config.selector is not None
    names = ("predecessor", "successor")
    tables = {
        f"candidate_selector.{name}_codebook": checkpoint.read(f"candidate_selector.{name}_codebook") for name in names
    }
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(len(wanted) * slots, config.vocab_size, generator=draw)
    joint = torch.randn(len(logits), config.selector.rank, generator=draw)
    rows = [place * slots + slot for place, (_, length) in enumerate(wanted) for slot in range(length)]
    if broken:  # what may stand behind half of all tokens: no number, so no law
        tables["candidate_selector.predecessor_codebook"][::2] = torch.nan
    exact = {name: table.float() for name, table in tables.items()}
    expected = drafts.proposals(config, exact, wanted, logits[rows], joint[rows])
    codes = Codes(*(table.to(DEVICE) for table in tables.values()), config.selector.top_k)
    drafted = walked(logits.to(DEVICE), joint.to(DEVICE), codes, walks_of(wanted, slots, WHERE))
    lengths = [len(one.tokens) for one in expected]
    assert (lengths == [2, 1, 2]) != broken
    for (ask, _), mine, theirs in zip(wanted, proposals(drafted, wanted), expected, strict=True):
        assert mine.tokens == theirs.tokens
        for q, other in zip(mine.q, theirs.q, strict=True):
            assert (q is None) == (other is None) == ask.sampling.greedy
            if q is not None and other is not None and ask.sampling.temperature > 1e-9:
                assert q.ids == other.ids
                np.testing.assert_allclose(q.probabilities, other.probabilities, rtol=1e-4, atol=1e-9)


def test_the_likeliest_draft_of_each_slot_is_the_first_of_the_best() -> None:
    wanted = [(replace(ask, sampling=SETTINGS[0]), length) for ask, length in asks(1, False)[:3]]
    logits = torch.randn(len(wanted) * SLOTS, WIDTH, generator=torch.Generator().manual_seed(3)).mul(2).round()
    found = proposals(likeliest(logits.to(DEVICE), walks_of(wanted, SLOTS, WHERE)), wanted)
    best = np.argmax(logits.numpy(), 1).reshape(-1, SLOTS)
    lengths = [length for _, length in wanted]
    assert [one.tokens for one in found] == [tuple(row[:n].tolist()) for row, n in zip(best, lengths, strict=True)]


def test_arrays_come_back_as_they_went() -> None:
    sides = [np.arange(3, dtype=np.int32), np.array([[0.1, 1e300]]), np.zeros((0, 2)), np.float32([1.5])]
    tensors = carried(sides, WHERE)
    assert all(tensor.data_ptr() % 16 == 0 for tensor in tensors if tensor.numel())
    for side, tensor, back in zip(sides, tensors, brought(tensors), strict=True):
        assert tensor.shape == side.shape and back.dtype == side.dtype
        np.testing.assert_array_equal(back, side)


def test_rows_that_lie_behind_each_other_are_not_copied() -> None:
    rows = torch.randn(6, 5)
    parts: list[Tensor] = [*torch.split(rows, [2, 1, 3])]
    assert together(parts).data_ptr() == rows.data_ptr() and torch.equal(together(parts), rows)
    assert torch.equal(together(parts[1:]), rows[2:])
    assert torch.equal(together([parts[1], parts[0], parts[1]]), torch.cat([rows[2:3], rows[:2], rows[2:3]]))


def test_rows_are_picked_where_they_lie() -> None:
    rows = torch.randn(6, 5, 2, device=WHERE)
    assert torch.equal(picked(rows, [4, 0, 4]), torch.stack([rows[4], rows[0], rows[4]]))
    assert picked(rows, []).shape == (0, 5, 2)

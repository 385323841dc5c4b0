"""Random histories of the optimised decoder: whatever happens around a request, it says what it says alone."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from specqual.contract import Finished, FinishReason, Request, Sampling, Tokens
from specqual.decoder import Engine

from .engines import TARGETS, Said, differing, engine, said

RULES = 50  # of one history


@dataclass
class History:
    """A decoder under random treatment; `live` maps request ids to requests and what they have said so far."""

    decoder: Engine
    twin: Engine  # has no neighbours, no cache and no disturbance
    chance: Random
    live: dict[int, tuple[Request, list[list[tuple[int, float]]]]] = field(default_factory=dict)
    ended: list[tuple[Request, Said, bool]] = field(default_factory=list)
    prompts: list[tuple[int, ...]] = field(default_factory=list)

    def submit(self) -> None:
        length = self.chance.choice((1, 2, 15, 16, 17, 63, 64, 65, 70, 130))
        ids = tuple(self.chance.choices(range(1, 95), k=length))
        if self.prompts and self.chance.random() < 0.5:  # shares a beginning with another one
            other = self.chance.choice(self.prompts)
            ids = (*other[: self.chance.randint(1, len(other))], *ids[:9])
        self.prompts.append(ids)
        sampling = self.chance.choice((Sampling(), Sampling(), Sampling(temperature=0.9, top_k=20)))
        request = Request(
            prompt=ids,
            max_tokens=self.chance.randint(1, 18),
            sampling=sampling,
            seed=self.chance.randrange(99),
            n=self.chance.choice((1, 1, 2)),
            ignore_eos=True,
            logprobs=0,
        )
        self.live[self.decoder.submit(request)] = (request, [[] for _ in range(request.n)])

    def any(self) -> int | None:
        return self.chance.choice(list(self.live)) if self.live else None

    def cancel(self) -> None:
        if (request_id := self.any()) is not None:
            self.decoder.cancel(request_id)
            self.end(request_id, whole=False)

    def end(self, request_id: int, *, whole: bool) -> None:
        request, samples = self.live.pop(request_id)
        self.ended.append((request, tuple(map(tuple, samples)), whole))

    def preempt(self) -> None:
        if (request_id := self.any()) is not None:
            self.decoder.preempt(request_id)

    def resume(self) -> None:
        if (request_id := self.any()) is not None:
            self.decoder.resume(request_id)

    def schedule(self) -> None:
        self.decoder.schedule(chunk=self.chance.choice((1, 16, 48, 64, 256)), lag=self.chance.randint(0, 1))

    def tick(self) -> None:
        for event in self.decoder.step():
            if isinstance(event, Tokens):
                _, samples = self.live[event.request_id]  # nothing is said after the end
                assert event.logprobs is not None
                told = zip(event.ids, event.logprobs, strict=True)
                samples[event.sample] += [(token, law.token) for token, law in told]
            elif isinstance(event, Finished) and event.reasons[0] is not FinishReason.CANCELLED:
                self.end(event.request_id, whole=True)

    def look(self) -> None:
        """The state of one sample equals that of a fresh replay of its committed tokens."""
        for request_id in self.live:
            (row, *_) = self.decoder._live[request_id]
            if row.memory is None or not row.memory.length:
                continue
            state = self.decoder.inspect(request_id)
            fresh = self.twin.submit(Request(prompt=row.tokens[: state.length], max_tokens=2, ignore_eos=True))
            self.twin.step()
            assert differing(state, self.twin.inspect(fresh)) == []
            self.twin.cancel(fresh)
            self.twin.step()
            return

    def owners(self) -> None:
        """Every page that is not free is held by as many as its table entries and cache entries say."""
        pages, held = self.decoder._store.pages, dict[int, int]()
        tables = [t for memory in self.decoder._store.open for t in memory.tables.values()]
        tables += [t for chunk in self.decoder._prefixes._known.values() for t in chunk.pages.values()]
        for table in tables:
            for page in table:
                held[page] = held.get(page, 0) + 1
        held.pop(0, None)
        assert held == {page: users for page, users in enumerate(pages.users) if users}
        assert pages.free == pages.count - len(held)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [1])
def test_every_request_of_a_random_history_says_what_it_says_alone(target: str, seed: int) -> None:
    decoder = engine(target, "dflash2", options={"samples": 3, "pages": 110, "prefixes": 6})
    before = dict(decoder.resources())
    history = History(decoder, engine(target, "dflash2", options={"prefixes": 0}), Random(f"{target}/{seed}"))
    rules = [history.submit, history.cancel, history.preempt, history.resume, history.schedule, history.look]
    for _ in range(RULES):
        history.chance.choices([*rules, history.tick], weights=[5, 1, 1, 2, 1, 2, 9])[0]()
        history.owners()
    while history.live:
        history.resume()
        history.tick()
    history.tick()
    assert decoder.resources() == before
    assert sum(whole for _, _, whole in history.ended) > 5
    for request, samples, whole in history.ended:
        alone = said(history.twin, [request])[0]
        assert samples == (alone if whole else tuple(a[: len(s)] for a, s in zip(alone, samples, strict=True)))


def test_requests_are_refused_by_name_and_the_batch_goes_on() -> None:
    decoder = engine("dense", "dflash2")
    good = Request(prompt=(1, 2, 3), max_tokens=6, ignore_eos=True, logprobs=0)
    request_id = decoder.submit(good)
    with pytest.raises(ValueError, match="prompt"):
        decoder.submit(replace(good, prompt=(96,)))
    with pytest.raises(ValueError, match="lag"):
        decoder.schedule(lag=2)
    assert request_id == 0 and said(decoder, [good]) == said(engine("dense"), [good])

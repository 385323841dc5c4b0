"""Scripts: drafters that a plan brings with it."""

from random import Random

from specqual.contract import CompactLaw, Proposal, Script, ScriptContext

from .plan import Room


def banned(token: int) -> Script:
    """A drafter that offers one token over and over."""

    def draft(context: ScriptContext) -> Proposal:
        return Proposal.certain((token,) * context.max_draft)

    return draft


def tabled(seed: int, room: Room) -> Script:
    """A drafter with a law of its own behind every token, and sometimes none; `request_id` is the place in the plan.

    What it draws depends on where it stands and not on what stands there, so that given the past it is still random.
    """
    vocabulary = range(room.limits.vocab_size)
    laws = list[CompactLaw]()
    for last in vocabulary:
        weights = [Random(f"{seed}/{last}/{token}").random() ** 2 + 0.02 for token in vocabulary]
        laws.append(CompactLaw(tuple(vocabulary), tuple(weight / sum(weights) for weight in weights)))

    def draft(context: ScriptContext) -> Proposal:
        chance = Random((seed * 2**20 + context.request_id) * 2**20 + len(context.tokens) * 16 + context.sample)
        count = chance.randint(0, context.max_draft)
        if chance.random() < 0.1:
            return Proposal.certain(tuple(chance.choices(vocabulary, k=count)))
        tokens, last = list[int](), context.tokens[-1]
        q = list[CompactLaw | None]()
        for _ in range(count):
            q.append(laws[last])
            last = chance.choices(vocabulary, laws[last].probabilities)[0]
            tokens.append(last)
        return Proposal(tuple(tokens), tuple(q))

    return draft

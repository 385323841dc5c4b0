"""Kernels put to the test: for each its spans, its definition in any dtype, and how a span is served in two pieces.

Numbers are standard normal (weights over the root of their inputs, keys of the delta-net of length one, its gates
uniform), sizes are those of the target at hand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize, silu

from specqual.contract.kernels import Attention, Kernels, Rows, Seen, Slots, Steps, Weight
from specqual.contract.quantisation import Format
from specqual.reference.convolution import convolve as block_convolve
from specqual.reference.deltanet import convolve, recur
from specqual.reference.norm import rms_norm
from specqual.reference.rope import rope, rotate
from specqual.reference.sampling import order

from .definitions import Operation, attended, by_row, decoded, halves, joined, stored
from .dimensions import Dimensions
from .drive import NotOffered
from .lab import Lab
from .rounding import number

LENGTHS = (5, 1, 16, 2, 9, 1, 8, 12, 3, 1, 7, 15, 4, 1, 11, 6, 10)  # tokens of 17 spans
EPS, THETA, FARTHEST, BEST = 1e-6, 10000.0, 2**15, 16


@dataclass(frozen=True, slots=True)
class Bench:
    """Draws the spans of all kernels of one decoder."""

    kernels: Kernels
    sizes: Dimensions
    dtype: torch.dtype
    longest: int  # positions
    chance: torch.Generator

    @classmethod
    def of(cls, lab: Lab, clause: str) -> "Bench":
        kernels = lab.decoder.kernels()  # type: ignore[attr-defined]
        if kernels == Kernels():
            raise NotOffered("the decoder has no kernels: it does not compute its target")
        chance = torch.Generator().manual_seed(lab.random(clause).randrange(2**32))
        dtype, longest = number(lab.claims.dtype) or torch.float64, min(lab.claims.limits.max_context, FARTHEST)
        return cls(kernels, Dimensions.of(lab), dtype, longest, chance)

    @property
    def wide(self) -> torch.dtype:
        return torch.promote_types(self.dtype, torch.float32)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.chance, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.chance, dtype=torch.float64)

    def operations(self, attention: str | None = None) -> Iterator[Operation]:
        """Every kernel that the decoder has; of attention one back end, or all."""
        sizes = self.sizes
        rows = [self.normal(count, sizes.hidden).to(self.dtype) for count in LENGTHS]
        if self.kernels.linear is not None:
            for kind in Format:
                yield self._linear(kind, rows)
        if self.kernels.norm is not None:
            gain, norm = 1 + self.normal(sizes.hidden).to(self.dtype) / 4, self.kernels.norm
            yield by_row(
                "norm",
                rows,
                lambda x: norm(x, gain, EPS),
                lambda x, dtype: rms_norm(x.to(dtype), gain, EPS),
            )
        if self.kernels.mlp is not None:
            yield self._mlp(rows)
        if self.kernels.rotate is not None:
            yield self._rotate()
        for name, back_end in self.kernels.attention.items():
            for window, causal in ((None, True), (sizes.window, True), (sizes.window, False)):
                if attention in (None, name):
                    yield self._attention(name, back_end, window, causal)
        if self.kernels.recurrence is not None:
            yield self._recurrence()
        if self.kernels.convolution is not None:
            yield self._convolution()
        if self.kernels.block_convolution is not None:
            yield self._block_convolution()
        if self.kernels.best is not None:
            yield self._best()

    def block(self, geometry: Sequence[int], context: int) -> Seen:
        """A drafted block behind a context: heads, key heads, their size, queries."""
        heads, kv_heads, size, queries = geometry[:4]
        key, value = (self.normal(context + queries, kv_heads, size).to(self.dtype) for _ in range(2))
        return Seen(self.normal(queries, heads, size).to(self.dtype), key, value)

    def weight(self, kind: Format, outputs: int, inputs: int) -> Weight:
        """A drawn weight, as this format stores it."""
        return stored(kind, self.normal(outputs, inputs) / inputs**0.5, self.dtype)

    def _linear(self, kind: Format, rows: Sequence[Tensor]) -> Operation:
        weight, linear = self.weight(kind, self.sizes.wide, self.sizes.hidden), self.kernels.linear
        assert linear is not None
        return by_row(
            f"linear {kind}",
            rows,
            lambda x: linear(x, weight),
            lambda x, dtype: x.to(dtype) @ decoded(weight, dtype).T,
        )

    def _mlp(self, rows: Sequence[Tensor]) -> Operation:
        mlp, (hidden, wide) = self.kernels.mlp, (self.sizes.hidden, self.sizes.wide)
        assert mlp is not None
        weights = [self.weight(Format.DENSE, *shape) for shape in ((wide, hidden), (wide, hidden), (hidden, wide))]

        def define(x: Tensor, dtype: torch.dtype) -> Tensor:
            gate, up, down = (decoded(weight, dtype) for weight in weights)
            return (silu(x.to(dtype) @ gate.T) * (x.to(dtype) @ up.T)) @ down.T

        return by_row("mlp", rows, lambda x: mlp(x, *weights), define)

    def _rotate(self) -> Operation:
        sizes, turn = self.sizes, self.kernels.rotate
        assert turn is not None
        far = max(0, self.longest - 16) // len(LENGTHS)  # between two spans, up to the end of the context
        spans = [
            (self.normal(count, sizes.heads, sizes.head_dim).to(self.dtype), range(far * place, far * place + count))
            for place, count in enumerate(LENGTHS, 1)
        ]

        def run(spans: Sequence[tuple[Tensor, range]]) -> list[Tensor]:
            positions = [position for _, places in spans for position in places]
            found = turn(torch.cat([x for x, _ in spans]), positions, sizes.rotary_dim, THETA)
            return list(found.split([len(x) for x, _ in spans]))

        def define(span: tuple[Tensor, range], dtype: torch.dtype) -> Tensor:
            return rotate(span[0].to(dtype), rope(span[1], sizes.rotary_dim, THETA))

        def cut(span: tuple[Tensor, range], place: int) -> Tensor:
            x, positions = span
            return torch.cat([run([(x[side], positions[side])])[0] for side in halves(place)])

        return Operation("rotate", spans, run, define, cut)

    def _attention(self, name: str, back_end: Attention, window: int | None, causal: bool) -> Operation:
        sizes, spans = self.sizes, list[Seen]()
        for place, count in enumerate(LENGTHS):
            length = count + (0, 11, 63, 90, 150)[place % 5]
            key, value = (self.normal(length, sizes.kv_heads, sizes.head_dim).to(self.dtype) for _ in range(2))
            spans.append(Seen(self.normal(count, sizes.heads, sizes.head_dim).to(self.dtype), key, value))

        def run(spans: Sequence[Seen]) -> list[Tensor]:
            return back_end(spans, window, causal)

        def cut(span: Seen, place: int) -> Tensor:
            known = len(span.key) - len(span.query) + place
            first = Seen(span.query[:place], span.key[:known], span.value[:known])
            return torch.cat([run([first])[0], run([replace(span, query=span.query[place:])])[0]])

        what = f"attention {name}, {'causal' if causal else 'not causal'}, window {window}"
        return Operation(what, spans, run, partial(attended, window=window, causal=causal), cut if causal else None)

    def _recurrence(self) -> Operation:
        net, recurrence = self.sizes.net, self.kernels.recurrence
        assert recurrence is not None
        heads, spans = net.value_heads, list[Steps]()
        for count in LENGTHS:
            query, key = (normalize(self.normal(count, heads, net.key_dim), dim=-1) for _ in range(2))
            drawn = (
                torch.zeros(heads, net.key_dim, net.value_dim),
                query * net.key_dim**-0.5,
                key,
                self.normal(count, heads, net.value_dim),
                self.uniform(count, heads) ** 0.1,
                self.uniform(count, heads),
            )
            spans.append(Steps(*(side.to(self.wide) for side in drawn)))

        def run(spans: Sequence[Steps]) -> list[Tensor]:
            said = recurrence(spans)
            behind = recurrence([replace(span, kept=len(span.query)) for span in spans])
            return [
                joined(*pair) for pair in zip((out for out, _ in said), (state for _, state in behind), strict=True)
            ]

        def define(span: Steps, dtype: torch.dtype) -> Tensor:
            return joined(*recur(*(getattr(span, side).to(dtype) for side in STEPS)))

        def cut(span: Steps, place: int) -> Tensor:
            one, two = (replace(span, **{side: getattr(span, side)[part] for side in STEPS}) for part in halves(place))
            later, state = recurrence([replace(span, kept=place)])[0]
            return joined(
                torch.cat([recurrence([one])[0][0], later]), run([replace(two, state=state)])[0][later.numel() :]
            )

        return Operation("recurrence", spans, run, define, cut)

    def _convolution(self) -> Operation:
        net, convolution = self.sizes.net, self.kernels.convolution
        assert convolution is not None
        taps = self.normal(net.channels, net.kernel).to(self.wide)
        nothing = torch.zeros(net.kernel - 1, net.channels, dtype=self.wide)
        spans = [Rows(self.normal(count, net.channels).to(self.wide), nothing) for count in LENGTHS]

        def run(spans: Sequence[Rows]) -> list[Tensor]:
            return convolution(spans, taps)

        def cut(span: Rows, place: int) -> Tensor:
            first, second = (replace(span, rows=span.rows[side]) for side in halves(place))
            behind = torch.cat([span.history, first.rows])[place:]
            return torch.cat([run([first])[0], run([replace(second, history=behind)])[0]])

        return Operation("convolution", spans, run, lambda s, dtype: convolve(s.rows.to(dtype), taps.to(dtype)), cut)

    def _block_convolution(self) -> Operation:
        hidden, block_convolution = self.sizes.hidden, self.kernels.block_convolution
        assert block_convolution is not None
        base = self.normal(2, hidden).to(self.wide)
        spans = [
            Slots(self.normal(count, hidden).to(self.dtype), self.normal(count, 2, hidden // 8).to(self.dtype))
            for count in LENGTHS
        ]

        def define(span: Slots, dtype: torch.dtype) -> Tensor:
            return block_convolve(span.rows.to(dtype), span.dynamic.to(dtype), base.to(dtype))

        return Operation("block convolution", spans, lambda spans: block_convolution(spans, base), define, None)

    def _best(self) -> Operation:
        best, count = self.kernels.best, min(BEST, self.sizes.vocab)
        assert best is not None
        rows = [(4 * self.normal(length, self.sizes.vocab)).round().to(self.wide) / 4 for length in LENGTHS]

        def define(x: Tensor, dtype: torch.dtype) -> Tensor:
            return torch.tensor([sorted(order(row.double().numpy())[:count].tolist()) for row in x])

        return replace(by_row("best", rows, lambda x: best(x, count), define), exact=True)


STEPS = ("query", "key", "value", "decay", "beta")

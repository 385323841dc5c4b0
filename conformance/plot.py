"""Small plots as inline SVG: axes with labels, and marks that the page's style colours."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from xml.etree import ElementTree as xml

from markupsafe import Markup

from .junit import printable

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 18, 46


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: what it shows, in which unit, its ends, and marks (value, text)."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]


def linear(label: str, low: float, high: float, wanted: int = 5) -> Axis:
    """An axis from low to high with round marks; it reaches at least from mark to mark."""
    span = (high - low) or 1.0
    raw = span / wanted
    unit = 10.0 ** floor(log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    marks = tuple((k * step, f"{k * step:.6g}") for k in range(first, last + 1))
    return Axis(label, first * step, last * step, marks)


def named(label: str, names: Sequence[str]) -> Axis:
    """An axis of things that are no numbers, one a unit."""
    return Axis(label, -0.5, len(names) - 0.5, tuple(enumerate(names)))


def decades(label: str, most: float) -> Axis:
    """An axis of counts in powers of ten, in log10; its foot is half a count, so that a single one is seen."""
    top = max(1, ceil(log10(max(most, 1))))
    return Axis(label, log10(0.5), top, tuple((k, f"{10**k:,}") for k in range(top + 1)))


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot under construction; marks are added in the axes' own units and clipped to them."""

    title: str
    x: Axis
    y: Axis
    marks: list[xml.Element] = field(default_factory=list)

    def across(self, value: float) -> float:
        share = (value - self.x.low) / (self.x.high - self.x.low)
        return round(LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT), 2)

    def up(self, value: float) -> float:
        share = (value - self.y.low) / (self.y.high - self.y.low)
        return round(HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM), 2)

    def bar(self, x: float, y: float, said: str, half: float = 0.36) -> None:
        """A bar from the foot of the y axis, its value above it."""
        left, right, top = self.across(x - half), self.across(x + half), self.up(y)
        size = {"x": left, "y": top, "width": right - left, "height": HEIGHT - BOTTOM - top}
        self._add("rect", "bar", said, **size)
        self.text(x, y, said)

    def dot(self, x: float, y: float, low: float, high: float, said: str) -> None:
        """A point with its interval."""
        at = self.across(x)
        self._add("line", "interval", said, x1=at, x2=at, y1=self.up(low), y2=self.up(high))
        for end in (low, high):
            self._add("line", "interval", "", x1=at - 4, x2=at + 4, y1=self.up(end), y2=self.up(end))
        self._add("circle", "dot", said, cx=at, cy=self.up(y), r=3.5)

    def line(self, points: Sequence[tuple[float, float]], number: int, said: str) -> None:
        """Points joined; `number` chooses the colour."""
        path = " ".join(f"{self.across(x)},{self.up(y)}" for x, y in points)
        self._add("polyline", f"line line-{number % 6}", said, points=path)

    def rule(self, y: float, said: str) -> None:
        """A horizontal line that something must stay below or above, with its name."""
        self._add("line", "limit", said, x1=LEFT, x2=WIDTH - RIGHT, y1=self.up(y), y2=self.up(y))
        self._text("limit-name", said, x=WIDTH - RIGHT, y=self.up(y) - 4, anchor="end")

    def text(self, x: float, y: float, said: str) -> None:
        self._text("value", said, x=self.across(x), y=self.up(y) - 4, anchor="middle")

    def markup(self) -> Markup:
        """The SVG element, every text of it escaped."""
        root = xml.Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": self.title})
        frame = Plot(self.title, self.x, self.y, [])
        foot, left = HEIGHT - BOTTOM, LEFT
        for value, said in self.y.ticks:
            frame._add("line", "grid", "", x1=left, x2=WIDTH - RIGHT, y1=self.up(value), y2=self.up(value))
            frame._text("tick", said, x=left - 6, y=self.up(value) + 4, anchor="end")
        for value, said in self.x.ticks:
            frame._add("line", "grid", "", x1=self.across(value), x2=self.across(value), y1=foot, y2=foot + 4)
            frame._text("tick", said, x=self.across(value), y=foot + 16, anchor="middle")
        frame._add("line", "axis", "", x1=left, x2=WIDTH - RIGHT, y1=foot, y2=foot)
        frame._text("name", self.x.label, x=(left + WIDTH - RIGHT) / 2, y=HEIGHT - 8, anchor="middle")
        frame._text("name", self.y.label, x=0, y=0, anchor="middle")
        frame.marks[-1].set("transform", f"translate(13 {(TOP + foot) / 2}) rotate(-90)")
        root.extend([*frame.marks, *self.marks])
        return Markup(xml.tostring(root, encoding="unicode"))

    def _add(self, shape: str, style: str, said: str, **numbers: float | str) -> None:
        element = xml.Element(shape, {"class": style} | {name: str(value) for name, value in numbers.items()})
        if said:
            xml.SubElement(element, "title").text = printable(said)
        self.marks.append(element)

    def _text(self, style: str, said: str, *, x: float, y: float, anchor: str) -> None:
        element = xml.Element("text", {"class": style, "x": str(x), "y": str(y), "text-anchor": anchor})
        element.text = printable(said)
        self.marks.append(element)

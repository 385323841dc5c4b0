"""Reading a JSON object with strict accounting: every key is used, named as inert, or refused."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .errors import CheckpointError

LARGEST_JSON = 16 * 2**20  # bytes; a config.json is a few kilobytes, an index of shards a few megabytes
DEEPEST = 64  # lists and objects inside of each other; a configuration has four, a report of a run a dozen
_MISSING = object()


def parse_json(raw: bytes, **hooks: Callable[[Any], Any]) -> Any:
    """Parse JSON that somebody else wrote; ValueError for what is none, or is nested deeper than DEEPEST.

    How deep Python itself goes differs from version to version, and between its parser and all that reads the result.
    `hooks` are those of json.loads.
    """
    try:
        content = json.loads(raw, **hooks)  # type: ignore[arg-type]
    except RecursionError as error:
        raise ValueError(str(error)) from None
    inside = [content]
    for _ in range(DEEPEST + 1):
        inside = [
            item
            for value in inside
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not inside:
            return content
    raise ValueError(f"lists and objects are nested more than {DEEPEST} deep")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file of bounded size; CheckpointError names the file."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise CheckpointError(path.name, f"larger than {LARGEST_JSON} bytes")
        content = parse_json(path.read_bytes(), object_pairs_hook=_unique)
    except FileNotFoundError:
        raise CheckpointError(path.name, f"no such file in {path.parent}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(path.name, f"is not readable JSON ({error})") from None
    if not isinstance(content, dict):
        raise CheckpointError(path.name, "must hold a JSON object")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return content


class Keys:
    """A JSON object whose keys are taken one by one, so that what nobody took can be refused by name.

    `nested` (DFlash's `dflash_config`) is looked up first and wins. A key that must be there has no default.
    """

    def __init__(self, content: dict[str, Any], where: str, nested: str | None = None) -> None:
        self._where = where
        self._nested = nested
        self._inner: dict[str, Any] = {}
        self._content = dict(content)
        self._used: set[str] = set()
        if nested is not None and nested in content:
            inner = self._content.pop(nested)
            if not isinstance(inner, dict):
                raise CheckpointError(f"{where}: {nested}", "must be an object")
            self._inner = inner

    def name(self, key: str) -> str:
        """Where a key stands, for messages: `config.json: dflash_config.block_size`."""
        return f"{self._where}: {self._nested}.{key}" if key in self._inner else f"{self._where}: {key}"

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._inner, *self._content)))

    def has(self, key: str) -> bool:
        """Whether a key is there and not null; it does not count as used."""
        return self._inner.get(key, self._content.get(key)) is not None

    def take(self, key: str, default: Any = _MISSING) -> Any:
        """A key's value, used from now on; null counts as absent. CheckpointError if it is absent without a default.

        The readers below do the same and raise CheckpointError for a value of the wrong type or out of bounds.
        """
        self._used.add(key)
        value = self._inner.get(key, self._content.get(key, default))
        if value is None and default is not _MISSING:
            return default
        if value is _MISSING or value is None:
            raise CheckpointError(self.name(key), "is missing, and has no safe default")
        return value

    def integer(self, key: str, default: Any = _MISSING, *, low: int = 1, high: int = 2**31) -> int:
        """An integer between two bounds, both included; true and false are none."""
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise CheckpointError(self.name(key), f"must be an integer between {low} and {high}, got {value!r}")
        return value

    def number(self, key: str, default: Any = _MISSING, *, low: float = 0.0, high: float = 1e12) -> float:
        """A finite number between two bounds, both included."""
        value = self.take(key, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high:  # NaN is in no range
            raise CheckpointError(self.name(key), f"must be a number between {low:g} and {high:g}, got {value!r}")
        return float(value)

    def flag(self, key: str, default: Any = _MISSING) -> bool:
        """True or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise CheckpointError(self.name(key), f"must be true or false, got {value!r}")
        return value

    def one_of(self, key: str, allowed: Iterable[Any], default: Any = _MISSING) -> Any:
        """One of the allowed values, of the same type."""
        value, allowed = self.take(key, default), tuple(allowed)
        if not any(value == choice and type(value) is type(choice) for choice in allowed):
            choices = ", ".join(repr(choice) for choice in allowed)
            raise CheckpointError(self.name(key), f"must be one of {choices}, got {value!r}")
        return value

    def integers(self, key: str, default: Any = _MISSING, *, low: int = 0, high: int = 2**31) -> tuple[int, ...]:
        """A list of integers between two bounds, or a single one."""
        value = self.take(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = [value]
        ok = isinstance(value, list | tuple) and all(
            isinstance(item, int) and not isinstance(item, bool) and low <= item <= high for item in value
        )
        if not ok:
            raise CheckpointError(self.name(key), f"must list integers between {low} and {high}, got {value!r}")
        return tuple(value)

    def inner(self, key: str) -> "Keys":
        """An object under a key, to be accounted for by itself."""
        value = self.take(key)
        if not isinstance(value, dict):
            raise CheckpointError(self.name(key), f"must be an object, got {value!r}")
        return Keys(value, self.name(key))

    def finish(self, inert: frozenset[str]) -> None:
        """Refuse, by name, the first key that was neither taken nor is known to have no effect on the output."""
        for key in self:
            if key not in self._used and key not in inert:
                raise CheckpointError(self.name(key), "is not known here, so it might change the output")

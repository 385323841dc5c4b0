"""Recorded runs: logs of token ids that any engine can write, one JSON object a line."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from specqual.contract.keys import parse_json

IDS = ("prompt_ids", "output_ids")
DTYPES = ("float64", "float32", "bfloat16", "float16")


class BadLog(ValueError):
    """A log that cannot be judged; names the file, the line and the field."""

    def __init__(self, path: Path, line: int | None, field: str, problem: str) -> None:
        where = path.name if line is None else f"{path.name} line {line}"
        super().__init__(f"{where}: {field}: {problem}")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request of a log; `other` holds the keys that nothing here reads."""

    line: int
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    other: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """The requests of one engine in one configuration, with the header line if there was one."""

    path: Path
    sha256: str
    header: Mapping[str, Any]
    requests: tuple[Recorded, ...]

    def label(self, request: Recorded) -> str:
        return f"{self.path.name} line {request.line}"

    @property
    def common(self) -> dict[str, Any]:
        """What the header says, and the other keys that all requests agree on."""
        first = self.requests[0].other
        agreed = {key: value for key, value in first.items() if all(r.other.get(key) == value for r in self.requests)}
        return {**self.header, **agreed}

    def dtype(self, stated: str | None = None) -> str:
        """The dtype that the engine computed in: as stated, and as every line says that says one; else BadLog."""
        found = stated if stated is not None else self.header.get("dtype")
        for request in self.requests:
            own = request.other.get("dtype", found)
            if own is not None and own not in DTYPES:
                raise BadLog(self.path, request.line, "dtype", f"must be one of {', '.join(DTYPES)}, got {own!r}")
            if found is not None and own != found:
                raise BadLog(self.path, request.line, "dtype", f"is {own!r} where {found!r} was said before")
            found = own
        if found is None:
            raise BadLog(self.path, None, "dtype", "no line says it; give --dtype")
        return str(found)


def read_log(path: Path) -> Log:
    """Read a log: per line {"prompt_ids": [...], "output_ids": [...], ...}; a first line with neither is a header.

    BadLog names the first line and field that is wrong. Token ids are only required to be integers: what is outside the
    vocabulary is for the judge to say.
    """
    content = path.read_bytes()
    header: dict[str, Any] = {}
    requests: list[Recorded] = []
    lines = [(number, raw) for number, raw in enumerate(content.split(b"\n"), 1) if raw.strip()]
    for place, (number, raw) in enumerate(lines):
        fields = _object(path, number, raw)
        if place == 0 and not any(name in fields for name in IDS):
            header = fields
            continue
        prompt, output = (_ids(path, number, name, fields) for name in IDS)
        if not prompt:
            raise BadLog(path, number, "prompt_ids", "must hold at least one token")
        requests.append(Recorded(number, prompt, output, {k: v for k, v in fields.items() if k not in IDS}))
    if not requests:
        raise BadLog(path, None, "prompt_ids", "no line holds a request")
    return Log(path, sha256(content).hexdigest(), header, tuple(requests))


def _object(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(raw, object_pairs_hook=_unique, parse_constant=_no_number)
    except ValueError as error:
        raise BadLog(path, number, "line", f"is not readable JSON ({error})") from None
    if not isinstance(fields, dict):
        raise BadLog(path, number, "line", "must hold a JSON object")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"{name!r} stands twice in one object")
        fields[name] = value
    return fields


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _ids(path: Path, number: int, name: str, fields: Mapping[str, Any]) -> tuple[int, ...]:
    if name not in fields:
        raise BadLog(path, number, name, "is missing")
    ids = fields[name]
    if not isinstance(ids, list):
        raise BadLog(path, number, name, f"must be a list of token ids, got {type(ids).__name__}")
    for place, token in enumerate(ids):
        if type(token) is not int:
            raise BadLog(path, number, f"{name}[{place}]", f"must be an integer, got {json.dumps(token)[:40]}")
    return tuple(ids)

"""The one place where `--decoder NAME` becomes an object."""

import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from specqual.contract import Make

BUILT_IN = {
    "optimised": "specqual.decoder:make",
    "reference": "specqual.reference:make",
    "transformers": "specqual.adapters.transformers:make",
    "dflash": "specqual.adapters.dflash:make",
}


class UnknownDecoder(ValueError):
    """A decoder name that leads nowhere."""


def resolve(name: str) -> Make:
    """The factory behind a built-in name or `package.module:make`; UnknownDecoder says what is missing.

    A module is looked for among what is installed, then in the current folder.
    """
    path = BUILT_IN.get(name, name)
    module_name, _, attribute = path.partition(":")
    if not attribute:
        names = ", ".join(BUILT_IN)
        raise UnknownDecoder(f"--decoder: {name!r} is none of {names}, nor of the form package.module:make")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise UnknownDecoder(f"--decoder: cannot import {module_name} for {name!r}: {error}") from error
    make = getattr(module, attribute, None)
    if not callable(make):
        raise UnknownDecoder(f"--decoder: {module_name} has nothing callable named {attribute!r}")
    found: Make = make
    return found


def source_of(name: str) -> str | None:
    """The digest of the file that the factory of this name is in; None where there is no such file."""
    resolve(name)
    file = getattr(sys.modules[BUILT_IN.get(name, name).partition(":")[0]], "__file__", None)
    return None if file is None else sha256(Path(file).read_bytes()).hexdigest()[:16]

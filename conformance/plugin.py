"""The pytest plugin: options, the decoder under test, and one verdict per clause.

It does nothing, and registers no option, unless pytest is asked for the conformance suite.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PACKAGE = "specqual.conformance"
TRIGGERS = ("--decoder", "--list")
ACTIVE = pytest.StashKey[Any]()


def asked(args: Sequence[str], folder: Path) -> bool:
    """Whether a pytest command line asks for the conformance suite."""
    return any(_names(arg, folder) or arg.split("=")[0] in TRIGGERS for arg in args)


def _names(arg: str, folder: Path) -> bool:
    """Whether an argument names the conformance package, its folder or something inside."""
    if arg.startswith("-"):
        return False
    name = arg.split("::")[0]
    if name == PACKAGE or name.startswith(PACKAGE + "."):
        return True
    path = (folder / name).resolve()
    return path == HERE or HERE in path.parents


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config = pluginmanager.getplugin("pytestconfig")
    params = config.invocation_params
    if not asked([str(arg) for arg in params.args], params.dir):
        return
    from .options import add_options

    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if getattr(config.option, "specqual_list", False):
        from .clauses import listing

        print(listing())
        return 0
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(id): the clause of the conformance suite that a test decides")
    if hasattr(config.option, "specqual_decoder") and not config.option.specqual_list:
        from .session import Session

        session = Session.of(config)
        config.stash[ACTIVE] = session
        config.pluginmanager.register(session, "specqual-session")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    inside = collection_path == HERE or HERE in collection_path.parents
    return True if inside and ACTIVE not in config.stash else None


@pytest.fixture(scope="session")
def specqual_session(request: pytest.FixtureRequest) -> Iterator[Any]:
    session = request.config.stash[ACTIVE]
    yield session
    session.lab.renew()


@pytest.fixture
def lab(specqual_session: Any) -> Any:
    """The decoder under test, for the functions that decide clauses."""
    return specqual_session.lab


@pytest.fixture
def waivers(specqual_session: Any) -> Any:
    return specqual_session.waivers

"""One conformance run inside pytest: which clauses, their verdicts, the report and the exit status."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from specqual.contract import Unsupported

from .chapter import RESULT, clause_of, undecided
from .clauses import PLACES, status_of
from .drive import DecoderError, NotOffered
from .lab import Lab
from .options import Asked, BadOption, read_options
from .report import Report
from .verdicts import Status
from .waivers import Waiver


@dataclass(eq=False)  # pytest puts its plugins into sets
class Session:
    """The plugin object of a run; in an xdist worker it only runs tests, and the controller hears their reports."""

    asked: Asked
    lab: Lab
    worker: bool
    report: Report
    results: list[dict[str, Any]] = field(default_factory=list)
    foretold: list[str] = field(default_factory=list)  # by --estimate
    seal: str = ""  # the hash of the report, when it is finished
    foreign: bool = False  # a test failed that is none of ours, or one of ours behind its verdict

    @classmethod
    def of(cls, config: pytest.Config) -> "Session":
        try:
            asked = read_options(config.option)
        except BadOption as error:
            pytest.exit(f"specqual: {error}", returncode=Status.OPEN)
        worker = hasattr(config, "workerinput")
        return cls(asked, Lab(asked.run), worker, Report(asked.run, None if worker else asked.report))

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        return self.asked.waivers

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """With `-n 2`, and nothing else said about distribution, clauses that share histories share a worker."""
        if config.getvalue("dist") != "load":
            return None
        from .workers import Together

        return Together(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        ours: list[tuple[int, pytest.Item]] = []
        others, dropped = [], []
        for item in items:
            marker = item.get_closest_marker("clause")
            if marker is None:
                others.append(item)
            elif marker.args[0] in self.asked.clauses:
                ours.append((PLACES[marker.args[0]], item))
            else:
                dropped.append(item)
        items[:] = [item for _, item in sorted(ours, key=lambda pair: pair[0])] + others
        if dropped:
            config.hook.pytest_deselected(items=dropped)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Build the decoder before the first test, so that a bad checkpoint or option is one error and no report."""
        self.report.selected = selection(item.nodeid for item in session.items)
        if (
            self.worker
            or session.config.option.collectonly
            or not any(i.get_closest_marker("clause") for i in session.items)
        ):
            return
        if getattr(session.config.option, "dist", "no") != "no":
            return
        try:
            _ = self.lab.decoder
        except Exception as error:
            bad_setup = isinstance(error, DecoderError) and isinstance(error.__cause__, ValueError)
            if bad_setup:  # CheckpointError, an unknown option, a value that does not fit
                pytest.exit(f"specqual: {error.__cause__}", returncode=Status.OPEN)
            return  # each clause reports it

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self.report.selected = selection(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """With --estimate, find out what the run would be and do not run it."""
        if not self.asked.estimate:
            return None
        from .estimate import estimate, table

        try:
            self.foretold = table(estimate(self.lab, self.asked.clauses), self.asked.run.profile)
        except (DecoderError, NotOffered, Unsupported) as error:
            pytest.exit(f"specqual: no estimate: {error}", returncode=Status.ERROR)
        finally:
            self.lab.renew()
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        outcome = yield
        if call.when == "call" and RESULT in item.stash:
            outcome.get_result().specqual = item.stash[RESULT]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.worker:
            return
        found = getattr(report, "specqual", None)
        lost = clause_of(report.nodeid) if report.failed and found is None else None
        if found is not None:
            self._settled(json.loads(found))
        elif lost is not None and all(result["clause"] != lost for result in self.results):
            self._settled(asdict(undecided(lost, str(report.longrepr), self.asked.run.replay(lost), report.duration)))
        elif report.failed:
            self.foreign = True

    def _settled(self, result: dict[str, Any]) -> None:
        self.results.append(result)
        self.report.add(result)

    @property
    def lost(self) -> frozenset[str]:
        """Clauses that were selected, and that the run never came to."""
        return self.report.selected - {result["clause"] for result in self.results}

    def pytest_report_header(self) -> list[str]:
        run = self.asked.run
        setup = run.setup
        return [
            f"specqual: decoder {run.decoder}, rule {setup.rule}, profile {run.profile}, seed {run.seed}",
            f"specqual: target {setup.target}, draft {setup.draft or 'none'}",
            *([f"specqual: without {', '.join(sorted(run.without))}"] if run.without else ()),
        ]

    def status(self) -> Status:
        """What the verdicts say."""
        return status_of(self.results, self.asked.run.profile)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.worker:
            return
        settled = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if settled and self.asked.estimate:
            session.exitstatus = Status.CLEAN
        elif settled and not session.config.option.collectonly:
            session.exitstatus = Status.VIOLATED if self.foreign and not self.status() else self.status()
            self.seal = self.report.close(int(self.status()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.worker:
            return
        if self.asked.estimate:
            terminalreporter.section("what this run would be", sep="=")
            terminalreporter.write_line("\n".join(self.foretold))
            return
        from .summary import summarise

        summarise(terminalreporter, self)


def selection(ids: Iterable[str]) -> frozenset[str]:
    """The clauses that the tests of these nodes decide."""
    return frozenset(clause for clause in map(clause_of, ids) if clause is not None)

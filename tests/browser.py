"""The pages of reports in a real browser: `tox -e browser` opens them in Chromium, photographs them and listens in.

Screenshots go to report/browser/. Where there is no Chromium this says so and is skipped.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from specqual.conformance.veil import BlackBox
from specqual.contract import Setup
from specqual.mutants.pairs import Pair
from specqual.mutants.verification import m01b
from specqual.soak.journal import Journal
from specqual.soak.page import Press
from specqual.soak.records import Violation

from .qualification import CONFORMANCE, options
from .soak_journals import written

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine to open the page in")
QUIET = (
    "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --disable-extensions --no-pings "
    "--disable-domain-reliability --proxy-server=127.0.0.1:9"
).split()  # the proxy answers nothing: whatever asks for the network fails, and stands in the log
OWN = ("google.com", "googleapis.com", "gvt1.com")  # what the browser asks for by itself, on an empty page as well
PAIR = Pair("nano/dense", "nano/dense-dflash2")
FAULTY = "tests.browser:untaped"
CLAUSES = "LIVE-1 LIVE-3 GE-1 GE-5 LAW-2 LAW-6 RWD-1 ERR-1".split()
PHOTOS = Path(__file__).resolve().parent.parent / "report" / "browser"
SECTIONS = ("failed", "claims", "checked", "unseen", "charts", "budget", "clauses", "run")
SOAK = "numbers violations checked hazards charts run acceptance-length memory evidence-1 regret".split()
SHOWN = ("trajectory-LAW-6", "acceptance-position", "acceptance-length", "regret")


def untaped(setup: Setup) -> BlackBox:
    """A decoder with one planted fault, and all to be seen of it but its random numbers, so that statistics decide."""
    inner = m01b(setup)
    box = BlackBox(inner)
    for name in "rounds script score inspect resources preempt resume schedule".split():
        setattr(box, name, getattr(inner, name))
    return box


def browse(url: str, *options: str) -> tuple[str, set[str]]:
    """Open a page: the document as rendered, and the hosts that were asked for on its behalf."""
    with TemporaryDirectory() as profile:
        log = Path(profile) / "net.json"
        watch = [f"--log-net-log={log}", "--net-log-capture-mode=Everything", f"--user-data-dir={profile}/user"]
        found = subprocess.run(
            [str(CHROMIUM), *QUIET, *watch, *options, url], capture_output=True, text=True, timeout=120, check=True
        )
        events = json.loads(log.read_text())["events"]
    urls = {str(event.get("params", {}).get("url", "")) for event in events}
    hosts = {host for url in urls for host in re.findall(r"^(?:https?|wss?|ftp)://([^/:?#]+)", url)}
    return found.stdout, {host for host in hosts if not any(host == own or host.endswith("." + own) for own in OWN)}


def photograph(page: Path, name: str, width: int, height: int, *, dark: bool = False, style: str = "") -> bytes:
    """A screenshot of the page with more rules of style, such as those that leave one part of it."""
    PHOTOS.mkdir(parents=True, exist_ok=True)
    file, styled = PHOTOS / f"{name}.png", page.with_name("styled.html")
    styled.write_text(page.read_text(encoding="utf-8").replace("</style>", f"{style}</style>", 1), encoding="utf-8")
    size = [f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    browse(styled.as_uri(), f"--screenshot={file}", *size)
    return file.read_bytes()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a real run on a decoder with one planted fault."""
    folder = tmp_path_factory.mktemp("report")
    wanted = [option for clause in CLAUSES for option in ("--clause", clause)]
    arguments = [*options(PAIR), *wanted, "--decoder", FAULTY, "--report", str(folder)]
    assert pytest.main([str(CONFORMANCE), "-q", "-p", "no:cacheprovider", *arguments]) == 1
    return folder / "index.html"


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small journal, as a run of two hours would write it."""
    folder = tmp_path_factory.mktemp("soak")
    found = [Violation("regret", "token 7 is 0.5 nats worse than the best", {"scenario": "mixed", "tokens": [1, 2]})]
    journal = Journal.open(written(folder, minutes=120, violations=found))
    Press(journal, folder).print(running=False)
    return folder / "index.html"


def test_the_page_of_a_soak_run_renders_every_section_and_asks_nobody(soak: Path) -> None:
    document, hosts = browse(soak.as_uri(), "--dump-dom")
    assert not hosts and "<script" not in document
    for name in SOAK:
        assert f'id="{name}"' in document, name


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1280, 3200), (400, 6000)])
def test_the_page_of_a_soak_run_is_photographed(soak: Path, width: int, height: int, dark: bool) -> None:
    name = f"soak-{width}-{'dark' if dark else 'light'}"
    assert len(photograph(soak, name, width, height, dark=dark)) > 50_000


def test_the_page_renders_every_section_and_asks_nobody(page: Path) -> None:
    document, hosts = browse(page.as_uri(), "--dump-dom")
    assert not hosts
    for name in (*SECTIONS, *SHOWN, "GE-1"):
        assert f'id="{name}"' in document, name
    assert "Therefore" in document
    assert "<script" not in document


def test_the_network_log_would_show_a_request(tmp_path: Path) -> None:
    """What the test above rests on: a page that does ask is caught."""
    loud = tmp_path / "loud.html"
    loud.write_text(
        '<img src="http://example.invalid/a.png"><link rel="stylesheet" href="https://example.invalid/b.css">'
    )
    assert browse(loud.as_uri(), "--dump-dom")[1] == {"example.invalid"}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1280, 4600), (400, 7000)])
def test_the_whole_page_is_photographed(page: Path, width: int, height: int, dark: bool) -> None:
    name = f"page-{width}-{'dark' if dark else 'light'}"
    assert len(photograph(page, name, width, height, dark=dark)) > 50_000


@pytest.mark.parametrize(("part", "height"), [("failed", 700), ("checked", 900), ("charts", 1100), ("clauses", 1400)])
def test_parts_are_photographed(page: Path, part: str, height: int) -> None:
    alone = f"body > :not(#{part}) {{ display: none; }}"
    assert len(photograph(page, f"part-{part}", 1280, height, style=alone)) > 20_000


def test_filters_work_without_a_script(page: Path, tmp_path: Path) -> None:
    """A page on which a chapter was chosen shows fewer verdicts."""
    chosen = tmp_path / "chosen.html"
    text = page.read_text(encoding="utf-8")
    chosen.write_text(text.replace('id="chapter-GE"', 'id="chapter-GE" checked'), encoding="utf-8")
    alone = "body > :not(#checked) { display: none; }"
    every, some = (photograph(p, f"filter-{p.stem}", 1280, 900, style=alone) for p in (page, chosen))
    assert len(some) < 0.8 * len(every)

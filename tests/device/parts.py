"""What is run on a GPU: the jobs of each part of a session."""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from tempfile import mkdtemp

from .jobs import Job
from .source import ROOT

PYTHON, SMALL = sys.executable, ROOT / "fixtures" / "small"
PYTEST = (PYTHON, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider")
MADE = ("dense", "hybrid")  # small targets, of which a quantised one is made here
TOKENS, BLOCK = 15_000, 5_000  # of a campaign
TRIALS = 3  # of a benchmark: five of all parts would take eleven minutes, as reckoned
SPARE = 4.0  # minutes of a soak's part in which it serves nothing: it begins, waits for its last epochs, and judges
WORKERS = 4  # of a soak: the host judges most of the time, and one alone would not come through a deck in ten minutes
SANITIZERS = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*/compute-sanitizer")
SANITIZED = {  # by tool: what runs under it, and the variables that it needs
    "memcheck": ("test_gpu_attention test_gpu_recurrence test_gpu_convolution test_gpu_linear test_gpu_rows", True),
    "memcheck-decode": ("test_gpu_decoder", False),
    "racecheck-decode": ("test_gpu_decoder", False),
}


@dataclass(frozen=True, slots=True)
class Session:
    """Where a session runs, and where its files go; the minutes are those of the part that is asked for jobs."""

    scratch: Path
    device: str = "cuda"
    only: str = ""
    commit: str = ""
    minutes: float = 0.0

    def folder(self, name: str) -> Path:
        found = self.scratch / name
        found.mkdir(parents=True, exist_ok=True)
        return found


@dataclass(frozen=True, slots=True)
class Configuration:
    """A decoder that the device is qualified with."""

    name: str
    target: Path
    draft: Path
    options: tuple[str, ...]

    @property
    def flags(self) -> list[str | Path]:
        told: list[str | Path] = ["--target", self.target, "--draft", self.draft, "--dtype", "bfloat16"]
        return told + [part for option in self.options for part in ("--option", option)]


def configurations(session: Session) -> Iterator[Configuration]:
    """Dense and hybrid, as stored and quantised, with and without captured graphs on a GPU."""
    for kind in MADE:
        for form, target in (("bf16", SMALL / kind), ("nvfp4", narrow(session, kind))):
            for graphs in ("0", "1") if session.device == "cuda" else ("",):
                options = (f"device={session.device}", *([f"graphs={graphs}"] if graphs else []))
                name = f"{kind}-{form}{f'-graphs{graphs}' * bool(graphs)}"
                yield Configuration(name, target, SMALL / f"{kind}-dflash2", options)


def narrow(session: Session, kind: str) -> Path:
    """Where a small target lies with NVFP4 weights and an FP8 cache."""
    return session.folder("quantised") / f"{kind}-nvfp4"


def chosen(session: Session, jobs: Iterator[Job]) -> list[Job]:
    return [job for job in jobs if session.only in job.name]


def quantised(session: Session) -> list[Job]:
    """Quantised targets that are asked for, made once and not kept; one cut short leaves nothing in its place."""
    asked = {one.target for one in configurations(session) if session.only in one.name}
    make = '"$0" -m specqual.fixtures.quantised --target "$1" --out "$2" && mv "$2"/* "$3"'
    return [
        Job(
            f"quantise-{kind}",
            ["sh", "-c", make, PYTHON, SMALL / kind, mkdtemp(dir=session.scratch), narrow(session, kind)],
        )
        for kind in MADE
        if narrow(session, kind) in asked and not narrow(session, kind).exists()
    ]


def tests(session: Session) -> Iterator[Job]:
    for file in sorted((ROOT / "tests").glob("test_gpu_*.py")):
        if file.stem != "test_gpu_audit":  # which compiles for other devices
            yield Job(file.stem, [*PYTEST, file])


def kernels(session: Session) -> Iterator[Job]:
    yield Job("kernels", [PYTHON, "-m", "tests.device.kernels", "--out", session.folder("kernels")])


def profile(session: Session) -> Iterator[Job]:
    for one in configurations(session):
        report = session.folder("profile") / one.name
        command = [*PYTEST, ROOT / "conformance", "-n", "4", "--profile", "device", *one.flags, "--report", report]
        yield Job(one.name, command)


def bitwise(session: Session) -> Iterator[Job]:
    for seed, one in enumerate(configurations(session)):
        out = session.folder("bitwise") / f"{one.name}.json"
        sizes = {"tokens": TOKENS, "block": BLOCK, "seed": seed, "out": out}
        flags = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
        yield Job(one.name, [PYTHON, "-m", "tests.device.bitwise", *one.flags, *flags])


def bench(session: Session) -> Iterator[Job]:
    commit = ["--commit", session.commit] if session.commit else []
    command = [PYTHON, "-m", "benchmarks.gpu", "--out", session.folder("bench"), "--trials", str(TRIALS)]
    yield Job("bench", [*command, *commit])


def soak(session: Session) -> Iterator[Job]:
    report, options = session.folder("soak"), ("--option", f"device={session.device}")
    minutes = f"{max(session.minutes - SPARE, session.minutes / 4):g}"
    command = [PYTHON, "-m", "specqual", "soak", "--minutes", minutes, "--workers", str(WORKERS), "--report", report]
    yield Job("soak", [*command, *options])


def sanitize(session: Session) -> Iterator[Job]:
    tool = sanitizer()
    for name, (files, uncached) in SANITIZED.items():
        names = [ROOT / "tests" / f"{file}.py" for file in files.split()]
        if tool is None:
            yield Job(name, [PYTHON, "-c", "raise SystemExit('compute-sanitizer: not found')"])
            continue
        # Torch's own cache of memory would hide what lies behind the end of a tensor.
        variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if uncached else {}
        command = [tool, "--tool", name.split("-")[0], "--error-exitcode", "9", *PYTEST, "-x", *names]
        yield Job(name, command, variables)


def sanitizer() -> str | None:
    """compute-sanitizer in PATH or in a CUDA toolkit."""
    folders = [path for pattern in SANITIZERS for path in sorted(glob(pattern), reverse=True)]
    return next(filter(None, map(lambda path: shutil.which("compute-sanitizer", path=path), [None, *folders])), None)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a session: its jobs, how many of them run at a time, and its minutes."""

    jobs: Callable[[Session], Iterator[Job]]
    width: int
    minutes: float
    needs: Callable[[Session], list[Job]] = lambda _: []  # what must be made before


PARTS = {
    "tests": Part(tests, 6, 3.0),
    "kernels": Part(kernels, 1, 6.0),
    "profile": Part(profile, 4, 5.0, quantised),
    "bitwise": Part(bitwise, 8, 4.0, quantised),
    "bench": Part(bench, 1, 7.0),
    "sanitize": Part(sanitize, 3, 2.0),
    "soak": Part(soak, 1, 14.0),
}

"""What a run was made with: commit and versions of the code, digests of its sources and of checkpoints."""

import platform
import subprocess
from functools import cache
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import specqual

SUITE = ("contract", "reference", "fixtures", "conformance")  # what verdicts about any decoder follow from
READ = frozenset({".py", ".txt", ".j2"})


def commit() -> str | None:
    """The commit of the checkout that this package runs from, or None where it is not one."""
    try:
        found = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


def versions() -> dict[str, str]:
    found = {"specqual": specqual.__version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "safetensors", "tokenizers", "hypothesis", "pytest", "transformers", "dflash"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def sources(*packages: str) -> str:
    """The SHA-256 of the code of these packages: a commit says nothing of changes since, or of an installed package."""
    found = sha256()
    for name in packages:
        origin = getattr(find_spec(f"specqual.{name}"), "origin", None)
        assert origin is not None, name
        folder = Path(origin).parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in READ):
            found.update(f"{name}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def fingerprint(*directories: Path) -> str:
    """Eight hexadecimal digits that tell checkpoints apart: by their configurations and weights, whatever they are
    called."""
    found = sha256()
    for directory in directories:
        for path in sorted(path for path in directory.iterdir() if path.suffix in (".json", ".safetensors")):
            with path.open("rb") as file:
                found.update(path.name.encode() + b"\0" + file_digest(file, "sha256").digest())
    return found.hexdigest()[:8]

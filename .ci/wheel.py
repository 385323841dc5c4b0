"""Build the wheel, install it beside decoy folders and run the quick profile and one mutant from there.

The decoys are named like folders of this repository. If the installed suite imported one of them, it would raise.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECOYS = ("adapters", "decoder", "tests", "contract", "reference", "conformance", "fixtures", "mutants")


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, env={**os.environ, **environment})


def main(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    empty = scratch / "empty"
    for decoy in DECOYS:
        (empty / decoy).mkdir(parents=True)
        (empty / decoy / "__init__.py").write_text(f"raise ImportError('the decoy {decoy} was imported')\n")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", scratch / "dist", ROOT, cwd=scratch)
    run(sys.executable, "-m", "virtualenv", "--quiet", scratch / "venv", cwd=scratch)
    python = scratch / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    (wheel,) = (scratch / "dist").glob("*.whl")
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=empty)
    run(python, "-m", "pytest", "--pyargs", "specqual.conformance", "--profile", "quick", "-q", cwd=empty)
    run(python.with_name("specqual"), "--help", cwd=empty)
    run(python.with_name("specqual"), "mutants", "--only", "M01b", "--workers", "1", cwd=empty)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() / "wheel")

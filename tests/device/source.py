"""The source tree as if it were installed: links under the import names, and the entry points."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def laid_out(folder: Path) -> Path:
    """Write into an empty folder what an installation would, as links to the folders at the top; returns the folder.

    With it in front of everything in PYTHONPATH (see `environment`) `import specqual.decoder` finds decoder/, and
    pytest finds the plugin.
    """
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, places = told["project"], told["tool"]["setuptools"]["package-dir"]
    (folder / "specqual").mkdir(parents=True)
    for path in (ROOT / places["specqual"]).iterdir():
        (folder / "specqual" / path.name).symlink_to(path)
    for name, place in places.items():
        if name.count(".") == 1:
            (folder / "specqual" / name.partition(".")[2]).symlink_to(ROOT / place)
    facts = folder / f"specqual-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: specqual\nVersion: {project['version']}\n")
    lines = [f"[{group}]\n" + entries(points) for group, points in project["entry-points"].items()]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    return folder


def entries(points: Mapping[str, str]) -> str:
    return "".join(f"{name} = {place}\n" for name, place in points.items())


def environment(folder: Path) -> dict[str, str]:
    """Variables for a Python that takes the package from there, and neither from the current folder nor elsewhere."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONSAFEPATH": "1",  # the folder `specqual` at the top holds only a part of the package
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }

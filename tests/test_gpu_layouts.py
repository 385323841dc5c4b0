"""Attention goes through one kind of instructions for every number of tiles, on SM90 and SM120; no GPU is needed."""

import os
import subprocess
import sys

from . import interpreter  # noqa: F401 - skips where there is no Triton

SCRIPT = """
import re
from specqual.decoder.gpu import attention, audit
for arch in ("sm_90a", "sm_120a"):
    *tiles, _ = attention.cases("bf16", "bf16", 3, 1, 64, False)
    for case in tiles:
        made = audit.compiled(case, arch).asm["ttgir"]
        print(case.name.split(", ")[1], *sorted(set(re.findall(r"#ttg.nvidia_mma<[^>]*>", made))), sep="|")
"""


def test_every_tile_of_queries_lies_alike_in_its_registers() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split("|", 1) for line in done.stdout.splitlines()]
    assert [name for name, _ in lines] == ["1 tiles", "2 tiles"] * 2
    assert len({layout for _, layout in lines}) == 1 and "versionMajor = 2" in lines[0][1]

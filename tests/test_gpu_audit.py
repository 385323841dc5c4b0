"""`specqual audit`: kernels compiled without a GPU; where nothing interprets them, in a process of their own."""

import os
import subprocess
import sys

import pytest

from . import interpreter

from specqual.cli import main  # isort: skip

SCRIPT = """
from dataclasses import replace
from specqual.cli import main
from specqual.decoder.gpu import audit, dense, heads
print("quick divisions:", *(audit.compiled(case, "sm_90a").asm["ptx"].count("div.full") for case in heads.AUDIT[:2]))
print(main(["audit", "--only", "nvfp4 block-scaled"]))
print(main(["audit", "--arch", "sm_90a", "--only", "block-scaled"]))
wide = replace(dense.AUDIT[0], constants=dense.AUDIT[0].constants | {"M": 128, "N": 128, "K": 64}, warps=2, stages=2)
deep = replace(dense.AUDIT[0], stages=8)
other = replace(dense.AUDIT[0], mma="mxf4nvf4")
for case in (wide, deep, other, dense.AUDIT[0]):
    print(audit.look(case, "sm_120a").faults)
few = replace(dense.AUDIT[0], warps=2)
print(audit.mixed([(case, audit.look(case, "sm_90a")) for case in (few, dense.AUDIT[1])]))
print(audit.mixed([(case, audit.look(case, "sm_90a")) for case in dense.AUDIT[:2]]))
"""


@pytest.fixture(scope="module")
def said() -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_fp4_kernel_compiles_to_block_scaled_instructions(said: str) -> None:
    assert "kind::mxf4nvf4.block_scale" in said
    assert "1 kernels compiled for sm_120a, 0 faults\n0\n" in said


def test_codes_are_divided_by_their_scale_with_one_rounding(said: str) -> None:
    """A plain division is one of CUDA's quick ones, 2 ulp off; two of them, by a head's size, are exact."""
    assert "quick divisions: 2 2\n" in said


def test_what_does_not_compile_for_an_architecture_is_named(said: str) -> None:
    assert "not for sm_90a: nvfp4 block-scaled" in said
    assert "0 kernels compiled for sm_90a, 0 faults\n0\n" in said


def test_spills_shared_memory_and_the_wrong_matrix_instruction_are_faults(said: str) -> None:
    wide, deep, other, sound = said.splitlines()[-6:-2]
    assert "spills" in wide
    assert "shared memory" in deep
    assert "matrix instructions" in other
    assert sound == "()"


def test_two_kinds_of_instructions_at_the_widths_of_one_tile_are_a_fault(said: str) -> None:
    mixed, alike = said.splitlines()[-2:]
    assert "mixes" in mixed and "wgmma" in mixed and "'mma." in mixed
    assert alike == "[]"


def test_a_name_that_no_kernel_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--only", "nothing"]) == 2
    assert "only: no kernel has 'nothing' in its name" in capsys.readouterr().err


@pytest.mark.skipif(interpreter.DEVICE != "cpu", reason="nothing is interpreted where there is a GPU")
def test_interpreted_kernels_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--only", "embedding"]) == 2
    assert "TRITON_INTERPRET: kernels that were made for the interpreter cannot be compiled" in capsys.readouterr().err


def test_without_triton_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("specqual.decoder.gpu.need.find_spec", lambda name: None)
    assert main(["audit"]) == 2
    assert "triton: is not installed" in capsys.readouterr().err

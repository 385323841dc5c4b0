"""Ahead-of-time compilation of every kernel for an architecture that need not be there, and what it may not cost.

A Case is one kernel as it is launched: the types of its arguments, its constants and its launch options. Compiling
needs no GPU; `ptxas` and `cuobjdump` come with Triton.
A module of this package that holds kernels names its cases AUDIT.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

LARGEST_SHARED = {"sm_90a": 232_448, "sm_120a": 101_376}  # bytes of shared memory that a block may have
LARGEST_REGISTERS = 255
ARCHITECTURES = {"sm_90a": 90, "sm_120a": 120}
MMA = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)[\w.:]*")


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel as it is launched.

    `kernel` is what @triton.jit made; `signature` names every argument that is no constant: "*bf16", "i32", "fp32",
    with ":16" behind it if it is a multiple of 16 (a pointer: aligned to 16 bytes). `mma` must be part of the name of
    every matrix instruction; `only` names the architectures that it compiles for, all if empty. Cases of one `family`
    add in one order, so but for the number of rows their matrix instructions must be the same.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 3
    fusion: bool = True
    mma: str | None = None
    only: tuple[str, ...] = ()
    family: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a compiled case costs, and what is wrong with it."""

    name: str
    shared: int  # bytes
    registers: int  # of a thread
    spilled: int  # bytes of stack and local memory of a thread
    mma: tuple[str, ...]  # the kinds of matrix instructions
    faults: tuple[str, ...]


def compiled(case: Case, arch: str) -> Any:
    """Compile one case for an architecture; Triton's own error if that cannot be done."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fn, names = case.kernel, case.kernel.arg_names
    if not isinstance(fn, triton.runtime.JITFunction):
        raise ValueError("TRITON_INTERPRET: kernels that were made for the interpreter cannot be compiled")
    signature = {name: case.signature.get(name, "constexpr").removesuffix(":16") for name in names}
    even = [name for name, kind in case.signature.items() if kind.endswith(":16")]
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in even}
    options = {"num_warps": case.warps, "num_stages": case.stages, "enable_fp_fusion": case.fusion}
    source = ASTSource(fn, signature, dict(case.constants), aligned)
    return triton.compile(source, target=GPUTarget("cuda", ARCHITECTURES[arch], 32), options=options)


def look(case: Case, arch: str) -> Found:
    """Compile one case, and compare what it costs with what it may cost."""
    made = compiled(case, arch)
    registers, spilled = resources(made.asm["cubin"])
    kinds = tuple(sorted(set(MMA.findall(made.asm["ptx"]))))
    shared: int = made.metadata.shared
    faults = list[str]()
    if shared > LARGEST_SHARED[arch]:
        faults.append(f"shared memory: {shared} bytes, and {LARGEST_SHARED[arch]} are there")
    if registers > LARGEST_REGISTERS:
        faults.append(f"registers: {registers}, and {LARGEST_REGISTERS} are there")
    if spilled:
        faults.append(f"spills: {spilled} bytes")
    if case.mma is not None and (not kinds or any(case.mma not in kind for kind in kinds)):
        faults.append(f"matrix instructions: {', '.join(kinds) or 'none'}, and they must be {case.mma}")
    return Found(case.name, shared, registers, spilled, kinds, tuple(faults))


def mixed(looked: Iterable[tuple[Case, Found]]) -> list[str]:
    """The families, with what they mix, whose cases do not run one kind of matrix instruction."""
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for case, found in looked:
        if case.family is not None:
            same = tuple(re.sub(r"(m\d+)n\d+(k\d+)", r"\1\2", short(kind)) for kind in found.mma)
            kinds.setdefault(case.family, set()).add(same)
    return [f"{family}: mixes {sorted(found)}" for family, found in kinds.items() if len(found) > 1]


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and the bytes of stack and local memory that it spills into."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = [dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", line)) for line in said.splitlines() if "REG:" in line]
    return max(int(one["REG"]) for one in used), sum(int(one["STACK"]) + int(one["LOCAL"]) for one in used)


def short(kind: str) -> str:
    """The name of a matrix instruction without what is the same in all of them."""
    return kind.replace(".sync.aligned", "").replace(".row.col", "")


def cases() -> list[Case]:
    """All cases of the modules of this package, by the name of the module."""
    names = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]))
    modules = [import_module(f"{__package__}.{name}") for name in names]
    return [case for module in modules for case in getattr(module, "AUDIT", ())]

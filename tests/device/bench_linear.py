"""The linear kernels at the sizes of the geometries: random weights, of which every call streams another copy."""

from typing import Any

import torch
from torch import Tensor

from specqual.decoder.gpu import dense, fp8, fp8_rows, nvfp4, nvfp4_block, nvfp4_layout
from specqual.decoder.gpu.shapes import MODULES, Module
from specqual.decoder.gpu.splits import Workspace, of_size, sizes_of
from specqual.decoder.gpu.tiles import Tile, tile_of, width_of

from .bench import Bench, Trial, error

KEPT = 2**28  # bytes of weights that calls take turns with: more than any cache holds
PART = 1024  # outputs that are compared with the definition
WEIGHT_BYTES = {"dense": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
SLACK = {"dense": 2**-8, "fp8": 2**-8, "nvfp4": 2**-8}
KERNELS: dict[str, Any] = {"dense": dense, "fp8": fp8, "nvfp4": nvfp4}
FINITE = torch.tensor([byte for byte in range(256) if byte & 127 != 127], dtype=torch.uint8)


def rows_of(rows: int, inputs: int) -> Tensor:
    """The first rows of always the same ones."""
    source = torch.Generator("cuda").manual_seed(1)
    return torch.randn(256, inputs, device="cuda", generator=source).bfloat16()[:rows].contiguous()


def room(module: Module, rows: int, tile: Tile) -> Workspace:
    return of_size(torch.device("cuda"), *sizes_of(module.outputs, rows, tile, width_of(rows)))


def bytes_of(shape: tuple[int, ...], source: torch.Generator) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda", generator=source)


def weight_of(kind: str, module: Module, seed: int) -> Any:
    source, outputs, inputs = torch.Generator("cuda").manual_seed(seed), module.outputs, module.inputs
    if kind == "dense":
        return torch.randn(outputs, inputs, device="cuda", generator=source, dtype=torch.bfloat16)
    if kind == "fp8":
        codes = FINITE.cuda()[bytes_of((outputs, inputs), source).int() % len(FINITE)]
        return fp8.lay(codes.view(torch.float8_e4m3fn), torch.tensor(0.01, device="cuda"))
    padded, chunks = -(-outputs // nvfp4_layout.ROWS) * nvfp4_layout.ROWS, -(-inputs // nvfp4_layout.CHUNK)
    words = bytes_of((chunks, padded, 64), source).view(torch.int32)
    scales = (bytes_of((chunks, 2, padded * 4), source) % 48 + 136).view(torch.int32)
    outer = torch.full((padded,), 0.01, device="cuda")
    return nvfp4_layout.Nvfp4(words, scales, outer, outputs, inputs)


def part_of(kind: str, weight: Any, outputs: int) -> Any:
    """The first outputs of a weight."""
    if kind == "dense":
        return weight[:outputs]
    if kind == "fp8":
        return fp8.Fp8(weight.words[:, :outputs], weight.scale[:outputs], outputs, weight.inputs)
    scales = weight.scales[:, :, :outputs]
    return nvfp4_layout.Nvfp4(weight.words[:, :outputs], scales, weight.outer[:outputs], outputs, weight.inputs)


HELD: dict[tuple[str, Module], list[Any]] = {}


def weights_of(kind: str, module: Module) -> list[Any]:
    """Copies of a module's weight; only those of one module are held at a time."""
    if (kind, module) not in HELD:
        HELD.clear()
        size = int(module.outputs * module.inputs * WEIGHT_BYTES[kind])
        HELD[kind, module] = [weight_of(kind, module, seed) for seed in range(max(2, -(-KEPT // size)))]
    return HELD[kind, module]


def trial(kind: str, module: Module, rows: int, tile: Tile | None = None) -> Trial:
    tile = tile or tile_of(module.outputs, module.inputs, kind)
    kernel, weights, x = KERNELS[kind], weights_of(kind, module), rows_of(rows, module.inputs)
    out = torch.empty(rows, module.outputs, dtype=torch.bfloat16, device="cuda")
    space = room(module, rows, tile)
    part = min(PART, module.outputs)

    def exact(found: Tensor) -> float:
        expected = kernel.linear_torch(x.double(), part_of(kind, weights[0], part))
        return error(found[:, :part], expected, SLACK[kind])

    size = module.outputs * module.inputs
    return Trial(
        lambda i: kernel.linear(x, weights[i], out=out, workspace=space, tile=tile),
        exact,
        int(size * WEIGHT_BYTES[kind]) + 2 * rows * (module.inputs + module.outputs),
        2.0 * rows * size,
        len(weights),
    )


def bench(kind: str, module: Module) -> Bench:
    return Bench(f"{kind} {module.name} {module.outputs}x{module.inputs}", lambda rows: trial(kind, module, rows))


def fp8_trial(module: Module, rows: int) -> Trial:
    source, x = torch.Generator("cuda").manual_seed(0), rows_of(rows, module.inputs)
    raw = [FINITE.cuda()[bytes_of((module.outputs, module.inputs), source).int() % len(FINITE)] for _ in range(4)]
    weights, scale = (
        [codes.view(torch.float8_e4m3fn) for codes in raw],
        torch.full((module.outputs,), 0.01, device="cuda"),
    )
    given, part = fp8_rows.quantise(x), min(PART, module.outputs)
    found = fp8_rows.quantise_torch(x)
    assert torch.equal(given.scales, found.scales) and torch.equal(given.codes.float(), found.codes.float())
    out = torch.empty(rows, module.outputs, dtype=torch.bfloat16, device="cuda")
    space = room(module, rows, tile_of(module.outputs, module.inputs, "fp8 x fp8"))
    return Trial(
        lambda i: fp8_rows.linear(given, weights[i], scale, out=out, workspace=space),
        lambda found: error(
            found[:, :part], fp8_rows.linear_torch(given, weights[0][:part], scale[:part], dtype=torch.float64), 2**-8
        ),
        module.outputs * module.inputs + rows * (module.inputs + 2 * module.outputs),
        2.0 * rows * module.outputs * module.inputs,
        len(weights),
    )


def block_trial(module: Module, rows: int) -> Trial:
    source, x = torch.Generator("cuda").manual_seed(0), rows_of(rows, module.inputs)
    input_scale, part = torch.full((1,), 1 / 512, device="cuda"), min(PART, module.outputs)
    weights = [
        nvfp4_block.Blocked(
            bytes_of((module.outputs, module.inputs // 2), source),
            (bytes_of((module.outputs, module.inputs // 16), source) % 120 + 1).view(torch.float8_e4m3fn),
            torch.full((module.outputs,), 0.01, device="cuda"),
            input_scale,
        )
        for _ in range(4)
    ]
    given = nvfp4_block.quantise(x, input_scale)
    expected = nvfp4_block.quantise_torch(x, input_scale)
    assert torch.equal(nvfp4_block.decoded(*given, torch.float32), nvfp4_block.decoded(*expected, torch.float32))

    def exact(found: Tensor) -> float:
        first = weights[0]
        cut = nvfp4_block.Blocked(first.codes[:part], first.scales[:part], first.outer[:part], input_scale)
        return error(found[:, :part], nvfp4_block.linear_torch(given, cut, dtype=torch.float64), 2**-8)

    return Trial(
        lambda i: nvfp4_block.linear(given, weights[i]),
        exact,
        int(module.outputs * module.inputs * 0.5625 + rows * (module.inputs * 0.5625 + 2 * module.outputs)),
        2.0 * rows * module.outputs * module.inputs,
        len(weights),
    )


ATTENTION = MODULES[0]
GATE_UP = next(module for module in MODULES if module.name == "27B gate and up")
BENCH = (
    *(bench(kind, module) for module in MODULES for kind in module.kinds),
    Bench("fp8 x fp8 27B attention in", lambda rows: fp8_trial(ATTENTION, rows)),
    Bench("nvfp4 x nvfp4 27B gate and up", lambda rows: block_trial(GATE_UP, rows), least=(12, 0)),
)

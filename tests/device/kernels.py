"""Every kernel on the device at hand: right, bit for bit independent of other rows, and how fast.

    python -m tests.device.kernels [--only TEXT] [--out DIR] [--sweep KIND [--rows N]]

Prints a table and writes kernels.json anew after each kernel. Status 1 if one is wrong, not invariant, or fails. Each
time is the median of five replays of a graph of many launches that take turns with enough copies of the weights to miss
every cache. `--sweep` times other tiles for the modules of one format instead.
"""

import argparse
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch

from specqual.contract import Unsupported
from specqual.decoder.gpu import need

from .bench import Bench, Trial

LAUNCHES = 64  # in a graph, at least
TRIALS = 5
PROGRAMS = ((64, 4), (128, 4), (128, 8), (256, 8))
"""Outputs and warps of the programs that a sweep tries, and the splits, and how many programs there may be in all."""
SPLITS, MANY = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16), (120, 2200)


def seconds(trial: Trial) -> float:
    """Of one launch: the median of five replays."""
    count = max(LAUNCHES, trial.copies)
    trial.run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in range(count):
            trial.run(launch % trial.copies)
    graph.replay()
    return statistics.median(timed(graph.replay) for _ in range(TRIALS)) / count


def timed(work: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def copy_bandwidth() -> float:
    """Bytes read and written per second by a copy of a gigabyte."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * 2**30 / statistics.median(timed(lambda: target.copy_(source)) for _ in range(TRIALS))


def different(bench: Bench) -> list[int]:
    """The numbers of rows with which a row's bits are not those it has among `most`."""
    together = bench.make(bench.most).run(0).clone()
    return [rows for rows in bench.alike if not torch.equal(bench.make(rows).run(0), together[:rows])]


def benches() -> Iterator[Bench]:
    """All of them: BENCH of each bench_ module beside this one."""
    for module in iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("bench_"):
            yield from import_module(f"{__package__}.{module.name}").BENCH


def tried(bench: Bench, bandwidth: float) -> tuple[bool, list[dict[str, Any]]]:
    """Whether a kernel is right and invariant, and a record for each number of rows."""
    records, apart = list[dict[str, Any]](), different(bench)
    for rows in bench.rows:
        trial = bench.make(rows)
        error = trial.error(trial.run(0))
        time = seconds(trial)
        speed = trial.bytes / time
        records.append(
            {
                "name": bench.name,
                "rows": rows,
                "us": time * 1e6,
                "GB/s": speed / 1e9,
                "of copy": speed / bandwidth,
                "TFLOPS": trial.flops / time / 1e12,
                "error": error,
            }
        )
        speeds = f"{speed / 1e9:6.0f} GB/s {speed / bandwidth:6.1%} of copy {trial.flops / time / 1e12:7.1f} TFLOPS"
        wrong = " WRONG" if not error <= 1 else ""
        print(f"{bench.name:48} {rows:4} rows {time * 1e6:9.2f} us {speeds}  error {error:.3f}{wrong}", flush=True)
    if apart:
        print(f"{bench.name:48} NOT INVARIANT at rows {apart}", flush=True)
    return not apart and all(record["error"] <= 1 for record in records), records


def sweep(kind: str, only: str, rows: int) -> None:
    """Times of other tiles, best first, for each module of a format."""
    from specqual.decoder.gpu.shapes import of_kind
    from specqual.decoder.gpu.tiles import STAGES, WIDTHS, Tile, tile_of, width_of

    from .bench_linear import trial

    usual = STAGES[kind][WIDTHS.index(width_of(rows))]
    for module in of_kind(kind):
        if only not in module.name:
            continue
        found, own = list[tuple[float, str]](), tile_of(module.outputs, module.inputs, kind)
        for (outputs, warps), split, stages in product(PROGRAMS, SPLITS, (usual, usual + 2)):
            if module.inputs // split < 256 or not MANY[0] <= -(-module.outputs // outputs) * split <= MANY[1]:
                continue
            name = f"{outputs} outputs, {split} splits, {warps} warps, {stages} stages"
            try:
                one = trial(kind, module, rows, Tile(outputs, split, (warps,) * 4, (stages,) * 4))
                like = trial(kind, module, rows, replace(own, splits=split)).run(0)
                alike = "" if torch.equal(one.run(0), like) else ", other bits than the tile in use, split alike"
                found.append((seconds(one) * 1e6, name + alike))
            except Exception as error:  # too much shared memory, for one
                print(f"{module.name} {name}: {str(error)[:90]}", flush=True)
        print(f"{kind} {module.name} {module.outputs}x{module.inputs}, {rows} rows; now {own}")
        for time, name in sorted(found)[:8]:
            print(f"    {time:9.2f} us  {name}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="kernels with this text in their name")
    parser.add_argument("--out", type=Path, default=Path("."), help="where kernels.json goes")
    parser.add_argument("--sweep", choices=["dense", "fp8", "nvfp4"], help="time other tiles of one format")
    parser.add_argument("--rows", type=int, default=8, metavar="N", help="rows of tokens in a sweep (default: 8)")
    args = parser.parse_args()
    try:
        need.gpu()
    except Unsupported as error:
        print(error, file=sys.stderr)
        return 2
    capability = torch.cuda.get_device_capability()
    bandwidth = copy_bandwidth()
    device = f"{torch.cuda.get_device_name()}, sm_{capability[0]}{capability[1]}"
    print(f"{device}, copy {bandwidth / 1e9:.0f} GB/s", flush=True)
    if args.sweep:
        sweep(args.sweep, args.only, args.rows)
        return 0
    good, records, failed = True, list[dict[str, Any]](), dict[str, str]()
    for bench in benches():
        if args.only not in bench.name:
            continue
        if capability < bench.least:
            print(f"{bench.name:48} not run: needs sm_{bench.least[0]}{bench.least[1]}", flush=True)
            continue
        try:
            fine, found = tried(bench, bandwidth)
        except Exception as error:  # whatever it is, the kernels behind it are to run
            traceback.print_exc()
            fine, found = False, []
            failed[bench.name] = f"{type(error).__name__}: {error}"
            print(f"{bench.name:48} FAILED: {type(error).__name__}", flush=True)
        good, records = good and fine, records + found
        content = {"device": device, "copy GB/s": bandwidth / 1e9, "records": records, "failed": failed}
        (args.out / "kernels.json").write_text(json.dumps(content, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

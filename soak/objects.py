"""Objects of the decoder that pile up: the same traffic a second time must leave as many as it left the first time."""

import gc
from collections import Counter
from collections.abc import Iterable

import torch

from .bench import Bench
from .oracles import captures
from .serving import Traffic

SERVED = 6  # times at most, until nothing is captured


def census(decoders: Iterable[object]) -> Counter[str]:
    """How many objects there are of each class of these decoders' packages, and of tensors, once garbage is gone."""
    gc.collect()
    packages = {package(kind.__module__) for decoder in decoders for kind in type(decoder).__mro__} - {"builtins"}
    found = Counter[str]()
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is torch.Tensor or package(str(kind.__module__)) in packages:
            found[kind.__qualname__] += 1
    return found


def package(module: str) -> str:
    """What a module belongs to: specqual.decoder.pages to specqual.decoder, vllm.engine to vllm."""
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "specqual" else 1])


def objects(bench: Bench) -> None:
    """Serve a plan that asks for it once more, and count before and after. Whatever is remembered of requests and kept
    of prompts is then that of the same requests, however full a cache was, so not one object may be left over. A time
    in which a graph was captured does not count, as that stays: prompts that hit a prefix now may need another one."""
    if not bench.plan.counted:
        return
    decoder = bench.stage.decoder
    for _ in range(SERVED):
        captured, before = captures(decoder), census([decoder])
        Traffic(decoder, bench.plan, lambda what, about: None).run()
        if captures(decoder) == captured:
            break
    else:  # it never comes to rest, which is for the oracle of graphs to judge
        return
    bench.counts["times objects were counted"] += 1
    more = census([decoder]) - before
    if more:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(more.items()))
        requests = len(bench.plan.asked)
        bench.amiss.append(("objects", f"more than before the same {requests} requests: {told}", None))

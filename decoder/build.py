"""From a Setup to a configured decoder and its claims."""

from dataclasses import fields, replace

import torch

from specqual import __version__
from specqual.contract import (
    Claims,
    DraftFormat,
    Greedy,
    Kernels,
    Limits,
    Method,
    Request,
    Rule,
    Sampling,
    SeedContract,
    Setup,
    Unsupported,
)
from specqual.contract.checkpoint import Checkpoint, open_draft, open_target
from specqual.contract.config import LayerType, TargetConfig
from specqual.contract.errors import CheckpointError
from specqual.contract.requantised import in_nvfp4
from specqual.contract.schema import target_linears

from .attention import BACK_ENDS
from .block import BlockDrafter, load_drafter
from .counts import Counts
from .engine import Engine
from .flight import Turns
from .gpu import need
from .kernels import kernels_of
from .memory import Store
from .options import Options
from .pages import Pages
from .prefixes import Prefixes
from .propose import Ngram, Proposer
from .quantise import to_nvfp4
from .schedule import LONGEST_CHUNK
from .slots import Slots
from .span import Target
from .table import Table, is_table, load_table
from .target import Transformer, load_target
from .text import Text
from .tile import TILE, Tiling

RULES = (Rule.NONE, Rule.RATIO, Rule.ONE_HOT, Rule.SAMPLER_MATCH)
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
SELECTING = (Method.DFLASH2, Method.DFLASH_SELECTOR)
SPLIT = 1536  # inputs of a product from which on its bits depend on the number of threads, as measured
LOOKED_UP = 4  # K of prompt lookup where the setup names none


def make(setup: Setup) -> Engine:
    """Build the decoder that a Setup asks for; see Options for its own.

    A draft length without a drafter makes room for scripted drafts; Rule.NONE switches speculation off. Raises
    ValueError naming an unknown option or value, CheckpointError for a bad checkpoint, Unsupported for a rule that it
    does not have, and for a device, a package or memory that is not there.
    """
    options, dtype = Options.of(setup.options), DTYPES.get(setup.dtype or "float32")
    if dtype is None:
        raise ValueError(f"dtype: must be {', '.join(DTYPES)}, got {setup.dtype!r}")
    if setup.rule not in RULES:
        raise Unsupported(f"rule: this decoder has no {setup.rule} verification")
    if setup.draft is not None and options.ngram is not None:
        raise ValueError("ngram: excludes a draft checkpoint")
    checkpoint = None if is_table(setup.target) else open_target(setup.target)
    _fit_for(options, dtype)
    device = need.device_of(options.device)
    with need.room("target", "its weights, with the drafter's, do not fit into memory"):
        target, proposer = _models(setup, options, checkpoint, dtype, device)
    if options.selector_rows is not None and proposer is not None and proposer.method not in SELECTING:
        raise ValueError("selector_rows: this drafter has no selector")
    longest = 0 if setup.rule is Rule.NONE else _draft_length(setup.draft_length, proposer)
    file = setup.target / "tokenizer.json"
    text = Text(file) if file.exists() else None
    with need.room("pages", "pool and states do not fit into memory; ask for fewer pages, samples or prefixes"):
        store = _store(target, checkpoint, proposer, options, longest, dtype, device)
    rule, bitwise = setup.rule if longest else Rule.NONE, _bitwise(target, proposer, options)
    claims = Claims(
        engine="specqual.decoder",
        version=__version__,
        rule=rule,
        method=proposer.method if proposer is not None else Method.SCRIPTED if longest else Method.NONE,
        greedy=Greedy(bitwise=bitwise),
        sampling=_honoured(text is not None),
        seed=_seed_contract(rule, options) if bitwise else SeedContract.NONE,
        limits=Limits(target.vocab_size, target.max_context, longest, options.samples, target.eos_ids),
        dtype=setup.dtype or "float32",
        attention=options.attention,
        device=options.device,
        threads=torch.get_num_threads(),
        weight_format=_weight_format(checkpoint),
        draft_format=_draft_format(proposer, options),
        kv_format="fp8" if checkpoint is not None and checkpoint.quantisation.kv_scales else "dense",
    )
    prefixes = Prefixes(store, options.prefixes)
    kernels, counts = kernels_of(target.tiling) if isinstance(target, Transformer) else Kernels(), Counts()
    judge, turns = None, None
    if device is not None:
        from .gpu.judging import DeviceJudge
        from .gpu.kernels import kernels_of as device_kernels

        kernels = device_kernels(device, dtype)
        judge = None if checkpoint is None else DeviceJudge(max(1, longest), device)  # a table stays on the host
    if device is not None and options.captures:
        target, proposer, turns = _captured(target, proposer, store, counts, options.captured, device)
    told = text, options.policies, options.remembered, kernels, counts, judge, turns
    return Engine(target, proposer, store, prefixes, claims, *told)


def _fit_for(options: Options, dtype: torch.dtype) -> None:
    """ValueError for what a device does not have: it would be claimed. Unsupported for a package that is missing."""
    if options.captures and (options.device == "cpu" or options.attention != "own"):
        raise ValueError(f"graphs: must be 0 on device {options.device} with attention {options.attention}, got 1")
    if options.attention == "flash":
        need.flash(options.device, dtype)
    if options.device == "cpu":
        return
    if dtype is torch.float64:
        raise ValueError(f"dtype: must be float32 or bfloat16 on device {options.device}, got float64")
    if options.invariant != 1:
        raise ValueError(f"invariant: must be 1 on device {options.device}, got {options.invariant}")


def _models(
    setup: Setup,
    options: Options,
    checkpoint: Checkpoint[TargetConfig] | None,
    dtype: torch.dtype,
    device: torch.device | None,
) -> tuple[Target, Proposer | None]:
    drafts = setup.rule is not Rule.NONE
    lookup = None
    if drafts and options.ngram is not None:
        lookup = Ngram(LOOKED_UP if setup.draft_length is None else setup.draft_length, options.ngram)
    if checkpoint is None:
        if drafts and setup.draft is not None:
            raise CheckpointError("target", "is a table and has no hidden states for a drafter to read")
        return load_table(setup.target), lookup
    drafter = open_draft(setup.draft, checkpoint.config) if drafts and setup.draft is not None else None
    taps = () if drafter is None else drafter.config.target_layer_ids
    if drafter is not None and options.draft_format == DraftFormat.NVFP4:
        drafter = in_nvfp4(drafter, to_nvfp4, device or "cpu")
    if device is not None:
        from .gpu import drafter as gpu_drafter
        from .gpu import target as gpu_target
        from .gpu.attention_backends import BACK_ENDS as THEIRS

        there = gpu_target.load_target(checkpoint, dtype, taps, device, THEIRS[options.attention])
        return there, lookup if drafter is None else gpu_drafter.load_drafter(drafter, there)
    how = Tiling(TILE if options.invariant else None), BACK_ENDS[options.attention]
    target = load_target(checkpoint, dtype, taps, *how)
    return target, lookup if drafter is None else load_drafter(drafter, target)


def _captured(
    target: Target, proposer: Proposer | None, store: Store, counts: Counts, most: int, device: torch.device
) -> tuple[Target, Proposer | None, Turns | None]:
    """The same models with graphs for their passes over this store, and for whole rounds of them."""
    from .gpu.drafter import DeviceDrafter
    from .gpu.graphs import Graphs
    from .gpu.target import DeviceTarget
    from .gpu.turn import Turn, WholeRounds

    if not isinstance(target, DeviceTarget):  # a table has no passes
        return target, proposer, None
    graphs = Graphs(device, store, counts, most)
    target = replace(target, passes=graphs)
    if proposer is None:
        return target, None, WholeRounds(Turn(target, None, store), graphs)
    if not isinstance(proposer, DeviceDrafter):
        return target, proposer, None
    proposer = replace(proposer, target=target)
    return target, proposer, WholeRounds(Turn(target, proposer, store), graphs)


def _bitwise(target: Target, proposer: Proposer | None, options: Options) -> bool:
    """Whether a row's bits depend on its request alone: a table's do, and those of the kernels on a device, unless
    attention is a library's."""
    if not isinstance(target, Transformer):
        return isinstance(target, Table) or options.attention == "own"
    longest = max(target.longest_product, proposer.longest_product if isinstance(proposer, BlockDrafter) else 0)
    settled = torch.get_num_threads() == 1 or longest < SPLIT
    return settled and options.attention == "own" and bool(options.invariant)


def _draft_length(asked: int | None, proposer: Proposer | None) -> int:
    longest = 0 if proposer is None else proposer.draft_length
    if asked is not None and asked < 0:
        raise ValueError(f"draft_length: must be at least 0, got {asked}")
    if asked is not None and proposer is not None and asked > longest:
        raise ValueError(f"draft_length: this drafter makes at most {longest} drafts, got {asked}")
    return longest if asked is None else asked


def _store(
    target: Target,
    checkpoint: Checkpoint[TargetConfig] | None,
    proposer: Proposer | None,
    options: Options,
    longest: int,
    dtype: torch.dtype,
    device: torch.device | None,
) -> Store:
    streams = (*target.streams, *(proposer.streams if proposer is not None else ()))
    net = None if checkpoint is None else checkpoint.config.delta_net
    kinds = () if checkpoint is None else checkpoint.config.layer_types
    layers = tuple(index for index, kind in enumerate(kinds) if kind is LayerType.LINEAR)
    kept = min(options.samples, options.prefixes)  # states behind cached prefixes
    count, place = options.samples + kept, device or torch.device("cpu")
    if device is None:
        slots = Slots(net, layers, count, longest + 1, dtype)
    else:
        from .gpu.pools import DeviceSlots

        slots = DeviceSlots(net, layers, count, longest + 1, dtype, device)
    store = Store(Pages(streams, 0, place), slots, options.samples)
    most = store.most_pages(target.max_context, max(LONGEST_CHUNK, longest + 1))
    store.pages = Pages(streams, options.pages or options.samples * most, place)
    return store


def _seed_contract(rule: Rule, options: Options) -> SeedContract:
    """A selector that depends on neighbours changes drafts, and so, but for sampler-match, what a seed yields."""
    if rule in (Rule.NONE, Rule.SAMPLER_MATCH):
        return SeedContract.ALWAYS
    return SeedContract.EQUAL_DRAFT_LENGTHS if options.selector_rows is None else SeedContract.NONE


def _honoured(text: bool) -> frozenset[str]:
    names = {field.name for kind in (Sampling, Request) for field in fields(kind)} - {"sampling", "prompt"}
    return frozenset(names if text else names - {"stop_strings"})


def _draft_format(proposer: Proposer | None, options: Options) -> DraftFormat:
    """As asked where there is a drafter with weights."""
    return DraftFormat.STORED if proposer is None or isinstance(proposer, Ngram) else DraftFormat(options.draft_format)


def _weight_format(checkpoint: Checkpoint[TargetConfig] | None) -> str:
    if checkpoint is None:
        return "dense"
    kinds = {str(checkpoint.quantisation.format_of(name)) for name in target_linears(checkpoint.config)} - {"dense"}
    kinds = {"nvfp4-w4a16" if kind.startswith("nvfp4") else kind for kind in kinds}
    return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "dense"

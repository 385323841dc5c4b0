"""CKP: every tensor and key of a checkpoint is used or refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from specqual.conformance.chapter import clause
from specqual.conformance.drive import NotOffered, guarded, serve
from specqual.conformance.evidence import Case, Evidence
from specqual.conformance.generators import prompt
from specqual.conformance.lab import Lab
from specqual.conformance.mutate import CHANGES, DELETE, PERMUTE, Change, Tensors, changed, read_tensors
from specqual.contract import Decoder, Inspectable, Request, Sampling, Scoring
from specqual.contract.checkpoint import LEFT_OUT, open_draft
from specqual.contract.errors import CheckpointError
from specqual.contract.keys import read_json

Look = Callable[[Decoder], Any]
ACTIVATION_SCALES = (".input_scale", ".input_global_scale")
CACHE_SCALES = (".k_scale", ".v_scale")
SHAPING = ("block_size", "is_causal", "mask_token_id", "target_layer_ids")


def files_of(lab: Lab, which: str) -> Path:
    """The directory of the target or the drafter; NotOffered where it holds no tensors."""
    found: Path | None = getattr(lab.run.setup, which)
    if found is None:
        raise NotOffered("there is no drafter checkpoint")
    if not list(found.glob("*.safetensors")):
        raise NotOffered("the target has no tensors")
    return found


def look_at_drafter(lab: Lab) -> Look:
    """What a drafter's tensors show in: proposals, q and the context that is kept."""
    temperature = 1.0 if lab.honours("temperature") else 0.0
    ids = prompt(lab, lab.random("CKP"), 9)
    endless = lab.honours("ignore_eos")  # what has ended cannot be inspected
    request = Request(prompt=ids, max_tokens=6, sampling=Sampling(temperature=temperature), seed=1, ignore_eos=endless)
    probe = Request(prompt=ids, max_tokens=6, ignore_eos=endless)

    def look(decoder: Decoder) -> Any:
        seen: list[Any] = [[(r.proposals, r.q) for r in serve(decoder, [request])[0].rounds or ()]]
        if isinstance(decoder, Inspectable):
            request_id = decoder.submit(probe)
            decoder.step()
            tensors = decoder.inspect(request_id).tensors
            seen += [(name, tensors[name].tolist()) for name in sorted(tensors) if name.startswith("draft.")]
            decoder.cancel(request_id)
        return seen

    return look


def look_at_target(lab: Lab) -> Look:
    """What a target's tensors show in: scores of a given sequence, or the state behind it."""
    chance = lab.random("CKP")
    ids, output = prompt(lab, chance, 5), prompt(lab, chance, 5)

    def look(decoder: Decoder) -> Any:
        if isinstance(decoder, Scoring):
            return decoder.score(ids, output).logprob
        request_id = decoder.submit(Request(prompt=ids, max_tokens=4, ignore_eos=lab.honours("ignore_eos")))
        decoder.step()
        assert isinstance(decoder, Inspectable)
        tensors = decoder.inspect(request_id).tensors
        decoder.cancel(request_id)
        return [(name, tensors[name].tolist()) for name in sorted(tensors)]

    return look


def tried(lab: Lab, which: str, directory: Path, look: Look, before: Any, case: Case) -> Case:
    """Build the decoder on a changed copy: what it raised, or whether what it does has changed."""
    raised, effect = None, None
    try:
        decoder = lab.build(**{which: directory})
        try:
            effect = guarded("a changed checkpoint", lambda: look(decoder)) != before
        finally:
            decoder.close()
    except Exception as error:
        raised = {"type": type(error).__name__, "text": str(error)}
    return case | {"raised": raised, "effect": effect}


def family(name: str) -> str:
    """A tensor's name without the numbers of its layer: what one line of a loader handles."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def expected(name: str, change: Change, activations: str) -> str:
    """What must come of a change. Scales that a file may leave out are no error when they are missing: those of a cache
    then have another value, and those of activations are read by nobody where activations are dense."""
    valid = change is DELETE or change.expect == "used"
    if valid and name.endswith(ACTIVATION_SCALES) and activations == "dense":
        return "unread"
    return "used" if valid and name.endswith(CACHE_SCALES) else change.expect


def each_tensor(lab: Lab, clause_id: str, which: str, look: Look) -> Evidence:
    """Change tensors one by one: one of each family deleted, one permuted, every other kind of change once, then more
    as the profile allows."""
    directory, chance = files_of(lab, which), lab.random(clause_id)
    names = [name for name in read_tensors(directory) if not name.startswith(tuple(LEFT_OUT))]
    every = [(name, change) for name in names for change in CHANGES]
    chance.shuffle(every)
    first = {(family(pair[0]) if pair[1] in (DELETE, PERMUTE) else "", pair[1].name): pair for pair in every}
    picked = list(dict.fromkeys([*first.values(), *every]))[: max(len(first), lab.effort.changes)]
    before = guarded("look", lambda: look(lab.decoder))
    cases: list[Case] = []
    for name, change in picked:

        def apply(tensors: Tensors, name: str = name, change: Change = change) -> None:
            change.apply(tensors, name)

        expect = expected(name, change, lab.claims.activation_format)
        case = {"what": f"{which}: {name} {change.name}", "field": name, "types": [], "expect": expect}
        with changed(directory, tensors=apply) as copy:
            cases.append(tried(lab, which, copy, look, before, case))
    return Evidence("changes", cases, notes={"tensors": len(names), "possible changes": len(every)})


@clause("CKP-1")
def test_the_method_in_use_is_the_checkpoints(lab: Lab) -> Evidence:
    draft = lab.run.setup.draft
    if draft is None:
        raise NotOffered("there is no drafter checkpoint")
    try:
        method = open_draft(draft).config.method
    except CheckpointError as error:
        raise NotOffered(f"the drafter is of no kind that the contract knows: {error}") from error
    what = f"method of {draft.name}"
    return Evidence("values", [{"what": what, "expected": str(method), "actual": str(lab.claims.method)}])


@clause("CKP-2")
def test_every_tensor_of_the_drafter_counts(lab: Lab) -> Evidence:
    return each_tensor(lab, "CKP-2", "draft", look_at_drafter(lab))


@clause("CKP-3")
def test_every_tensor_of_the_target_counts(lab: Lab) -> Evidence:
    return each_tensor(lab, "CKP-3", "target", look_at_target(lab))


@clause("CKP-4")
def test_keys_that_shape_the_drafter_have_no_default(lab: Lab) -> Evidence:
    directory, look, cases = files_of(lab, "draft"), look_at_drafter(lab), list[Case]()
    before = guarded("look", lambda: look(lab.decoder))

    def attempt(what: str, field: str, expect: str, change: Callable[[dict[str, Any]], None]) -> None:
        case = {"what": what, "field": field, "types": [], "expect": expect}
        with changed(directory, config=change) as copy:
            cases.append(tried(lab, "draft", copy, look, before, case))

    def without(key: str) -> Callable[[dict[str, Any]], None]:
        def change(keys: dict[str, Any]) -> None:
            for place in (keys, keys.get("dflash_config", {})):
                place.pop(key, None)
                if key == "is_causal":
                    place.pop("causal", None)

        return change

    for key in SHAPING:
        attempt(f"{key} missing", key, "refused", without(key))
    attempt("an unknown key", "no_such_key", "refused", lambda keys: keys.update(no_such_key=1))
    attempt("an unknown nested key", "no_such_key", "refused", lambda keys: _nested(keys).update(no_such_key=1))
    nested = _nested(read_json(directory / "config.json"))
    if "block_size" in nested:
        attempt(
            "another block_size at the top", "", "same", lambda keys: keys.update(block_size=nested["block_size"] + 1)
        )
    else:
        other = read_json(directory / "config.json")["block_size"]

        def move(keys: dict[str, Any]) -> None:
            keys["block_size"] = other + 1
            _nested(keys)["block_size"] = other

        attempt("block_size nested, and another one at the top", "", "same", move)
    return Evidence("changes", cases)


def _nested(keys: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = keys.setdefault("dflash_config", {})
    return nested


@clause("CKP-5")
def test_truncated_and_malformed_files_are_refused(lab: Lab) -> Evidence:
    directory, cases = files_of(lab, "target"), list[Case]()

    def attempt(what: str, field: str, change: Callable[[Path], None]) -> None:
        case = {"what": what, "field": field, "types": [], "expect": "refused"}
        with changed(directory, files=change) as copy:
            cases.append(tried(lab, "target", copy, lambda decoder: None, None, case))

    stored = sorted(directory.glob("*.safetensors"))[0].name

    def cut(share: float) -> Callable[[Path], None]:
        def change(copy: Path) -> None:
            content = (copy / stored).read_bytes()
            (copy / stored).write_bytes(content[: int(len(content) * share)])

        return change

    def overlong(copy: Path) -> None:
        content = (copy / stored).read_bytes()
        (copy / stored).write_bytes((2**62).to_bytes(8, "little") + content[8:])

    attempt("weights cut in half", stored, cut(0.5))
    attempt("weights cut within the header", stored, cut(0.0001))
    attempt("a header that claims 2^62 bytes", stored, overlong)
    attempt("no weights", stored, lambda copy: (copy / stored).unlink())
    attempt("no config.json", "config.json", lambda copy: (copy / "config.json").unlink())
    attempt("half a config.json", "config.json", lambda copy: (copy / "config.json").write_text('{"model_type": '))
    attempt("an unknown model_type", "model_type", _unknown_type)
    return Evidence("changes", cases)


def _unknown_type(copy: Path) -> None:
    text = (copy / "config.json").read_text(encoding="utf-8")
    kind = read_json(copy / "config.json")["model_type"]
    (copy / "config.json").write_text(text.replace(f'"{kind}"', '"no_such_model"'), encoding="utf-8")

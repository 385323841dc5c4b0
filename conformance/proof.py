"""A violation as a short proof: what was required, what was seen, why it cannot be right, how to see it again."""

from collections.abc import Mapping
from typing import Any

from .clauses import Clause
from .kinds.values import short
from .verdicts import Decision


def _ids(ids: Any, limit: int = 48) -> str:
    ids = list(ids)
    shown = " ".join(str(token) for token in ids[:limit])
    return f"[{shown}{' …' if len(ids) > limit else ''}]"


def _units(nats: float, envelope: float) -> str:
    if envelope <= 0:
        return f"{nats:.6g} nats, where exact arithmetic was claimed"
    return f"{nats:.6g} nats, {nats / envelope:.3g} times what rounding explains ({envelope:.3g})"


def _greedy(case: Mapping[str, Any], place: int | None) -> list[str]:
    lines = [f"Request    prompt {_ids(case['prompt'])}, max_tokens {case['max_tokens']}, greedy; {case['label']}"]
    lines += [f"Output     {_ids(case['output'])}"]
    if case.get("plain") is not None:
        lines += [f"Against    {_ids(case['plain'])} ({case['against']})"]
    if case.get("history"):
        lines += [f"History    {case['history']}"]
    if case.get("shrunk"):
        lines += [f"Shrunk     {case['shrunk']}"]
    if place is None or place >= len(case["argmax"]):
        return lines
    prefix = len(case["prompt"]) + place
    token, argmax = case["output"][place], case["argmax"][place]
    lines += [f"First      output token {place} (position {prefix}) is {token}; the target's best is {argmax}"]
    if case["logprob"][place] is not None:
        regret = case["best"][place] - case["logprob"][place]
        margin = case["best"][place] - case["runner_up"][place]
        lines += [f"Regret     {_units(regret, case['envelope'])}"]
        lines += [f"Margin     best to second best, in the reference: {_units(margin, case['envelope'])}"]
    if case.get("top"):
        top = " · ".join(f"{token} {logprob:.4f}" for token, logprob in case["top"])
        lines += [f"Reference  after these {prefix} tokens: {top}"]
    if token != argmax and case["logprob"][place] is not None and regret > case["envelope"]:
        lines += [
            f"Therefore  all tokens before are as emitted, so the target was asked what follows this very prefix; "
            f"rounding moves it by at most {case['envelope']:.3g} nats, so no rounding yields {token}."
        ]
    return lines


def _draws(case: Mapping[str, Any], place: int | None) -> list[str]:
    lines = [f"Request    {case['label']}"]
    if case.get("history"):
        lines += [f"History    {case['history']}"]
    if place is not None:
        decision = case["decisions"][place]
        lines += ["Decision   " + ", ".join(f"{name} {short(value, 60)}" for name, value in decision.items())]
        lines += [f"Slack      {case['slack']:.3g} in probability, for rounding"]
    return lines


def _plain(case: Mapping[str, Any]) -> list[str]:
    names = sorted(case.keys() - {"origin"}, key=lambda name: (name != "what", name))
    return [f"{name.capitalize():<10} {short(case[name], 400)}" for name in names]


TENSORS = {"key": "keys", "value": "values", "state": "recurrent state", "conv": "convolution state"}


def _origin(seen: Mapping[str, Any]) -> str:
    """Where it began, and what that says."""
    where = f"round {seen['round']} ({seen['did']})" + (f" of sample {seen['sample']}" if seen["sample"] else "")
    unlike = f"{seen['what']}: expected {short(seen['expected'])}, got {short(seen['actual'])}"
    if seen["tensor"] == "logits":
        what = unlike if seen["expected"] is not None else seen["what"]
        return f"{where}, logits or the choice among them, as every state up to then is right: {what}"
    side, layer, kind = seen["tensor"].split(".")
    said = f"{where}, {'drafter' if side == 'draft' else 'target'}, layer {layer}, {TENSORS[kind]}: {unlike}"
    both = {kind, *(name.rpartition(".")[2] for name in seen["beside"])} >= {"key", "value"}
    if seen["before"]:
        return f"{said}; the row was right a round before"
    if int(layer) and (both or kind == "conv"):
        return f"{said}; all of it differs, nothing before: so does the hidden state behind layer {int(layer) - 1}"
    if both:
        return f"{said}; keys and values both: the row that was taken in is another one, or stands elsewhere"
    return f"{said}; nothing before it differs"


def prove(clause: Clause, evidence: Mapping[str, Any], decision: Decision, replay: str) -> str:
    """The proof of one violation, from its evidence alone; ends with the command that replays it."""
    lines = [f"{clause.id} {decision.verdict}", f"Required   {clause.requirement}", f"Seen       {decision.detail}"]
    if decision.case is not None:
        case = evidence["cases"][decision.case]
        if evidence["kind"] in ("greedy", "flips"):
            lines += _greedy(case, decision.place)
        elif evidence["kind"] == "draws":
            lines += _draws(case, decision.place)
        elif evidence["kind"] != "ledger":
            lines += _plain(case)
        if "origin" in case:
            lines += [f"Origin     {_origin(case['origin'])}"]
    return "\n".join([*lines, f"Replay     {replay}"])

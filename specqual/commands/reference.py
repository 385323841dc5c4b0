"""`specqual reference`: decode one prompt with the slow exact decoder and show what every round did."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text as Styled

from specqual.contract import (
    Finished,
    FinishReason,
    InvalidRequest,
    Refused,
    Request,
    Round,
    Rule,
    Sampling,
    Setup,
    Tokens,
)
from specqual.reference import ReferenceDecoder, make
from specqual.reference.build import DTYPES, RULES
from specqual.reference.text import Text, load_text

Samples = list[tuple[tuple[int, ...], tuple[Round, ...], FinishReason]]


def add_parser(subparsers: Any) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "reference",
        help="decode with the reference decoder",
        description="Decode one prompt with the slow exact decoder and show what every round did.",
    )
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint of the target")
    parser.add_argument("--draft", type=Path, metavar="DIR", help="checkpoint of a drafter")
    parser.add_argument("--ngram", type=int, metavar="N", help="prompt lookup with suffixes of up to N tokens instead")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--text", help="prompt, encoded with the target's tokenizer.json")
    prompt.add_argument("--ids", help="prompt as token ids, joined by commas")
    parser.add_argument("--max-tokens", type=int, required=True, metavar="N")
    parser.add_argument("--min-tokens", type=int, default=0, metavar="N")
    parser.add_argument("--n", type=int, default=1, help="number of samples")
    parser.add_argument("--seed", type=int, default=0)
    sampling = Sampling()
    for name in SAMPLING:
        default = getattr(sampling, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, metavar="X")
    parser.add_argument("--stop-string", action="append", default=[], metavar="TEXT", help="may be given repeatedly")
    parser.add_argument("--rule", choices=[str(rule) for rule in RULES], default=str(Rule.RATIO))
    parser.add_argument("--draft-length", type=int, metavar="K", help="drafts per round (default: the drafter's own)")
    parser.add_argument("--dtype", choices=DTYPES, default="float64")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def run(args: argparse.Namespace) -> int:
    """Decode and print; nothing is written to stdout unless all went well."""
    text = load_text(args.target)
    decoder = make(
        Setup(
            target=args.target,
            draft=args.draft,
            rule=Rule(args.rule),
            draft_length=args.draft_length,
            dtype=args.dtype,
            options={} if args.ngram is None else {"ngram": args.ngram},
        )
    )
    request = Request(
        prompt=_prompt(args, text),
        max_tokens=args.max_tokens,
        sampling=Sampling(**{name: getattr(args, name) for name in SAMPLING}),
        seed=args.seed,
        n=args.n,
        min_tokens=args.min_tokens,
        stop_strings=tuple(args.stop_string),
    )
    samples = decode(decoder, request)
    if args.json:
        print(json.dumps(report(decoder, samples, text)))
    else:
        show(decoder, request, samples, text)
    return 0


def _prompt(args: argparse.Namespace, text: Text | None) -> tuple[int, ...]:
    if args.text is not None:
        if text is None:
            raise InvalidRequest("text", "needs a tokenizer.json beside the target; give --ids instead")
        return text.encode(args.text)
    try:
        return tuple(int(part) for part in args.ids.split(",")) if args.ids else ()
    except ValueError:
        raise InvalidRequest("ids", f"must be integers joined by commas, got {args.ids!r}") from None


def decode(decoder: ReferenceDecoder, request: Request) -> Samples:
    """Run one request to its end, with a bar on a terminal's stderr; a refusal is an InvalidRequest."""
    request_id = decoder.submit(request)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("decoding", total=request.n * request.max_tokens)
        outputs: list[tuple[int, ...]] = [()] * request.n
        while events := decoder.step():
            for event in events:
                if isinstance(event, Tokens):
                    outputs[event.sample] += event.ids
                    progress.advance(task, len(event.ids))
                elif isinstance(event, Refused):
                    raise InvalidRequest(*event.error.split(": ", 1))
                elif isinstance(event, Finished):
                    reasons = event.reasons
    rounds = decoder.rounds(request_id)
    per_sample = [tuple(round for round in rounds if round.sample == index) for index in range(request.n)]
    return list(zip(outputs, per_sample, reasons, strict=True))


def acceptance_length(rounds: Iterable[Round]) -> float | None:
    """Mean tokens per round, bonus included; the prefill, which drafts nothing, is left out."""
    lengths = [len(round.committed) for round in rounds][1:]
    return sum(lengths) / len(lengths) if lengths else None


def report(decoder: ReferenceDecoder, samples: Samples, text: Text | None) -> dict[str, Any]:
    """The content of --json: the first sample at the top, all of them in `samples` if there are several."""
    claims = decoder.claims
    entries = [
        {
            "tokens": output,
            **({} if text is None else {"text": text.decode(output)}),
            "finish_reason": reason,
            "acceptance_length": acceptance_length(rounds),
            "rounds": [
                {
                    "start": round.start,
                    "anchor": round.anchor,
                    "proposals": round.proposals,
                    "accepted": round.proposals[: round.accepted],
                    "committed": round.committed,
                }
                for round in rounds
            ],
        }
        for output, rounds, reason in samples
    ]
    several = {"samples": entries} if len(entries) > 1 else {}
    return {"method": claims.method, "rule": claims.rule, "dtype": claims.dtype, **entries[0], **several}


def show(decoder: ReferenceDecoder, request: Request, samples: Samples, text: Text | None) -> None:
    """Print a table of rounds per sample: accepted drafts green, rejected ones red, the target's own token bold."""
    console, claims = Console(), decoder.claims
    for index, (output, rounds, reason) in enumerate(samples):
        title = f"sample {index}, " if request.n > 1 else ""
        table = Table(title=f"{title}{claims.method} drafts, {claims.rule} rule, {claims.dtype}", title_justify="left")
        for column in ("round", "start", "anchor", "drafts", "accepted", "committed"):
            table.add_column(column, justify="right" if column in ("round", "start", "accepted") else "left")
        for number, round in enumerate(rounds):
            drafts, accepted = round.proposals, round.accepted
            table.add_row(
                str(number),
                str(round.start),
                pieces([round.anchor], text, ""),
                pieces(drafts[:accepted], text, "green") + pieces(drafts[accepted:], text, "red"),
                str(accepted),
                pieces(round.committed[:accepted], text, "green") + pieces(round.committed[accepted:], text, "bold"),
            )
        console.print(table)
        if text is not None:
            console.print(Styled(_printable(text.decode(output))))
        length = acceptance_length(rounds)
        mean = "" if length is None else f", {length:.2f} tokens per round (bonus included, prefill left out)"
        console.print(f"{len(output)} tokens in {len(rounds)} rounds{mean}; finished: {reason}", highlight=False)


def pieces(ids: Iterable[int], text: Text | None, style: str) -> Styled:
    """Tokens as styled text, one after the other: decoded where there is a tokenizer, else as ids."""
    words = [f"{token} " if text is None else f"{text.decode([token])!r} " for token in ids]
    return Styled("".join(words), style=style)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)

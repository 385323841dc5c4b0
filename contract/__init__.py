"""What every side agrees on: requests, events, claims, protocols and the checkpoint schema."""

from .claims import Claims, DraftFormat, Greedy, Limits, Method, Rule, SeedContract
from .decoder import (
    Counted,
    Decoder,
    Inspectable,
    Make,
    Schedulable,
    Scored,
    Scoring,
    Scripted,
    Setup,
    State,
    Taped,
    Traced,
    Unsupported,
)
from .event import Event, Finished, FinishReason, Refused, TokenLogprobs, Tokens, Usage
from .kernels import Dissectable, Kernels
from .request import InvalidRequest, Request, Sampling, validate
from .round import CompactLaw, Proposal, Round, Script, ScriptContext
from .tape import Key, Purpose, Tape

__all__ = [
    "Claims",
    "CompactLaw",
    "Counted",
    "Decoder",
    "Dissectable",
    "DraftFormat",
    "Event",
    "FinishReason",
    "Finished",
    "Greedy",
    "Inspectable",
    "InvalidRequest",
    "Kernels",
    "Key",
    "Limits",
    "Make",
    "Method",
    "Proposal",
    "Purpose",
    "Refused",
    "Request",
    "Round",
    "Rule",
    "Sampling",
    "Schedulable",
    "Scored",
    "Scoring",
    "Script",
    "ScriptContext",
    "Scripted",
    "SeedContract",
    "Setup",
    "State",
    "Tape",
    "Taped",
    "TokenLogprobs",
    "Tokens",
    "Traced",
    "Unsupported",
    "Usage",
    "validate",
]

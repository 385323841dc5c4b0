"""Facts: what the header of a report says about the decoder and the run, for evidence and reasons to agree with."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any

import specqual.contract as contract
from specqual.contract import Claims, Decoder, DraftFormat, Greedy, Limits, Method, Rule, SeedContract

from .features import FEATURES
from .lab import EFFORTS, Effort
from .verdicts import Profile

PROTOCOLS = tuple(
    sorted("Counted Dissectable Inspectable Schedulable Scoring Scripted Taped Traced".split())
)  # that a decoder may offer or not
ENUMS = {"rule": Rule, "method": Method, "seed": SeedContract, "draft_format": DraftFormat}


class BadFacts(ValueError):
    """A header that states no facts of the known form; names the field."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`claims` and `offers` are None where no decoder could be made; `draft` is the name of the drafter's folder."""

    profile: Profile
    day: date  # of the run
    draft: str | None
    claims: Claims | None
    offers: frozenset[str]
    without: frozenset[str] = frozenset()  # features that were not drawn

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> "Facts":
        """The facts in a header; BadFacts names a field that cannot be."""
        try:
            profile = Profile(header.get("profile"))
        except ValueError:
            raise BadFacts("profile: is none of this suite's") from None
        try:
            day = date.fromisoformat(header.get("date"))  # type: ignore[arg-type]
        except (ValueError, TypeError):
            raise BadFacts("date: must be a day like 2027-01-31") from None
        draft, claims, offers = (header.get(name) for name in ("draft", "claims", "offers"))
        if draft is not None and not isinstance(draft, str):
            raise BadFacts(f"draft: must be a name, got {type(draft).__name__}")
        without = header.get("without", [])
        if not isinstance(without, list) or any(name not in list(FEATURES) for name in without):
            raise BadFacts("without: must name features that are not drawn")
        if (claims is None) != (offers is None):
            raise BadFacts("offers: must be stated where claims are, and only there")
        if claims is None:
            return cls(profile, day, draft, None, frozenset(), frozenset(without))
        if not isinstance(offers, list) or any(name not in PROTOCOLS for name in offers):
            raise BadFacts(f"offers: must name some of {', '.join(PROTOCOLS)}")
        return cls(profile, day, draft, claims_from(claims), frozenset(offers), frozenset(without))

    @property
    def effort(self) -> Effort:
        return EFFORTS[self.profile]

    @property
    def known(self) -> Claims:
        """The claims; BadFacts where there are none."""
        if self.claims is None:
            raise BadFacts("claims: are missing")
        return self.claims

    @property
    def longest(self) -> int:
        """K, the most drafts of one round."""
        return self.known.limits.max_draft

    @property
    def drafts(self) -> bool:
        """Whether a drafter is configured, beside any that a test may pass in."""
        return self.longest > 0 and self.known.method not in (Method.NONE, Method.SCRIPTED)

    def honours(self, field: str) -> bool:
        return field in self.known.sampling


def offered(decoder: Decoder) -> list[str]:
    """The optional protocols that a decoder offers, by name."""
    return [name for name in PROTOCOLS if isinstance(decoder, getattr(contract, name))]


def plain(claims: Claims) -> dict[str, Any]:
    """Claims as plain JSON."""
    found = asdict(claims)
    found["sampling"] = sorted(claims.sampling)
    found["limits"]["eos_ids"] = list(claims.limits.eos_ids)
    return found


def claims_from(stated: Any) -> Claims:
    """The claims that `plain` made this of; BadFacts names the field that is missing, unknown or of another kind."""
    values = _known("claims", stated, Claims)
    for name, kind in ENUMS.items():
        try:
            values[name] = kind(values[name])
        except ValueError:
            raise BadFacts(f"claims.{name}: {str(values[name])[:40]!r} is no {kind.__name__}") from None
    greedy = Greedy(**_known("claims.greedy", values["greedy"], Greedy))
    limits = _known("claims.limits", values["limits"], Limits)
    _listed("claims.limits.eos_ids", limits["eos_ids"], int)
    _listed("claims.sampling", values["sampling"], str)
    sizes = Limits(**limits | {"eos_ids": tuple(limits["eos_ids"])})
    return Claims(**values | {"greedy": greedy, "limits": sizes, "sampling": frozenset(values["sampling"])})


KINDS: dict[Any, Any] = {str: str, int: int, bool: bool, float: (int, float)}  # of values in JSON, by annotation


def _known(where: str, stated: Any, kind: Any) -> dict[str, Any]:
    names = [field.name for field in fields(kind)]
    if not isinstance(stated, dict) or set(stated) != set(names):
        raise BadFacts(f"{where}: must have exactly {', '.join(names)}")
    for field in fields(kind):
        wanted, value = KINDS.get(field.type, object), stated[field.name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted in (int, (int, float))):
            raise BadFacts(f"{where}.{field.name}: must not be {type(value).__name__}")
    return dict(stated)


def _listed(where: str, stated: Any, kind: type) -> None:
    if not isinstance(stated, list) or any(type(value) is not kind for value in stated):
        raise BadFacts(f"{where}: must be a list of {kind.__name__}")

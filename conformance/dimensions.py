"""The dimensions that kernels are tried in: those of the target at hand, as far as it has them."""

from dataclasses import dataclass

from specqual.contract.config import DeltaNet, TargetConfig, parse_target
from specqual.contract.errors import CheckpointError
from specqual.contract.keys import read_json

from .lab import Lab

WINDOW = 40
NET = DeltaNet(key_heads=2, value_heads=4, key_dim=8, value_dim=16, kernel=4)


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What kernels are run with where the target does not say otherwise."""

    hidden: int = 64
    wide: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    rotary_dim: int = 16
    vocab: int = 96
    window: int = WINDOW
    net: DeltaNet = NET

    @classmethod
    def of(cls, lab: Lab) -> "Dimensions":
        try:
            config: TargetConfig = parse_target(read_json(lab.run.setup.target / "config.json"))
        except CheckpointError:
            return cls()  # a table, or a checkpoint that only the decoder knows
        return cls(
            config.hidden_size,
            config.intermediate_size,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.rotary_dim,
            config.vocab_size,
            config.window or WINDOW,
            config.delta_net or NET,
        )

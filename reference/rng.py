"""The decoder's own random numbers: no state, a hash of the key's name."""

from hashlib import blake2b
from struct import pack

from specqual.contract import Key, Purpose

_PURPOSES = {purpose: place for place, purpose in enumerate(Purpose)}


class Counter:
    """A tape whose numbers are 53 bits of BLAKE2b over the key: any order, any batch, any restart, the same number."""

    def uniform(self, key: Key) -> float:
        """The number in [0, 1) that belongs to this key."""
        name = pack("<QQQQB", key.seed, key.sample, key.round_start, key.position, _PURPOSES[key.purpose])
        return (int.from_bytes(blake2b(name, digest_size=8).digest(), "little") >> 11) * 2.0**-53

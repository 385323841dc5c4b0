"""The decoder's own random numbers: a keyed hash instead of a state, so that order, batch and restart do not matter."""

import hashlib
import struct

from specqual.contract import Key, Purpose

CODES = {Purpose.DRAFT: 0, Purpose.ACCEPT: 1, Purpose.RESIDUAL: 2, Purpose.BONUS: 3}


class Counter:
    """A tape: 53 bits of BLAKE2b over the key's five parts, little endian."""

    def uniform(self, key: Key) -> float:
        """The number in [0, 1) that belongs to this key."""
        packed = struct.pack("<4QB", key.seed, key.sample, key.round_start, key.position, CODES[key.purpose])
        (bits,) = struct.unpack("<Q", hashlib.blake2b(packed, digest_size=8).digest())
        return float(bits >> 11) / float(1 << 53)

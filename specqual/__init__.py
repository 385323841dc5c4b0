"""A qualification suite for speculative decoding, with a slow exact reference decoder inside."""

__version__ = "0.1.0"

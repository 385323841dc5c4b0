"""Faults written from one sentence per kind, by somebody who had seen the decoders and none of the checks.

Each module ends with ROWS: a factory, its kind, and the target and drafter fixtures on which it shows.
"""

"""Decoders with exactly one known fault each, and controls that have none: proof that the suite has teeth.

`specqual mutants` runs them all; one of them alone is a decoder like any other, `--decoder
specqual.mutants.verification:m01b`.

A mutant is a function `make(setup) -> Decoder` named by its kind and which fault of it: `m01b` is the second fault of
kind K01 and is shown as M01b; a digit behind it is the same fault in another decoder. Its docstring says what goes
wrong and when it shows. `planting` swaps one name of a sound decoder while that decoder runs; `rows` adds what faults
of the optimised decoder are made of. Kinds are named in `kinds`, the fixtures in `pairs`.

To add faults: write a module here (or in a package here), and say at its end which clauses own them and on which
fixtures, every row a clause, a pair and functions:

    PLANTED = planted_in("reference", ("GE-1", DFLASH2, (m01a, m01b)), ("GE-4", HYBRID, (m01b,)))

The first argument names the decoder that is sound but for the fault, as `--decoder` does. The first row of a fault is
its home; every clause that owns it must see it. Controls are stated as `CONTROLS`, a tuple of `Control`. The registry
finds the modules by itself, and refuses a fault that no row names, two of one name, and clauses that do not exist.
A module of `fresh`, written by somebody who had not seen the clauses, states ROWS instead: functions, their kinds and
fixtures. Nobody owns those; any clause may see them.

`tests/test_mutants.py` then requires that each is VIOLATED by its owners at quick, and that the sound decoder is not.
"""

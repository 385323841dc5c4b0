# ruff: noqa: F401 - the names are what `--decoder tests.faults:NAME` finds
"""Decoders with exactly one known fault each, for `--decoder tests.faults:m01b`, and controls that have none.

The kinds: K01 verification indexing, K02 q is not the draft's law, K03 random numbers used twice, K04 wrong acceptance
or residual, K05 bonus token, K06 sampling parameters, K08 penalties and other history, K10 stop inside a span,
K11 token budget, K12 sentinels taken for tokens, K20 target features, K21 positions and masks, K22 context content,
K23 checkpoints. A name says the kind and which fault of it.

Those of the optimised decoder stand in modules of their own, for `--decoder tests.faults.pool:m17a`: `state` (K13, K14,
K16), `context` (K22), `pool` (K17, K18), `recurrent` (K19), `schedule` (K24, K26); `legal` has controls.
"""

from .controls import n1, n2, n3, n4, n5, n7
from .drawing import m02a, m02b, m02c, m02d, m02e, m03a, m03b, m03c, m03d, m03e, m03f, m03g
from .finish import m05d, m10a, m10b, m10c, m10d, m10e, m10f, m11a, m11b, m11c, m11d, m12a, m12b, m12c, m12d
from .inputs import (
    m20a,
    m20b,
    m20c,
    m20d,
    m20g,
    m21a,
    m21b,
    m21c,
    m21d,
    m21e,
    m21f,
    m21h,
    m21i,
    m21j,
    m21k,
    m22b,
    m22d,
    m22e,
    m22f,
)
from .loading import m23a, m23b, m23c, m23d, m23h, m23i, m23j, m23k
from .parameters import (
    m06a,
    m06b,
    m06c,
    m06d,
    m06e,
    m06f,
    m06g,
    m08a,
    m08b,
    m08c,
    m08d,
    m08e,
    m08f,
    m08g,
    m08h,
    narrow,
    narrow_misnamed,
    narrow_silent,
)
from .planting import black_box
from .verification import m01a, m01b, m01c, m01d, m01e, m04a, m04b, m04c, m04d, m04e, m04f, m04g, m05a, m05b, m05c

# With nothing but the base protocol to be seen, so that statistics decide.
m04e_black_box, n7_black_box = black_box(m04e), black_box(n7)

"""Findings of the compiled checker of completeness, by name: used by the kernels and by their callers' messages.

Separate from the kernels, so that reading a name does not wait for a compiler.
"""

__all__ = [
    "ABOVE",
    "BELOW",
    "CLOSED",
    "IMPOSSIBLE",
    "MISCOUNTED",
    "NEXT_TO_NOBODY",
    "NOBODY",
    "NOWHERE",
    "OPEN_ABOVE",
    "OPEN_BELOW",
    "SETTLED",
    "SINGULAR",
    "TOO_FAR_APART",
    "TOO_MANY",
    "TOO_WIDE",
    "UNDECIDED",
]

#: Of one segment: nothing is decided, or equilibria would have totals above or below those that it passes.
UNDECIDED, ABOVE, BELOW = 0, 1, 2
#: Of a chain's ends.
CLOSED, IMPOSSIBLE, TOO_FAR_APART, OPEN_ABOVE, OPEN_BELOW = 0, 1, 2, 3, 4
#: Of a walk along the chain, in place of the number of pieces that decide nothing: there is no room for them.
TOO_MANY = -1
#: Of what may be where nothing is decided.
SETTLED, MISCOUNTED, NOWHERE, NEXT_TO_NOBODY, TOO_WIDE, SINGULAR = 0, 1, 2, 3, 4, 5
#: In place of a client.
NOBODY = -1

"""Tolerances shared by the checkers, each with its reason.

The solvers' own tolerances (:mod:`stackfu.followers.solver_tolerances`, :mod:`stackfu.leader.tolerances`) affect the search
only. These decide which claims are accepted. A tolerance of a single checker is at the top of its module.
"""

from __future__ import annotations

# ---------------------------------------------------------------- what counts as the same

#: A profile is an equilibrium for all purposes if no client can gain this part of its own stakes.
NEGLIGIBLE = 1e-9
#: Spend and constraints are met if they are to this part of themselves: the last digits of a sum of payments.
LAST_DIGITS = 1e-12
#: A stated regret or residual is the one that is found again if they agree to this: both are small differences of large terms.
FOUND_AGAIN = 1e-6
#: Relative to a client's stakes, a regret below this is the rounding of its utility, and need not be found again.
REGRET_ROUNDING = 1e-12
#: A gap that was asked for is closed if it is to this part of itself: it is a difference of two bounds that were rounded outward.
GAP_ROUNDING = 1e-9
#: Losses that differ by less than this part of the larger one differ in their last digits.
LOSS_DIGITS = 1e-14
#: The same, relative to the largest squared norm of an embedding: squared distances between embeddings have no more digits.
EMBEDDING_DIGITS = 1e-25

# ---------------------------------------------------------------- what rounding may take away, always on the safe side

#: Norms of rounded numbers are made larger by this part: far more than the rounding of a sum of a million squares.
NORM_ROUNDING = 1e-9
#: Divisors are kept above this: the quotient stays finite, and nothing that is measured is as small.
TINY = 1e-300
#: Above anything that underflow can take away from a sum of products.
UNDERFLOW = 1e-290
#: The same of a whole factorisation, and of a matrix that is zero.
FACTOR_UNDERFLOW = 1e-280

"""Followers: what the clients do under given payments.

============  ============================================================================================
solve         one equilibrium or all of them: which method, and what may be said about the result
at_once       equilibria with all their checks in one compiled call
batch         equilibria under many payment vectors
path          every equilibrium of a game of moderate size, by following t(s)
sweeps        one equilibrium of a large game, by best responses
qp            one equilibrium by bisection with a convex solver: slow and independent
faces         which profiles share an equilibrium's total and mean embedding
homogeneous   all clients own the same data
dynamics      best responses round by round
below_caps    where clients settle below caps
contracts     where they settle under contracts
cascade       who leaves, round by round
level         t(s) on a grid, for drawing it
newton        the clients strictly inside
running       a mixture kept up to date while clients respond
options       how to look for one equilibrium
tolerances    every tolerance, with its reason
============  ============================================================================================

:mod:`stackfu.judging` judges the results.
"""

from .options import SearchOptions
from .solve import enumerate_equilibria, find_equilibrium

__all__ = ["SearchOptions", "enumerate_equilibria", "find_equilibrium"]

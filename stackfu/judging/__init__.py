"""Judges: what is said about a result, recomputed by other means than those that found it.

==============  ==========================================================================================
stakes          largest gain of a client from deviating, relative to its own stakes
completeness    that no equilibrium is missing, from a chain of profiles
equilibrium     everything an equilibrium states, derived again
point           spend, loss and total of a profile, enclosed
bound           that a certificate proves a lower bound for all payments
gaps            how near a bound has to come
solution        everything a solution states, derived again
plan            the same for capped offers and contracts
plan_bound      certificates of lower bounds for capped offers
whole_samples   a plan rounded to whole samples, its spend and loss enclosed
proof           equilibria enclosed in ball arithmetic
diagnostics     what contraction arguments say about best responses near an equilibrium
==============  ==========================================================================================

Nothing here imports a solver. Where a judge needs an equilibrium to compare with, it asks the library's own solver to propose one
(:mod:`stackfu.results.facade`), and verifies the answer before using it: that no client gains there, that none is missing.
What has to be right for a claim to be true, beside NumPy, numba and python-flint, and about
how many lines that is:

==============================  =============================================================================================  =====
claim                           modules                                                                                        lines
==============================  =============================================================================================  =====
this is an equilibrium          stakes, _stake_kernels, distances, ball_game                                                   550
there is no other               completeness, _segment_kernels, findings, distances                                            1350
the same, with more digits      completeness_balls, ball_game                                                                  600
no payments do better           cover, bound, bound_formula, bound_multipliers, bound_verdict, space, inner_products, numbers  1800
the same for very many clients  bound_at_scale, _bound_kernels, large_space, rows, _row_kernels                                750
payments cost and reach this    point, numbers                                                                                 450
no capped offers do better      plan_bound, space, inner_products, numbers                                                     1400
==============================  =============================================================================================  =====

One argument is written twice on purpose where floats and balls differ in more than their operators: stakes within
:mod:`.stakes`, chains in :mod:`.completeness` and :mod:`.completeness_balls`, the sums over clients in :mod:`.bound_formula` and
:mod:`._bound_kernels`. Tests compare them.
"""

from .equilibrium import verify_equilibrium
from .plan import verify_plan
from .solution import verify_solution

__all__ = ["verify_equilibrium", "verify_plan", "verify_solution"]

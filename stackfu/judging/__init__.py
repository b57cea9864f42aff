"""Judges: what is said about a result, recomputed by other means than those that found it.

======================  ===================================================================================================  =====
claim                   modules                                                                                              lines
======================  ===================================================================================================  =====
this is an equilibrium  stakes, _stake_kernels, distances, ball_game                                                         550
there is no other       completeness, _segment_kernels, findings, distances                                                  1350
same, with more digits  completeness_balls, ball_game                                                                        600
no payments do better   cover, bound_check, bound_formula, bound_multipliers, bound_verdict, space, inner_products, numbers  1800
the same, many clients  bound_at_scale, _bound_check_kernels, large_space, rows, _row_kernels                                750
spend and loss          point, numbers                                                                                       450
no capped offer better  plan_bound, space, inner_products, numbers                                                           1400
======================  ===================================================================================================  =====

One argument is written twice on purpose where floats and balls differ in more than their operators: stakes within
:mod:`.stakes`, chains in :mod:`.completeness` and :mod:`.completeness_balls`, the sums over clients in :mod:`.bound_formula` and
:mod:`._bound_check_kernels`. Tests compare them.
"""

from .equilibrium_check import verify_equilibrium
from .plan import verify_plan
from .solution_check import verify_solution

__all__ = ["verify_equilibrium", "verify_plan", "verify_solution"]

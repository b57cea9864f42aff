"""Judges: what is said about a result, recomputed by other means than those that found it.

==============  ==========================================================================================
equilibrium     does any client gain by deviating? by search over its utility, from the definition
solution        equilibrium, spend, objective and lower bound of a solution
plan            the same for capped offers and contracts
plan_bound      certificates of lower bounds for capped offers
proof           equilibria enclosed in ball arithmetic
diagnostics     what contraction arguments say about best responses near an equilibrium
==============  ==========================================================================================

Nothing here imports a solver.
"""

from .equilibrium import verify_equilibrium
from .plan import verify_plan
from .solution import verify_solution

__all__ = ["verify_equilibrium", "verify_plan", "verify_solution"]

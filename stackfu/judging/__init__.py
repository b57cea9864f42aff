"""Judges: what is said about a result, recomputed by other means than those that found it.

==============  ==========================================================================================
stakes          how much any client could gain by deviating, beside its own stakes
completeness    that no equilibrium is missing, from a chain of profiles
equilibrium     everything an equilibrium states, derived again
point           spend, loss and total of a profile, enclosed
bound           that a certificate proves a lower bound for all payments
solution        everything a solution states, derived again
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

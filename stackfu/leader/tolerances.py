"""The tolerances that the leader's solvers share, in one place, each with its reason.

As with the clients' (:mod:`stackfu.followers.solver_tolerances`), none of them decides which claims about a result are accepted:
that is up to :mod:`stackfu.judging`. They affect which points are tried, and when the search ends. Tolerances of a single
algorithm (steps, rounds, sizes of samples) are at the top of its module.
"""

from __future__ import annotations

#: Divisors are kept above this: the quotient stays finite, and nothing that is measured is as small.
TINY = 1e-300
#: Sums of a few hundred float64 products that should be equal differ by less than this, relative to the larger one.
ROUNDING = 1e-12
#: Budget, floor and cap on the loss may be missed by this, relative to the limit: rounding of sums (judges use the same number).
LIMIT_ROUNDING = 1e-12
#: Allowed overspending of heuristics, which have longer sums, relative to the budget.
OVERSPENT = 1e-9
#: Participation closer than this to 0 or 1 is a cone solver's way of saying 0 or 1.
SNAP = 1e-9
#: The same for solvers that stop earlier: interior points with elastic rows, sequential quadratic programmes.
COARSE_SNAP = 1e-7
#: An answer that breaks its rows by more than this (in units of the largest squared distance) is solved again, or not proposed.
BROKEN = 1e-7
#: An interval of totals narrower than this, relative to its upper end, is one total: its ends cannot be told apart by a bound.
ONE_TOTAL = 1e-9
#: A search along one variable ends when its bracket is below this part of the variable: the value is flat there to second order.
FLAT = 1e-3
#: Added to what an inequality between rounded numbers promises, so that rounding cannot break the promise.
SAFETY = 1e-9
#: A generous bound on an objective is made a little more so: nothing feasible may touch it.
GENEROUS = 1e-6
#: Totals below this are not searched: a sampling term divided by them would say nothing in float64.
SMALLEST_TOTAL = 1e-12
#: Directions in which the clients differ by less than this part of the largest squared distance are rounding errors of
#: their inner products and are left out of a solver's coordinates (judges use the game's own numbers).
EIGENVALUE_ROUNDING = 1e-15

# ---------------------------------------------------------------- playing payments back

#: An equilibrium with amounts within this part of the total of the intended one is the intended one.
SAME_PROFILE = 1e-7
#: Totals and losses that differ by less than this part belong to one face of equilibria, on which both are constant.
SAME_FACE = 1e-6
#: Allowed excess spend of an equilibrium found again over the intended one, relative to it.
SAME_SPEND = 1e-10

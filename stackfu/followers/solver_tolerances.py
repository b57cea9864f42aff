"""Every tolerance of the clients' solvers, in one place, each with its reason.

None of them decides what may be *said* about a result: that is up to the checks of :mod:`stackfu.judging`, which know
nothing of these. They decide where a solver looks, and when it stops looking.

Float64 has a rounding unit of 1.1e-16; a sum of N products errs by about ``sqrt(N)`` of those relative to its largest term.
Unless said otherwise a tolerance is relative to the terms that were added up.
"""

from __future__ import annotations

# ---------------------------------------------------------------- the path t(s)

#: A condition or its slope that is smaller than this counts as zero: a thousand roundings, what a few hundred clients leave.
TINY = 1e-13
#: A client at a bound with ``|g_k|`` up to this is taken for indifferent: polishing leaves about 1e-15, ties of data that was
#: itself computed in float64 leave up to 1e-12 or so.
TIGHT = 1e-11
#: The same, in rounding errors of the squared distances, where a client's own terms are below what those resolve.
TIGHT_OF_ROUNDING = 16.0
#: The largest violation of the optimality conditions in the middle of a piece, and the largest jump of t between pieces, that
#: count as rounding. Wrong sets violate them by far more, except next to an event, where they make no difference.
CHECK = 1e-9
#: Weight moving along an affine dependence at less than this rate does not move: the rates come from a linear system with
#: pivots as small as 1e-14 N.
STEADY = 1e-10
#: Clients that reach a bound within this of the first along a dependence reach it together (in units of the mixture).
TOGETHER = 1e-13
#: A leading coefficient below this underflows when squared.
VANISHED = 1e-300
#: The root of a polynomial is located to the last bit or two: a bracket this narrow cannot be halved much more.
BRACKET, BRACKET_FLOOR = 4e-16, 1e-17
#: Newton steps on t(s) = 0 longer than this part of s belong to another piece.
LONG_STEP = 1e-3
#: An interval of totals on which t is zero within rounding, and wider than this part of its upper end, is no single zero.
WIDE_ZONE = 1e-9
#: The last piece ends at s = 0, up to this.
BOTTOM = 1e-12
#: A piece is expanded anew after this part of its s, before ``1 - u`` gets small and divisions by it lose digits.
LONG_PIECE = 0.75
#: A pivot of the factor below this times N shows an affine dependence: what rounding leaves of an exact zero.
PIVOT = 1e-14
#: The same, where the inner products themselves err by more than float64 does (in their rounding errors).
PIVOT_OF_ROUNDING = 4.0
#: Pivots at the same s, by number of clients, after which rounding is suspected of going round in circles: first the zero tests
#: become looser by these factors, then the choice among several changes becomes random, then the path gives up.
PATIENCE = ((3, 10, 1e2), (8, 40, 1e4))
GIVE_UP = (40, 200)
#: When a path comes to a halt it is followed again with reluctances that differ by relative errors of this size, then ten
#: times as large, and so on: enough to break ties, too little to move an equilibrium visibly.
SHAKE, SHAKES = 1e-14, 4
#: Totals below this are followed from the largest possible one, not from 1: at 1 all reluctances are much larger than distances.
SMALL = 1e-3
#: The largest possible total is an inequality between rounded numbers; this is its safety margin.
MARGIN = 1e-9
#: Reluctance further below zero than this many largest squared distances says nothing more than "full".
EAGER = 1e3

# ---------------------------------------------------------------- faces

#: A movement of the participation by less than this is no movement.
STILL = 1e-9
#: Eigenvalues of the inner products below this times the number of clients are zero; in rounding errors of the inner products.
NULL, NULL_OF_ROUNDING = 1e-12, 40.0
#: A client that no null direction moves by more than this is pinned down.
PINNED = 1e-12
#: A linear programme's vertex is known to about this: what it asks its equations and bounds for.
BLUR = 1e-7

# ---------------------------------------------------------------- sweeps, Newton's method, bisection

#: A sweep has settled when no violation it met is above this part of the tolerance; a full pass must find half the tolerance.
SETTLED, CONFIRMED = 0.1, 0.5
#: A start with a smaller total than this counts as empty: its square must not underflow.
NOBODY = 1e-100
#: Newton's method may leave [0, alpha] by this part of alpha, then it is cut off.
OVERSHOOT = 1e-12
#: Best responses have settled when no client moves by more than this share of its cap: the rounding of a sum over clients.
UNMOVED = 1e-12
#: A sample has settled when no client's participation moves by more than this.
SAMPLE_SETTLED = 1e-3
#: Tolerance of the interior-point solver, and the part of the smaller of share and total up to which its answers are
#: rounded to the bounds.
QP, QP_SNAP = 1e-11, 1e-6
#: Bisection ends at a residual or a relative bracket of this size.
BISECTED, BISECTED_BRACKET = 1e-14, 1e-15
#: A residual above this is no rounding: such a point is not worth proving anything about.
LOOKS_WRONG = 1e-3
#: Reluctances that differ by less than this part of the largest are equal.
EQUAL = 1e-12


#: Residual of every returned equilibrium, relative to each client's own terms: a client with a distance to the mixture of a
#: ten-thousandth of the largest one is known to 1e-8 of its own square, or a hundred million roundings.
RESIDUAL = 1e-9

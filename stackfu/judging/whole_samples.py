"""Enclosures of the cost and loss of whole samples.

A plan in shares of data rounded to whole samples (:func:`stackfu.results.whole_plan.whole_counts`) is another plan. Its spend and
its loss are enclosed (:mod:`.point`) at the shares that the whole samples are, and what was asked for (budget, floor, largest loss)
is judged there again. That the rounding leaves every client within one sample of the plan is checked, not assumed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..errors import VerificationError
from ..results.solution import Solution
from ..results.whole_plan import WholePlan, whole_counts
from .point import enclose_point
from .solution_check import judge_point

__all__ = ["judge_whole_samples"]

#: A number of samples that is whole up to this part of a sample is whole.
SAME_SAMPLE = 1e-6


def judge_whole_samples(solution: Solution) -> WholePlan:
    """Return a solution in whole samples, with its spend, loss and objective and what they break of what was asked for."""
    game, goal, offers = solution.game, solution.goal, solution.offers
    counts = whole_counts(solution)
    if np.any(counts < 0) or np.any(
        np.abs(counts - game.sizes * solution.participation) >= 1.0 + SAME_SAMPLE
    ):
        raise VerificationError("whole samples are further from the plan than one sample")
    x = np.minimum(counts / game.sizes, 1.0)
    payouts = offers.prices * x + offers.retainers
    retained = math.fsum(offers.retainers.tolist())
    if not counts.any():
        nothing = "no client brings a whole sample"
        return WholePlan(game, counts, payouts, retained, math.nan, math.nan, 0.0, (nothing,))
    point = enclose_point(game, goal, offers.prices, x)
    bare = enclose_point(game, replace(goal, finite_sample=False), offers.prices, x)
    low, high = (end + retained for end in point.spend)
    spent = replace(point, spend=(low, high))
    ends = ((low, high), bare.loss, spent.objective(goal))
    spend, loss, objective = (0.5 * (a + b) for a, b in ends)
    error = max((0.5 * (b - a) / abs(0.5 * (a + b)) if a + b else 0.0) for a, b in ends)
    broken = tuple(judge_point(goal, point, high, "the samples cost"))
    return WholePlan(game, counts, payouts, spend, loss, objective, error, broken)

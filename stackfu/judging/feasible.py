"""The other half of a leader's claim: these payments are feasible, and this is what they reach.

Together with :func:`~stackfu.judging.bound.check_bound` it proves ``lower <= optimum <= objective``. Every number is enclosed
(:mod:`.space`), every comparison is one of enclosures; there is no absolute slack anywhere:

- payments are not negative, participation lies in [0, 1], somebody takes part;
- no client gains more than :data:`~stackfu.judging.stakes.NEGLIGIBLE` of its own stakes by deviating;
- spend, loss and floor keep their limits to :data:`LIMIT`, relative to the limit: sums of floats are not exact, and a
  budget that is meant to be spent to the last cent must not fail by its last digit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model import GameModel, Objective
from .numbers import BallArithmetic, IntervalArithmetic
from .space import Space
from .stakes import NEGLIGIBLE, check_stakes

__all__ = ["LIMIT", "PointVerdict", "check_feasible"]

#: Relative rounding of limits.
LIMIT = 2e-12
#: Up to this many clients ``arithmetic="auto"`` means balls.
BALLS_UP_TO = 100


@dataclass(frozen=True)
class PointVerdict:
    """What a check of payments found, with enclosures of the objective and upper bounds of spend, loss and relative regret."""

    passed: bool
    objective: tuple[float, float]
    spend: float
    loss: float
    regret: float
    message: str

    def __bool__(self) -> bool:
        return self.passed


def check_feasible(
    game: GameModel,
    goal: Objective,
    payments: npt.ArrayLike,
    participation: npt.ArrayLike,
    arithmetic: str = "auto",
) -> PointVerdict:
    """Whether payments and the profile they are meant for keep every constraint, and what the objective is there.

    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 1, 2], costs=[1.0, 1.0, 2.0])
    >>> x = np.ones(3)
    >>> check_feasible(game, sf.Objective(budget=4.0), game.payments_for(x), x).passed
    True
    """
    p, x = np.asarray(payments, dtype=np.float64), np.asarray(participation, dtype=np.float64)
    balls = arithmetic == "balls" or (arithmetic == "auto" and game.count <= BALLS_UP_TO)
    numbers = BallArithmetic() if balls else IntervalArithmetic()
    problems = []
    if p.shape != (game.count,) or x.shape != (game.count,):
        return _refused("payments and participation need one number per client")
    if not (np.isfinite(p).all() and np.isfinite(x).all()):
        return _refused("payments and participation must be numbers")
    if (p < 0).any():
        return _refused(f"client {int(np.argmin(p))} is paid {p.min():.6g}, less than nothing")
    if (x < 0).any() or (x > 1).any() or not x.any():
        return _refused("participation must lie in [0, 1] and not be 0 for everybody")
    with numbers.context():
        space = Space(game, goal, numbers)
        spend = numbers.total(numbers.of(p) * numbers.of(x))
        total, _ = space.mixture_of(x)
        loss = space.loss_of(x)
        value = goal.loss_weight * loss + goal.payment_weight * spend
        most, highest = float(numbers.high(spend)), float(numbers.high(loss))
        least = float(numbers.low(total))
        objective = (float(numbers.low(value)), float(numbers.high(value)))
    regret = float(np.max(check_stakes(game, p, x)))
    if not regret <= NEGLIGIBLE:
        problems.append(f"a client may gain {regret:.3g} of its stakes by deviating")
    if math.isfinite(goal.budget) and most > goal.budget * (1.0 + LIMIT):
        problems.append(f"the spend may be {most:.12g}, above the budget {goal.budget:.12g}")
    if math.isfinite(goal.max_loss) and highest > goal.max_loss * (1.0 + LIMIT):
        problems.append(f"the loss may be {highest:.12g}, above the cap {goal.max_loss:.12g}")
    if least < goal.min_total * (1.0 - LIMIT):
        problems.append(f"total participation may be {least:.12g}, below the floor {goal.min_total:.12g}")
    if not (math.isfinite(objective[0]) and math.isfinite(objective[1])):
        problems.append("the objective is not a finite number")
    message = "; ".join(problems) or f"feasible, with an objective of {objective[1]:.12g}"
    return PointVerdict(not problems, objective, most, highest, regret, message)


def _refused(message: str) -> PointVerdict:
    nothing = math.nan
    return PointVerdict(False, (nothing, nothing), nothing, nothing, nothing, message)

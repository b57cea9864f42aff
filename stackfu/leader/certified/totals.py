"""Results at single totals: the relaxation solved there, profiles proposed from it, the incumbent's own optimum."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ...jit import clock
from ...judging.gaps import Gap, gap_at
from ...model import Array, GameModel, Objective
from ..tolerances import GENEROUS, ROUNDING, SAFETY, SMALLEST_TOTAL
from .candidates import Candidate, Candidates
from .payment_bound import Classes
from .payment_problem import LeaderProblem
from .payment_programme import HELD, PointAnswer, PointProgramme, answer_at, by_slice, optimum, warm

__all__ = ["Totals"]

#: Part of the distance rows and of the loss cap held back at solved points, so that rounding never breaks them.
SHRINK = 1e-11
#: Prices of breaking a row, in normalised loss. The first at which the rows hold, or at which the bound is beyond what matters, is
#: enough: small multipliers interpolate better.
PENALTIES = (1.0, 30.0, 1e3, 3e4)
#: Beyond this many clients the interior-point method made for the relaxation is faster than a general cone solver.
CONE = 60
#: It needs something to choose: volunteers who own less than this part of S.
SOME_ROOM = 1.0 - 1e-7
#: A box narrower than this, relative to its S, is not split further.
NARROWEST = 1e-10
#: Ratio of neighbouring totals that are solved first.
GRID_STEP = 1.25
#: Distance of further totals from the best one, relative to it, to detect changes.
ASIDE = 0.02
#: Part of the budget that is spent where the budget binds.
BUDGET_BINDS = 1.0 - 1e-3
#: Steps of the golden section around the best profile found on that grid.
GOLDEN_STEPS = 12
#: A bracket below this part of its upper end is one total: the value is flat there to second order.
ONE_BRACKET = 1e-6
#: Participation at which a keen client counts as a volunteer, in turn.
FULL_ENOUGH = (1.0 - 1e-5, 0.5, 0.0)
#: The gap that is closed, relative to the requested one: rounding must not spoil the last digit.
CLOSED_PART = 0.999
#: Budgets above one that leaves no room, relative to what those who take part would cost: the first, the last, and their ratio.
EXTRA_FIRST, EXTRA_LAST, EXTRA_STEP = 1e-2, 1e-15, 0.25


class Totals:
    """State of one run, in normalised units: its incumbent, and what was solved at single totals."""

    def __init__(
        self, game: GameModel, objective: Objective, gap: Gap = 0.0, time_limit: float = np.inf
    ) -> None:
        self.deadline = clock() + time_limit
        self.game, self.objective = game, objective
        self.problem = LeaderProblem.of(game, objective)
        self.asked_gap = gap
        self.found = Candidates(game, objective, self.problem)
        self._programmes: dict[Any, PointProgramme] = {}
        self.solves = self.warm = self.slices = 0
        self._settled_for: Candidate | None = None
        # volunteers that were tried, and between which totals
        self._guessed: dict[bytes, tuple[float, float]] = {}
        self.settled: PointAnswer | None = None  # a local optimum, with multipliers that do not change with S

    @property
    def incumbent(self) -> float:
        """Value of the best profile; without one, a value that no feasible profile exceeds."""
        if self.found.best is not None:
            return self.found.best.value / self.problem.unit_loss
        return self.worst

    @property
    def gap(self) -> float:
        """The gap to close at the best profile, in normalised units."""
        value = np.inf if self.found.best is None else self.found.best.value
        return CLOSED_PART * gap_at(self.asked_gap, value) / self.problem.unit_loss

    @cached_property
    def worst(self) -> float:
        """No feasible profile has a larger objective: the loss at its cap or at the furthest client, every cost paid."""
        p = self.problem
        loss = (
            p.loss_square * float(p.diagonal.max()) + 2.0 * float(np.abs(p.loss_pull).max()) + p.loss_constant
        )
        if p.noise.any() or p.loss_sampling:
            loss += (float(p.noise.max()) + p.loss_sampling) / max(p.floor, SMALLEST_TOTAL)
        spend = min(p.budget, p.payment_unit * float(p.theta @ p.alpha))
        return (p.loss_weight * min(loss, p.loss_cap) + p.payment_weight * spend) * (1.0 + GENEROUS)

    @property
    def target(self) -> float:
        """A box with a bound of at least this is closed."""
        return self.incumbent - self.gap if self.found.best is not None else self.worst

    def solve(self, total: float, classes: Classes, near: PointAnswer | None = None) -> PointAnswer | None:
        """Return the relaxation at one total, with what a box knows about the clients; from an answer nearby if that works."""
        if not np.isfinite(classes.ceiling).all():  # the box reaches down to 0, this point does not
            here = self.problem.reach + 0.5 * self.problem.client_sampling / total
            classes = replace(classes, ceiling=np.minimum(classes.ceiling, here))
        if near is not None and near.excess <= HELD:
            answer = warm(self.problem, classes, near, total, SHRINK)
            if answer is not None:
                self.warm += 1
                return answer
        quick = self._by_slice(total, classes) if self.game.count > CONE else None
        if quick is not None:
            return quick
        best: PointAnswer | None = None
        for penalty in PENALTIES:
            if clock() > self.deadline:
                break
            answer = self._programme(classes, penalty).solve(total)
            self.solves += 1
            if answer is not None and (best is None or answer.bound > best.bound):
                best = answer
            if best is not None and (best.excess <= HELD or best.bound > self.target):
                break
        return best

    def _by_slice(self, total: float, classes: Classes) -> PointAnswer | None:
        """Solve the relaxation by the special method, if polishing adds the missing rows or none is needed."""
        p, owned = self.problem, float(self.problem.alpha[classes.volunteer].sum())
        if not p.loss_square or owned >= total * SOME_ROOM:
            return None
        rough = by_slice(p, classes, total, PENALTIES[1], SHRINK, lambda: clock() > self.deadline)
        self.slices += 1
        polished = (
            warm(p, classes, rough, total, SHRINK) if rough is not None and rough.excess <= HELD else None
        )
        return polished or (rough if rough is not None and rough.bound > self.target else None)

    def _programme(self, classes: Classes, penalty: float) -> PointProgramme:
        """Return the cone programme for what is known, built once."""
        exponent = self._exponent()
        key = (exponent, penalty, classes.paid.tobytes(), classes.volunteer.tobytes())
        programme = self._programmes.get(key)
        free = ~(classes.paid | classes.volunteer)
        if programme is None or np.any(classes.ceiling[free] < 0.99 * programme.classes.ceiling[free]):
            if len(self._programmes) >= 64:
                self._programmes.pop(next(iter(self._programmes)))
            programme = PointProgramme(self.problem, classes, 4.0**exponent, penalty, SHRINK, self.deadline)
            self._programmes[key] = programme
        return programme

    def _exponent(self) -> int:
        """``||m||`` at the incumbent as a power of 4: the scale at which the cone programmes are well conditioned."""
        best = self.found.best
        if best is None:
            return -2
        m = self.game.profile(best.x).mixture @ self.problem.points
        tau = float(m @ m)
        return min(max(round(math.log(max(tau, ROUNDING)) / math.log(16.0)), -5), 0)

    def propose(self, answer: PointAnswer, classes: Classes) -> None:
        """Turn a relaxed point into feasible profiles: as it is, and with its volunteers guessed."""
        p, total, z = self.problem, answer.total, answer.z
        if answer.value > self.target or answer.excess > HELD:
            return
        if self.found.offer(total * z / p.alpha) or not answer.split.any():
            return
        keen = ~classes.paid & (
            p.squared_distances(z) + 0.5 * p.client_sampling / total >= p.theta * total * (1 - SAFETY)
        )
        tried: set[bytes] = set()
        for share in FULL_ENOUGH:
            volunteer = classes.volunteer | (keen & (total * z >= share * p.alpha))
            if volunteer.tobytes() in tried or float(p.alpha[volunteer].sum()) > total:
                continue
            tried.add(volunteer.tobytes())
            low, high = self._guessed.get(volunteer.tobytes(), (np.inf, 0.0))
            if low <= total <= high:
                return
            known = Classes(~volunteer, volunteer, classes.ceiling)
            guess = self.solve(total, known, answer)
            if guess is None or guess.excess > HELD or not self.found.offer(total * guess.z / p.alpha):
                continue
            # the same volunteers at their best total: other totals nearby need not be tried any more
            settled = optimum(p, known, guess, SHRINK)
            if settled is not None and self.found.offer(settled.total * settled.z / p.alpha):
                span = (low, high, total, settled.total)
                self._guessed[volunteer.tobytes()] = (min(span), max(span))
            return

    def settle(self) -> None:
        """After a new incumbent: its local optimum over S."""
        best = self.found.best
        if best is not None and best is not self._settled_for:
            self.refine()
            self._settled_for = self.found.best

    def explore(self, classes: Classes) -> list[PointAnswer]:
        """Solve at totals from the smallest that may matter up to 1, each proposing profiles; descending totals."""
        floor, best = self.objective.min_total, self.found.best
        middle = float(self.game.alpha @ best.x) if best is not None else 0.5
        grid = [middle * GRID_STEP**j for j in range(-2, 40)]
        totals = sorted({s for s in grid if max(floor, 0.0) < s < 0.97} | {1.0}, reverse=True)
        answers: list[PointAnswer] = []
        for total in totals:
            if clock() > self.deadline:
                break
            answer = self.solve(total, classes, answers[-1] if answers else None)
            if answer is not None:
                self.propose(answer, classes)
                answers.append(answer)
        self.settle()
        return answers

    def refine(self) -> None:
        """Move the incumbent's total to where, with its volunteers, the value is least (golden section)."""
        best = self.found.best
        if best is None:
            return
        p = self.problem
        volunteer = (best.x == 1.0) & (best.payments == 0.0)
        classes = Classes(~volunteer, volunteer, p.reach)
        at = float(self.game.alpha @ best.x)
        least = max(self.objective.min_total, float(p.alpha[volunteer].sum()))
        solved: list[PointAnswer] = []

        def value(total: float) -> float:
            close = min(solved, key=lambda a: abs(a.total - total), default=None)
            answer = self.solve(total, classes, close)
            if answer is None or answer.excess > HELD:
                return np.inf
            solved.append(answer)
            self.found.offer(total * answer.z / p.alpha)
            return answer.value

        def settled() -> bool:
            """Newton's method with S free, from the best answer; at a kink with the active sets of both sides."""
            if not solved:
                return False
            least = min(solved, key=lambda a: a.value)
            starts = [least]
            for side in (-1.0, 1.0):
                others = [a for a in solved if side * (a.total - least.total) > 0.0]
                if others and least.active is not None:
                    other = min(others, key=lambda a: abs(a.total - least.total))
                    if other.active is not None:
                        starts += [
                            replace(least, active=least.active.joined(other.active, free=free))
                            for free in (False, True)
                        ]
            for start, shrink in [(start, shrink) for shrink in (SHRINK, 0.0) for start in starts]:
                answer = optimum(p, classes, start, shrink)
                if answer is None or not self.found.offer(answer.total * answer.z / p.alpha):
                    continue
                if answer.value <= self.incumbent + self.gap:
                    self.settled = answer
                    return True
            return False

        value(at)
        if settled():
            return
        for side in (1.0 - ASIDE, 1.0 + ASIDE):
            if least < side * at < 1.0:
                value(side * at)
        if settled():
            return
        # of a budget that buys hardly anything, rounding decides how much is spent
        leaves_no_room = p.budget <= EXTRA_FIRST * self._worth(best.x) * p.payment_unit
        if (leaves_no_room or best.spend >= BUDGET_BINDS * self.objective.budget) and self.settle_from_above(
            classes, at
        ):
            return
        low, high = max(at / GRID_STEP, least), min(at * GRID_STEP, 1.0)
        golden = 0.6180339887498949
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = value(left), value(right)
        for _ in range(GOLDEN_STEPS):
            if clock() > self.deadline or high - low <= ONE_BRACKET * high:
                return
            if at_left <= at_right:
                high, right, at_right = right, left, at_left
                left = high - golden * (high - low)
                at_left = value(left)
            else:
                low, left, at_left = left, right, at_right
                right = low + golden * (high - low)
                at_right = value(right)
        settled()

    def _worth(self, x: Array) -> float:
        """Return what the clients who take part would cost at most, in units of the spend."""
        return float(self.problem.theta @ (self.problem.alpha * x))

    def settle_from_above(self, classes: Classes, at: float) -> bool:
        """Return the settled optimum where the budget leaves no room: the limit of budgets that do, from above.

        Where hardly anything can be bought, the budget's price may be unbounded: the loss falls as the root of what may be spent.
        Any multipliers bound it, and those of a budget that is larger by ``extra`` bound it as closely as the loss at that budget.
        """
        p, best = self.problem, self.found.best
        if best is None or not np.isfinite(p.budget):
            return False
        worth = self._worth(best.x)
        near: PointAnswer | None = None
        extra = EXTRA_FIRST * worth
        while extra >= EXTRA_LAST * worth and clock() < self.deadline:
            roomy = replace(p, budget=p.budget + extra * p.payment_unit)
            if near is None:
                radius = 4.0 ** self._exponent()
                rough = PointProgramme(roomy, classes, radius, PENALTIES[1], 0.0, self.deadline).solve(at)
                starts = [] if rough is None else [rough, *_spending(rough)]
            else:
                price = near.multipliers.budget / math.sqrt(EXTRA_STEP)
                starts = [replace(near, multipliers=replace(near.multipliers, budget=price))]
            found = next((a for a in (optimum(roomy, classes, start, 0.0) for start in starts) if a), None)
            if found is None:
                return False
            y = found.multipliers
            here = answer_at(
                p, classes, found.total, found.z, y.rows, y.budget, y.loss_cap, 0.0, found.active
            )
            if here.bound >= self.target:
                self.settled = here
                return True
            near, extra = found, EXTRA_STEP * extra
        return False

    def at_best(self, low: float, high: float, classes: Classes) -> PointAnswer | None:
        """Return the settled optimum if its total lies inside an interval and agrees with what is known there."""
        answer = self.settled
        if answer is None or not low * (1.0 + NARROWEST) < answer.total < high * (1.0 - NARROWEST):
            return None
        if (classes.paid & answer.classes.volunteer).any() or (
            classes.volunteer & ~answer.classes.volunteer
        ).any():
            return None
        return answer


def _spending(answer: PointAnswer) -> list[PointAnswer]:
    """Return the same answer with the guess that the budget is spent, as it is and with one tight row fewer."""
    guess = answer.active
    if guess is None:
        return []
    guesses = [guess.but(budget=True)]
    rows = np.where(guess.tight, np.abs(answer.multipliers.rows), np.inf)
    if guess.tight.any():
        guesses.append(guess.but(budget=True, loose=int(np.argmin(rows))))
    return [replace(answer, active=active) for active in guesses]

r"""Good plans fast: a local search in the clients' amounts ``y``, all at once, for linear payments and capped offers.

With ``S = sum y``, ``z = y / S``, ``m = sum z_k mu_k`` and the eagerness ``f_k = ||m - mu_k||^2 + a / (2 S) - theta_k S`` the
leader minimises a loss of (m, z, S) and the spend ``sum z_k (-f_k)_+`` subject to a budget, a floor, a cap on the loss and, under
linear payments, *roles*: eager clients take part fully, ``(1 - x_k) f_k <= 0`` with ``x_k = y_k / alpha_k``. All of these
depend on y through m, S and a few sums, so that a gradient takes four passes over the clients.

:class:`Descent` is an augmented Lagrangian of all limits, minimised with L-BFGS-B in ``y / sqrt(alpha)`` (J. Nocedal and S. Wright,
Numerical Optimization, chapter 17). Where the budget is small, the plans within it form a thin set that no descent enters
directly: the budget is halved again and again, from a tenth of all costs, and every round starts from the plan and the
multipliers of the last one. The spend's kinks at ``f_k = 0`` are smoothed by multipliers of their own. At the end roles are
fixed: eager clients with a large share take part fully, and the thresholds of the others become constraints. The result is
feasible up to rounding, and a small part of each limit is left unused for that.

>>> from stackfu.leader.bound import Problem
>>> from stackfu.leader.certified.points import ArrayPoints
>>> problem = Problem(np.array([0.5, 0.5]), np.array([0.4, 0.4]), ArrayPoints(np.array([[-0.5], [0.6]])), budget=0.05)
>>> met = []
>>> def offer(x):
...     met.append(x)
...     return True
>>> search = LocalSearch(problem, offer, lambda: False, loss=0.1)
>>> end = search.explore(np.array([1.0, 0.2]))
>>> met[-1].round(3), bool(Landscape(problem).look(problem.alpha * met[-1]).spend <= 0.05)
(array([0.944, 0.809]), True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from .bound import Problem
from .certified.points import ArrayPoints
from .tolerances import TINY

__all__ = ["Descent", "Landscape", "LocalSearch", "State"]

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: The first budget is this part of the price of full participation, and each one is about this part of the one before, unless so
#: many would not be enough.
FIRST_BUDGET, SMALLER, MOST_BUDGETS = 0.1, 0.5, 12
#: Rounds of multipliers at a budget on the way and at the last one, and steps in each.
ROUNDS, LAST_ROUNDS, DESCENT_STEPS = 6, 20, 80
#: On the way limits may be broken by this part of them.
ROUGHLY_MET = 1e-2
#: Pairs of steps that L-BFGS-B remembers, and so few where clients are more than so many.
MEMORY, SHORT_MEMORY, TOO_MANY_TO_REMEMBER = 20, 5, 100_000
#: L-BFGS-B ends when a step lowers the value by less than this part of it, or no slope is steeper than this.
FLAT_VALUE, FLAT_SLOPE = 1e-10, 1e-9
#: First price of a broken limit, what it grows by, and the part of the violation that has to go in a round for it not to grow.
FIRST_PRICE, STEEPER, PROGRESS = 10.0, 3.0, 0.3
#: Without a budget, searches for a smaller spend end when one keeps more than this part of the spend; the smallest unit of the
#: spend, relative to all costs.
CHEAPER, SMALLEST_SPEND = 0.7, 1e-6
#: Limits are met when they are broken by less than this part, and rounds end when the objective changes by less than this part.
LIMITS_MET, SAME_OBJECTIVE = 1e-6, 1e-6
#: Parts of the limits that are held back while roles are fixed, in turn, until rounding lets the plan pass.
HOLDS = (1e-6, 1e-5, 1e-4)
#: Amounts stay above this part of the square root of what a client owns: the mixture of no data is undefined.
LEAST_ROOT = 1e-14
#: Coordinates that reproduce all squared lengths to this, relative to the largest one, stand for the points.
EXACT = 1e-9
#: Coordinates with more entries than this are not copied.
LARGEST_COPY = 2**25
#: The smoothing of the spend's kinks: one over the eagerness over which it acts, in units of the median threshold.
SHARPNESS = 30.0
#: When roles are fixed, an eager client takes part fully if its share is above the first number, or above the second if its
#: eagerness is above the third, relative to the eagerness at which all clients together cost as much as the budget.
NEARLY, MOSTLY, CLEARLY_EAGER = 0.999, 0.5, 1e-2


class Point(NamedTuple):
    """A plan with what its gradients need."""

    y: Array
    total: float
    z: Array
    along: Array  # <mu_k, m>
    eager: Array  # f_k
    noise: float  # noise . z + A
    loss: float
    spend: float


class Landscape:
    """Loss, spend and eagerness as functions of the amounts."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.points = problem, problem.points
        if not isinstance(self.points, ArrayPoints) and problem.count * self.points.rank <= LARGEST_COPY:
            rows = np.ascontiguousarray(self.points.rows(np.arange(problem.count)))
            exact = self.points.diagonal
            if float(np.abs(exact - np.einsum("ij,ij->i", rows, rows)).max()) <= EXACT * float(exact.max()):
                self.points = ArrayPoints(rows)

    def look(self, y: Array) -> Point:
        """Return what amounts lead to: two passes."""
        p = self.problem
        total = float(y.sum())
        z = y / total
        m = self.points.combine(z)
        along = self.points.inner(m)
        square = self.points.dot(m, m, along)
        eager = self.points.diagonal - 2.0 * along
        eager += square + 0.5 * p.client_sampling / total
        eager -= p.theta * total
        noise = float((p.noise * z).sum()) + p.loss_sampling
        loss = p.square * square - 2.0 * float((p.pull * z).sum()) + p.constant + noise / total
        return Point(y, total, z, along, eager, noise, loss, float(self.spends(z, eager, total).sum()))

    def spends(self, z: Array, eager: Array, total: float) -> Array:
        """Return what each client is paid at most."""
        paid = np.asarray(z * np.maximum(-eager, 0.0))
        if self.problem.outside is None:
            return paid
        return np.maximum(paid, self.least_keeping(z, eager, total))

    def least_keeping(self, z: Array, eager: Array, total: float) -> Array:
        """Return what keeps clients who could leave."""
        p = self.problem
        stake = eager + p.theta * total
        assert p.outside is not None
        return np.asarray(p.theta * total * z + 0.5 * stake + 0.25 * p.client_sampling / total + p.outside)

    def slope(self, at: Point, of_loss: float, by_z: Array, by_eager: Array, by_total: float) -> Array:
        """Return the gradient in y of ``of_loss * loss`` and of a function with these partial derivatives: two passes."""
        p, v = self.problem, 1.0 / at.total
        all_eager = float(by_eager.sum())
        g = (2.0 * (of_loss * p.square + all_eager)) * at.along
        g -= 2.0 * self.points.inner(self.points.combine(by_eager))
        g += by_z + of_loss * (v * p.noise - 2.0 * p.pull)
        by_total -= float((by_eager * p.theta).sum()) + 0.5 * p.client_sampling * v * v * all_eager
        by_total -= of_loss * v * v * at.noise
        return np.asarray(v * (g - float(at.z @ g)) + by_total)


@dataclass(frozen=True, eq=False)
class State:
    """State of a descent: amounts, multipliers of budget, floor and cap in parts of the objective's unit, of roles, of kinks."""

    y: Array
    limits: Array
    rows: Array
    paid: Array  # between 0 and 1: how much of the spend's slope counts
    penalties: tuple[float, float]  # of limits, of roles
    sharpness: float


class Partials(NamedTuple):
    """The augmented Lagrangian at a point, and its derivatives."""

    value: float
    of_loss: float
    of_spend: float
    by_z: Array
    by_eager: Array
    by_total: float
    direct: Array | float  # by amounts, at the same mixture and total


class Descent:
    """The augmented Lagrangian of one problem, with free or with fixed roles.

    Parameters
    ----------
    landscape
        The problem.
    unit
        The objective's unit, for instance its value without payments.
    budget
        The budget to keep.
    scale
        What is spent, roughly: the unit of broken budgets and thresholds.
    volunteers
        Clients who are full, where roles are fixed; None where they are free.
    hold
        Part of budget and thresholds that is held back.
    """

    def __init__(
        self,
        landscape: Landscape,
        unit: float,
        budget: float,
        scale: float,
        volunteers: Mask | None = None,
        hold: float = 0.0,
    ) -> None:
        p = landscape.problem
        self.landscape, self.unit, self.scale = landscape, max(unit, TINY), max(scale, TINY)
        self.volunteers, self.hold = volunteers, hold
        self.roles = not p.capped
        self.roots = np.sqrt(p.alpha)
        # by which part of itself each limit is broken: spend, floor, loss
        self.there_is = np.array(
            [np.isfinite(budget), p.floor > 0.0, np.isfinite(p.loss_cap) and p.loss_cap > 0.0]
        )
        self.most = np.array([budget * (1.0 - hold), p.floor * (1.0 + hold), p.loss_cap * (1.0 - hold)])

    def start(self, x: Array) -> State:
        """Return a state with multipliers of 0."""
        p = self.landscape.problem
        y = np.maximum(x, 0.0) * p.alpha
        at = self.landscape.look(np.maximum(y, LEAST_ROOT * self.roots))
        paid = np.where((x < 1.0 - LIMITS_MET) | (at.eager < 0.0), 1.0, 0.0)
        typical = max(float(np.median(p.theta)) * at.total, TINY)
        return State(y, np.zeros(3), np.zeros(p.count), paid, (FIRST_PRICE, FIRST_PRICE), SHARPNESS / typical)

    def broken(self, spend: float, at: Point) -> Array:
        """Return by which part of itself each limit is broken, -1 where there is none."""
        spend_limit, floor, cap = self.most
        with np.errstate(invalid="ignore", divide="ignore"):
            by = np.array(
                [(spend - spend_limit) / self.scale, (floor - at.total) / floor, at.loss / cap - 1.0]
            )
        return np.where(self.there_is, by, -1.0)

    def smoothed(self, at: Point, state: State) -> tuple[Array, Array]:
        """Return the multipliers of the kinks at a point and, per share, the smoothed prices, which are never too large."""
        paid = np.clip(state.paid - state.sharpness * at.eager, 0.0, 1.0)
        return paid, -paid * at.eager - (paid - state.paid) ** 2 / (2.0 * state.sharpness)

    def role_breaks(self, at: Point, threshold: float) -> tuple[Array, Array]:
        """Return ``room_k f_k`` in units of ``threshold``, and the room: ``1 - x_k``, or 0 and 1 where roles are fixed."""
        p = self.landscape.problem
        if self.volunteers is None:
            room = np.maximum(1.0 - at.y / p.alpha, 0.0)
        else:
            room = np.where(self.volunteers, 0.0, 1.0)
        return room * (at.eager + self.hold * at.total * p.theta) / threshold, room

    def partials(self, at: Point, state: State, threshold: float) -> Partials:
        """Return the augmented Lagrangian at a point with its derivatives in loss, shares, eagerness and total."""
        p, land = self.landscape.problem, self.landscape
        paid, prices = self.smoothed(at, state)
        spends, by_z, by_eager, by_total = at.z * prices, prices, -at.z * paid, 0.0
        if p.outside is not None:
            least = land.least_keeping(at.z, at.eager, at.total)
            keeps = least > spends
            spends = np.where(keeps, least, spends)
            by_z = np.where(keeps, p.theta * at.total, prices)
            by_eager = np.where(keeps, 0.5, by_eager)
            kept = p.theta * (at.z + 0.5) - 0.25 * p.client_sampling / at.total**2
            by_total = float(kept[keeps].sum())
        spend = float(spends.sum())
        penalty, steep = state.penalties
        pushed = np.maximum(state.limits + penalty * self.broken(spend, at), 0.0)
        of_loss = p.loss_weight / self.unit + (pushed[2] / self.most[2] if self.there_is[2] else 0.0)
        of_spend = p.payment_weight / self.unit + (pushed[0] / self.scale if self.there_is[0] else 0.0)
        value = (p.loss_weight * at.loss + p.payment_weight * spend) / self.unit
        value += float((pushed**2 - state.limits**2).sum()) / (2.0 * penalty)
        by_total = of_spend * by_total - (pushed[1] / self.most[1] if self.there_is[1] else 0.0)
        by_eager = of_spend * by_eager
        direct: Array | float = 0.0
        if self.roles:
            breaks, room = self.role_breaks(at, threshold)
            push = np.maximum(state.rows + steep * breaks, 0.0)
            value += float((p.alpha * (push**2 - state.rows**2)).sum()) / (2.0 * steep)
            wanted = p.alpha * push * room / threshold
            by_eager = by_eager + wanted
            by_total += self.hold * float((wanted * p.theta).sum())
            if self.volunteers is None:
                direct = -push * at.eager / threshold
        return Partials(value, of_loss, of_spend, of_spend * by_z, by_eager, by_total, direct)

    def threshold(self, state: State) -> float:
        """Return the eagerness at which all clients together cost as much as the budget: the unit of thresholds."""
        return self.scale / max(float(state.y.sum()), TINY)

    def run(self, state: State, rounds: int, late: Callable[[], bool], enough: float = LIMITS_MET) -> State:
        """Return the state after some rounds of multipliers."""
        p, roots = self.landscape.problem, self.roots
        least = np.zeros(p.count) if self.volunteers is None else np.where(self.volunteers, roots, 0.0)
        bounds = np.stack([least, roots], axis=1)
        threshold = self.threshold(state)
        before, last, kinks = np.full(2, np.inf), np.inf, np.inf

        options = {
            "maxiter": DESCENT_STEPS,
            "maxcor": MEMORY if p.count <= TOO_MANY_TO_REMEMBER else SHORT_MEMORY,
            "ftol": FLAT_VALUE,
            "gtol": FLAT_SLOPE,
        }

        def stop(_: Array) -> None:
            if late():
                raise StopIteration

        def lagrangian(s: Array) -> tuple[float, Array]:
            at = self.landscape.look(np.maximum(s, LEAST_ROOT) * roots)
            d = self.partials(at, state, threshold)
            slope = self.landscape.slope(at, d.of_loss, d.by_z, d.by_eager, d.by_total)
            return d.value, (slope + d.direct) * roots

        for number in range(rounds):
            s = np.clip(state.y / roots, least, roots)
            found = minimize(
                lagrangian, s, jac=True, method="L-BFGS-B", bounds=bounds, callback=stop, options=options
            )
            y = np.maximum(np.asarray(found.x), LEAST_ROOT) * roots
            at = self.landscape.look(y)
            paid, prices = self.smoothed(at, state)
            smooth = float((at.z * prices).sum()) if p.outside is None else at.spend
            broken = self.broken(smooth, at)
            breaks = self.role_breaks(at, threshold)[0] if self.roles else np.zeros(1)
            limits = np.maximum(state.limits + state.penalties[0] * broken, 0.0)
            rows = np.maximum(state.rows + state.penalties[1] * breaks, 0.0) if self.roles else state.rows
            now = np.array(
                [
                    max(float(self.broken(at.spend, at).max()), 0.0),
                    float((p.alpha * np.maximum(breaks, 0.0)).sum()),
                ]
            )
            unsmooth = abs(at.spend - smooth) / self.scale if self.there_is[0] or p.payment_weight else 0.0
            value = (p.loss_weight * at.loss + p.payment_weight * at.spend) / self.unit
            steeper = (number > 0) & (now > np.maximum(LIMITS_MET, PROGRESS * before))
            penalty, steep = np.array(state.penalties) * np.where(steeper, STEEPER, 1.0)
            sharp = STEEPER if number > 0 and unsmooth > max(LIMITS_MET, PROGRESS * kinks) else 1.0
            state = State(y, limits, rows, paid, (float(penalty), float(steep)), sharp * state.sharpness)
            settled = enough > LIMITS_MET or abs(value - last) <= SAME_OBJECTIVE * abs(value)
            before, last, kinks = now, value, unsmooth
            if late() or (number > 0 and now.max() <= enough and settled):
                break
        return state


class LocalSearch:
    """Plans that are better and better, each of them offered to the caller, who judges it.

    Parameters
    ----------
    problem
        The leader's problem in normalised units.
    offer
        Told of every plan, as participation; returns True if it is feasible.
    late
        True once the search has had its time.
    loss
        The loss's size, for instance without payments.
    """

    def __init__(
        self, problem: Problem, offer: Callable[[Array], bool], late: Callable[[], bool], loss: float
    ) -> None:
        self.problem, self.offer, self.late, self.loss = problem, offer, late, loss
        self.landscape = Landscape(problem)
        full = float((problem.theta * problem.alpha).sum())
        self.scale = problem.budget if np.isfinite(problem.budget) else full
        self.unit = problem.loss_weight * loss + problem.payment_weight * self.scale

    def descent(self, volunteers: Mask | None = None, hold: float = 0.0) -> Descent:
        """Return the descent at the budget that counts, with free or with fixed roles."""
        return Descent(self.landscape, self.unit, self.problem.budget, self.scale, volunteers, hold)

    def explore_sample(self, x: Array, chosen: npt.NDArray[np.intp], few: Problem) -> None:
        """Search from a plan for a sample of the clients, then place all clients at the multipliers of that search."""
        small = LocalSearch(few, lambda _: True, self.late, self.loss)
        state = small.explore(x[chosen])
        if state is not None and not self.late():
            self.scale, self.unit = small.scale, small.unit
            self.improve(x, self.ask(small, chosen, state))

    def explore(self, x: Array) -> State | None:
        """Search from a plan, from large budgets to the one that counts; where it ends, None if there is no budget."""
        p = self.problem
        if not p.budget > 0.0:
            return None
        state = None
        if np.isfinite(p.budget) and p.loss_weight > 0.0:
            first = FIRST_BUDGET * self.landscape.look(p.alpha).spend
            steps = min(int(np.ceil(np.log(max(first / p.budget, 1.0)) / -np.log(SMALLER))), MOST_BUDGETS)
            for budget in np.geomspace(first, p.budget, steps + 1)[:-1] if steps else ():
                descent = Descent(self.landscape, self.unit, budget, budget)
                state = descent.run(_fresh(state) or descent.start(x), ROUNDS, self.late, ROUGHLY_MET)
        elif p.payment_weight > 0.0:
            state = self._cheaper(x)
        return self.improve(x, state)

    def _cheaper(self, x: Array) -> State:
        """Search where the spend is an objective and not limited: the units follow what is spent."""
        p = self.problem
        state: State | None = None
        at = self.landscape.look(np.maximum(x, LEAST_ROOT) * p.alpha)
        least = SMALLEST_SPEND * float((p.theta * p.alpha).sum())
        self.scale = max(at.spend, least)
        while True:
            unit = p.loss_weight * at.loss + p.payment_weight * self.scale
            if state is not None:
                state = replace(state, limits=state.limits * (self.unit / unit))
            self.unit = unit
            descent = Descent(self.landscape, unit, np.inf, self.scale)
            state = descent.run(_fresh(state) or descent.start(x), ROUNDS, self.late, ROUGHLY_MET)
            at = self.landscape.look(state.y)
            if at.spend > CHEAPER * self.scale or self.scale <= least or self.late():
                return state
            self.scale = max(at.spend, SMALLER**3 * self.scale, least)

    def improve(self, x: Array, state: State | None = None) -> State | None:
        """Search from a plan, or from where an earlier search is, at the budget that counts; where it ends, None without one."""
        if not self.problem.budget > 0.0:
            return state
        descent = self.descent()
        state = descent.run(_fresh(state) or descent.start(x), LAST_ROUNDS, self.late)
        return self.settle(state)

    def known(self, x: Array, budget: float, loss_cap: float, rows: Array) -> State:
        """Return the state at a plan with prices of the budget, of the cap on the loss and of thresholds that are known."""
        p = self.problem
        descent = self.descent()
        state = descent.start(x)
        limits = np.array([budget * self.scale, 0.0, loss_cap * min(p.loss_cap, 1.0 / TINY)]) / self.unit
        rows = np.maximum(rows, 0.0) * (descent.threshold(state) / self.unit) / p.alpha
        return replace(state, limits=limits, rows=rows)

    def settle(self, state: State) -> State:
        """Fix the roles, solve for the others again, and offer the plan."""
        p = self.problem
        at = self.landscape.look(state.y)
        x = at.y / p.alpha
        clearly = at.eager > CLEARLY_EAGER * self.scale / at.total
        volunteers = (at.eager > 0.0) & (x > np.where(clearly, MOSTLY, NEARLY))
        if not p.capped:
            rows = np.where(volunteers, 0.0, state.rows * np.maximum(1.0 - x, 0.0))
            state = replace(state, y=np.where(volunteers, p.alpha, state.y), rows=rows)
        for hold in HOLDS:
            fixed = None if p.capped else volunteers
            state = self.descent(fixed, hold).run(state, ROUNDS, self.late)
            if self.offer(np.clip(state.y / p.alpha, 0.0, 1.0)) or self.late():
                break
        return state

    def ask(self, few: LocalSearch, chosen: npt.NDArray[np.intp], state: State) -> State:
        """Return where all clients are at the prices that a search among a sample of them led to: in or out."""
        p, sample = self.problem, few.problem
        y = np.zeros(p.count)
        y[chosen] = state.y
        at = self.landscape.look(y)
        descent = few.descent()
        d = descent.partials(few.landscape.look(state.y), state, descent.threshold(state))
        by_eager = np.zeros(p.count)
        by_eager[chosen] = d.by_eager
        slope = self.landscape.slope(
            at, d.of_loss, d.of_spend * np.maximum(-at.eager, 0.0), by_eager, d.by_total
        )
        asked = np.where((slope < 0.0) | (at.eager > 0.0), 1.0, 0.0)
        rows = np.zeros(p.count)
        rows[chosen] = state.rows * sample.alpha / p.alpha[chosen]
        return replace(self.descent().start(asked), limits=state.limits, rows=rows)


def _fresh(state: State | None) -> State | None:
    """Return a state with the first penalties."""
    return None if state is None else replace(state, penalties=(FIRST_PRICE, FIRST_PRICE))

"""Multipliers to the last digits: Newton's method on the optimality conditions of the point programme.

An interior point method leaves multipliers good to seven digits or so; a gap of 1e-6 of a small loss needs more.
Which shares are at 0 or at their cap, which rows are tight, and whether the budget is spent can be read off its
answer, and with those fixed the optimality conditions are a small square system

    2 <mu_i, T m - M> - 2 ell pull_i + nu (theta_i S - diag_i) + ell v noise_i
        - pi_i S (R_i - theta_i S) / alpha_i = t                     where 0 < z_i < u_i
    sum z = 1,    spend = B,    loss = cap,    D_k = theta_k S       on tight rows
    v (D_k - theta_k S) = (R_k - theta_k S) z_k / alpha_k            where the hull binds

in z, t, beta, gamma and the multipliers of tight rows. Where the answer contradicts the guess (a share outside its
limits, a negative multiplier, a broken row) the guess is corrected and the system solved again. Nothing here needs to
be right: the bound is evaluated afterwards, and the better multipliers are kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...model import Array
from ._polish_kernels import polish_at, polish_jointly
from .payment_bound import Classes
from .payment_problem import HELD_BACK_AT_MOST, LeaderProblem

__all__ = ["ActiveSet", "polish", "polish_with_total"]

Mask = npt.NDArray[np.bool_]

#: Multipliers below this part of the weight of ``||m||^2`` do not tell which rows are tight.
NATURAL = 1e-4


class ActiveSet:
    """The guess: which shares move, which rows are tight, whether budget and loss cap bind."""

    def __init__(
        self,
        moving: Mask,
        capped: Mask,
        tight: Mask,
        eager: Mask,
        hull: Mask,
        budget: bool,
        loss_cap: bool,
    ) -> None:
        self.moving, self.capped, self.tight, self.eager, self.hull = moving, capped, tight, eager, hull
        self.budget, self.loss_cap = budget, loss_cap

    @classmethod
    def read(
        cls,
        problem: LeaderProblem,
        classes: Classes,
        total: float,
        z: Array,
        budget: float,
        loss_cap: float,
        at_zero: Array,
        at_cap: Array,
        steep: Array,
        gain: Array,
        no_gain: Array,
        hull: Array,
    ) -> ActiveSet:
        """Return the guess of an interior point: of a complementary pair, the larger one relative to its own size is not zero.

        Multipliers: of shares at 0 and at their caps, of rows (``steep``), of ``e_k >= 0`` (``no_gain``) and of the hull; ``gain``
        is ``e_k``.
        """
        p, u, full = problem, problem.alpha / total, classes.volunteer
        free = ~(classes.paid | full)
        nu = p.payment_unit * (p.payment_weight + budget)
        natural = NATURAL * (
            (p.loss_weight + loss_cap) * p.loss_square + nu
        )  # below this, multipliers are noise
        price = max(float(at_zero.max()), float(at_cap.max()), natural)
        capped = at_cap / price > (u - z) / u
        moving = ~capped & (at_zero / price < z / np.minimum(u, 1.0))  # shares add up to 1
        capped[full], moving[full] = True, False
        m = z @ p.points
        over = m @ m - 2.0 * (p.points @ m) + p.diagonal + 0.5 * p.client_sampling / total - p.theta * total
        active = steep / max(float(steep.max()), natural) > np.abs(over)
        eager = free & (gain > no_gain)
        left = (np.maximum(classes.ceiling, p.theta) - p.theta * total) * z / p.alpha - over / total
        on_hull = eager & (hull > np.abs(left))
        eager &= ~on_hull
        tight = active & ~eager & ~on_hull
        eager[full] = ~active[full]
        spent = False
        if np.isfinite(p.budget):
            paid_out = float(p.alpha @ np.where(classes.paid, 0.0, np.maximum(over, 0.0))) / total
            spent = budget > max(p.usable_budget(total) - (paid_out - float(z @ over)), 0.0)
        return cls(moving, capped, tight, eager, on_hull, spent, loss_cap > 0.0)

    def fitted(self, classes: Classes) -> ActiveSet:
        """Return a copy that respects what is known about the clients: volunteers are at their caps, paid ones gain nothing."""
        full, paid = classes.volunteer, classes.paid
        return ActiveSet(
            self.moving & ~full,
            self.capped | full,
            (self.tight | (paid & (self.eager | self.hull))) & ~(full & ~self.tight),
            (self.eager & ~paid) | (full & ~self.tight),
            self.hull & ~full & ~paid,
            self.budget,
            self.loss_cap,
        )

    def joined(self, other: ActiveSet, *, free: bool) -> ActiveSet:
        """Return the conditions that hold on either side of a total with a change of the active set: there both hold.

        A share that moves on one side only is ``free`` to move, or at the limit that it has reached.
        """
        moving = (self.moving | other.moving) if free else (self.moving & other.moving)
        return ActiveSet(
            moving,
            (self.capped | other.capped) & ~moving,
            self.tight | other.tight,
            self.eager & other.eager,
            self.hull & other.hull,
            self.budget or other.budget,
            self.loss_cap or other.loss_cap,
        )

    def but(self, *, budget: bool, loose: int | None = None) -> ActiveSet:
        """Return the same guess about everything but the budget and one row, which is not tight."""
        tight = self.tight.copy()
        if loose is not None:
            tight[loose] = False
        return ActiveSet(self.moving, self.capped, tight, self.eager, self.hull, budget, self.loss_cap)


def polish(
    problem: LeaderProblem,
    classes: Classes,
    total: float,
    shrink: float,
    z: Array,
    rows: Array,
    budget: float,
    loss_cap: float,
    guess: ActiveSet,
) -> tuple[Array, Array, float, float] | None:
    """Shares, row multipliers, budget and cap multipliers that solve the conditions; None if no guess leads to any.

    The guess is corrected in place.
    """
    p = problem
    z, rows = z.copy(), rows.copy()
    binds = np.array([guess.budget, guess.loss_cap])
    solved, budget, loss_cap = polish_at(
        *_data(p), p.gram, classes.paid, classes.volunteer, classes.ceiling, *_numbers(p),
        p.usable_budget(total), total, shrink, z, rows, budget, loss_cap,
        guess.moving, guess.capped, guess.tight, guess.eager, guess.hull, binds,
    )  # fmt: skip
    guess.budget, guess.loss_cap = bool(binds[0]), bool(binds[1])
    return (z, rows, budget, loss_cap) if solved else None


def polish_with_total(
    problem: LeaderProblem,
    classes: Classes,
    total: float,
    shrink: float,
    z: Array,
    rows: Array,
    level: float,
    budget: float,
    loss_cap: float,
    guess: ActiveSet,
) -> tuple[float, Array, Array, float, float] | None:
    """Return the conditions with S free as well: at a local optimum the Lagrangian does not change with S either.

        ell v^2 (noise.z + A) = nu [theta.z + a v^2 / 2 - sum_eager alpha_k (v^2 (D_k - theta_k S) + v (a v^2 / 2 + theta_k))]
                                - sum_tight P_k (a v^2 / 2 + theta_k) + v^2 sum_capped alpha_k (t - q_k)

    Where the optimum lies on the edge of the feasible totals the multipliers at that one S are not unique; these are
    the ones that bound both sides. The Jacobian is taken by differences. None if no guess converges to a point that
    respects all signs; the guess is corrected in place."""
    if guess.hull.any():
        return None
    p = problem
    z, rows = z.copy(), rows.copy()
    capped = guess.capped & ~guess.moving
    binds = np.array([guess.budget, guess.loss_cap])
    spend_room = p.usable_budget(0.0) if np.isfinite(p.budget) else np.inf
    solved, total, budget, loss_cap = polish_jointly(
        *_data(p), classes.paid, classes.volunteer, *_numbers(p),
        spend_room, p.spend_rounding, HELD_BACK_AT_MOST * p.budget / p.payment_unit,
        max(p.floor, float(p.alpha[classes.volunteer].sum())), total, shrink, z, rows, level, budget, loss_cap,
        guess.moving, capped, guess.tight, guess.eager, binds,
    )  # fmt: skip
    guess.capped, guess.budget, guess.loss_cap = capped, bool(binds[0]), bool(binds[1])
    return (total, z, rows, budget, loss_cap) if solved else None


def _data(p: LeaderProblem) -> tuple[Array, ...]:
    return p.points, p.alpha, p.theta, p.diagonal, p.noise, p.loss_pull


def _numbers(p: LeaderProblem) -> tuple[float, ...]:
    return (
        float(p.loss_square),
        float(p.loss_constant),
        float(p.loss_weight),
        float(p.payment_weight),
        float(p.payment_unit),
        float(p.loss_cap),
        float(p.client_sampling),
        float(p.loss_sampling),
    )

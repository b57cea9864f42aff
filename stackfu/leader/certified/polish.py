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
from .bound import Classes
from .problem import LeaderProblem

__all__ = ["ActiveSet", "polish", "polish_with_total"]

#: Corrections of the guess before giving up.
CORRECTIONS = 8
#: Newton steps per guess; convergence is quadratic.
NEWTON_STEPS = 6
#: Relative size of a residual that counts as solved.
SOLVED = 1e-13
#: Newton steps with S free, the residual that counts as solved there, and the relative step of differences.
JOINT_STEPS = 25
JOINTLY_SOLVED = 1e-12
DIFFERENCE = 1e-7
#: A residual above this after all steps: the conditions contradict each other.
UNSOLVED = 1e-9
#: Shares and multipliers may miss their limits by this without changing the guess.
TOUCHING = 1e-12

Mask = npt.NDArray[np.bool_]


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

    def fitted(self, classes: Classes) -> ActiveSet:
        """A copy that respects what is known about the clients: volunteers are at their caps, paid ones gain nothing."""
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

    def joined(self, other: ActiveSet) -> ActiveSet:
        """What holds on either side of a total where the active set changes: there both hold."""
        moving = self.moving | other.moving
        return ActiveSet(
            moving,
            (self.capped | other.capped) & ~moving,
            self.tight | other.tight,
            self.eager & other.eager,
            self.hull & other.hull,
            self.budget or other.budget,
            self.loss_cap or other.loss_cap,
        )

    def key(self) -> bytes:
        """Equal for equal guesses."""
        parts = (self.moving, self.capped, self.tight, self.eager, self.hull)
        return b"".join(part.tobytes() for part in parts) + bytes([bool(self.budget), bool(self.loss_cap)])


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
    """Shares, row multipliers, budget and cap multipliers that solve the conditions; None if no guess leads to any."""
    p, s, v = problem, total, 1.0 / total
    u = p.alpha * v
    half_a = 0.5 * p.client_sampling * v
    limit = p.theta * s * (1.0 - shrink)  # rows: D_k <= limit_k; volunteers: D_k >= theta_k S
    limit = np.where(classes.volunteer, p.theta * s * (1.0 + shrink), limit)
    roof = np.maximum(classes.ceiling, p.theta)
    free = ~(classes.paid | classes.volunteer)
    spendable = p.usable_budget(s)
    z, rows = z.copy(), rows.copy()
    level = 0.0
    seen: set[bytes] = set()
    for _ in range(CORRECTIONS):
        key = guess.key()
        if key in seen:
            return None
        seen.add(key)
        z_before, rows_before, multipliers_before = z.copy(), rows.copy(), (budget, loss_cap)
        moving, tight, hull = (np.flatnonzero(m) for m in (guess.moving, guess.tight, guess.hull))
        follow = guess.eager | guess.hull  # multiplier nu u_k (plus the hull's own)
        z[~guess.moving] = np.where(guess.capped, u, 0.0)[~guess.moving]
        own = np.zeros(len(z))
        nu = p.payment_unit * (p.payment_weight + (budget if guess.budget else 0.0))
        own[hull] = np.maximum(rows[hull] - nu * u[hull], 0.0)
        tight_rows = np.where(guess.tight, rows, 0.0)
        sizes = np.cumsum([len(moving), 1, int(guess.budget), int(guess.loss_cap), len(tight), len(hull)])
        n = int(sizes[-1])
        followed = u[follow] @ p.points[follow]
        weight_follow = float(u[follow].sum())
        budget = budget if guess.budget else 0.0
        loss_cap = loss_cap if guess.loss_cap else 0.0
        level_known = False
        for _ in range(NEWTON_STEPS):
            nu = p.payment_unit * (p.payment_weight + budget)
            ell = p.loss_weight + loss_cap
            m = z @ p.points
            tau = float(m @ m)
            inner = p.points @ m
            distance = tau - 2.0 * inner + p.diagonal + half_a
            all_rows = tight_rows + np.where(follow, nu * u, 0.0) + own
            weight = ell * p.loss_square + nu + float(all_rows.sum())
            q = (
                2.0 * (weight * inner - p.points @ (all_rows @ p.points) - ell * p.loss_pull)
                + nu * (p.theta * s - p.diagonal)
                + ell * v * p.noise
                - own * s * (roof - p.theta * s) / p.alpha
            )
            if not level_known:
                level = float(np.median(q[moving])) if len(moving) else level
                level_known = True
            residual = np.empty(n)
            jacobian = np.zeros((n, n))
            i0, i1, i2, i3, i4, i5 = (int(i) for i in sizes)
            at_moving = p.points[moving]
            residual[:i0] = q[moving] - level
            jacobian[:i0, :i0] = 2.0 * weight * (at_moving @ at_moving.T)
            jacobian[:i0, i0] = -1.0
            residual[i0] = z.sum() - 1.0
            jacobian[i0, :i0] = 1.0
            towards = 2.0 * inner[moving]
            spend = (
                s * float(p.theta @ z)
                - float(p.diagonal @ z)
                + tau
                - half_a
                + float(u[follow] @ (distance - p.theta * s)[follow])
            )
            loss = (
                p.loss_square * tau
                - 2.0 * float(p.loss_pull @ z)
                + p.loss_constant
                + v * (float(p.noise @ z) + p.loss_sampling)
            )
            if guess.budget:
                residual[i1] = spend - spendable
                slope = (
                    s * p.theta[moving]
                    - p.diagonal[moving]
                    + (1.0 + weight_follow) * towards
                    - 2.0 * at_moving @ followed
                )
                jacobian[i1, :i0] = slope
                jacobian[:i0, i1] = p.payment_unit * slope
            if guess.loss_cap:
                residual[i2] = loss - p.loss_cap * (1.0 - shrink)
                slope = p.loss_square * towards - 2.0 * p.loss_pull[moving] + v * p.noise[moving]
                jacobian[i2, :i0] = slope
                jacobian[:i0, i2] = slope
            if len(tight):
                residual[i3:i4] = (distance - limit)[tight]
                slope = towards[None, :] - 2.0 * p.points[tight] @ at_moving.T
                jacobian[i3:i4, :i0] = slope
                jacobian[:i0, i3:i4] = slope.T
            if len(hull):
                room = s * (roof - p.theta * s)[hull] / p.alpha[hull]
                residual[i4:i5] = (distance - p.theta * s)[hull] - room * z[hull]
                slope = towards[None, :] - 2.0 * p.points[hull] @ at_moving.T
                slope[hull[:, None] == moving[None, :]] -= room[np.isin(hull, moving)]
                jacobian[i4:i5, :i0] = slope
                jacobian[:i0, i4:i5] = slope.T
            size = np.abs(residual).max(initial=0.0)
            if not np.isfinite(size):
                return None
            if size <= SOLVED * max(1.0, abs(level)):
                break
            try:
                step = np.linalg.solve(jacobian, residual)
                if not np.isfinite(step).all() or np.abs(step).max() > 1e6:
                    raise np.linalg.LinAlgError
            except np.linalg.LinAlgError:
                try:
                    step = np.linalg.lstsq(jacobian, residual, rcond=1e-12)[0]
                except np.linalg.LinAlgError:
                    return None
            z[moving] -= step[:i0]
            level -= float(step[i0])
            if guess.budget:
                budget -= float(step[i1])
            if guess.loss_cap:
                loss_cap -= float(step[i2])
            tight_rows[tight] -= step[i3:i4]
            own[hull] -= step[i4:i5]
        if size > UNSOLVED:
            # more conditions than freedom: the weakest tight row is the one that is tight by accident
            if not len(tight):
                return None
            guess.tight[tight[np.argmin(np.abs(rows[tight]))]] = False
            z, rows = z_before.copy(), rows_before.copy()
            budget, loss_cap = multipliers_before
            continue
        # what contradicts the guess
        nu = p.payment_unit * (p.payment_weight + budget)
        rows = tight_rows + np.where(follow, nu * u, 0.0) + own
        changed = False
        below, above = guess.moving & (z < -TOUCHING * u), guess.moving & (z > u * (1.0 + TOUCHING))
        scale = max(abs(level), 1e-3)
        # a share at a limit that wants to leave it
        stays = ~guess.moving & ~classes.volunteer
        leaves = stays & np.where(guess.capped, q > level + 1e-9 * scale, q < level - 1e-9 * scale)
        slack = distance - np.where(classes.volunteer, p.theta * s, limit)
        most = nu * u
        if below.any() or above.any() or leaves.any():
            guess.moving = (guess.moving & ~below & ~above) | leaves
            guess.capped = (guess.capped & ~below & ~leaves) | above
            changed = True
        # tight rows whose multiplier has the wrong sign, loose rows that are broken
        wrong_low = guess.tight & ~classes.volunteer & (rows < -TOUCHING)
        wrong_high = guess.tight & (free | classes.volunteer) & (rows > most + TOUCHING)
        broken = ~guess.tight & ~guess.eager & ~guess.hull & ~classes.volunteer & (slack > 1e-11)
        fell = guess.eager & (slack < -1e-11)
        if wrong_low.any() or wrong_high.any() or broken.any() or fell.any():
            guess.tight = (guess.tight & ~wrong_low & ~wrong_high) | broken | fell
            guess.eager = (guess.eager & ~fell) | wrong_high
            changed = True
        lost = guess.hull & (own < -TOUCHING)
        if lost.any():
            guess.hull = guess.hull & ~lost
            guess.eager = guess.eager | lost
            changed = True
        room_left = (roof - p.theta * s) * s / p.alpha * z - (distance - p.theta * s)
        crossed = guess.eager & free & (room_left < -1e-11)
        if crossed.any():
            guess.hull = guess.hull | crossed
            guess.eager = guess.eager & ~crossed
            changed = True
        if (guess.budget and budget < 0.0) or (not guess.budget and spend > spendable * (1.0 + TOUCHING)):
            guess.budget, changed = not guess.budget, True
        if (guess.loss_cap and loss_cap < 0.0) or (not guess.loss_cap and loss > p.loss_cap):
            guess.loss_cap, changed = not guess.loss_cap, True
        if not changed:
            return z, rows, max(budget, 0.0), max(loss_cap, 0.0)
        z = np.clip(z, 0.0, u)
        rows = np.where(classes.volunteer, rows, np.maximum(rows, 0.0))
    return None


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
    """The conditions with S free as well: at a local optimum the Lagrangian does not change with S either.

        ell v^2 (noise.z + A) = nu [theta.z + a v^2 / 2 - sum_eager alpha_k (v^2 (D_k - theta_k S) + v (a v^2 / 2 + theta_k))]
                                - sum_tight P_k (a v^2 / 2 + theta_k) + v^2 sum_capped alpha_k (t - q_k)

    Where the optimum lies on the edge of the feasible totals the multipliers at that one S are not unique; these are
    the ones that bound both sides. The Jacobian is taken by differences. None if it does not converge to a point that
    respects all signs."""
    if guess.hull.any():
        return None
    p = problem
    moving, tight = np.flatnonzero(guess.moving), np.flatnonzero(guess.tight)
    eager, capped = guess.eager, guess.capped & ~guess.moving
    parts = np.cumsum([len(moving), 1, int(guess.budget), int(guess.loss_cap), len(tight), 1])
    i0, i1, i2, i3, i4, i5 = (int(i) for i in parts)

    def read(w: Array) -> tuple[float, Array, float, float, float, Array]:
        s = float(w[i4])
        shares = np.where(capped, p.alpha / s, 0.0)
        shares[moving] = w[:i0]
        own = np.zeros(len(shares))
        own[tight] = w[i3:i4]
        return (
            s,
            shares,
            float(w[i0]),
            float(w[i1]) if guess.budget else 0.0,
            float(w[i2]) if guess.loss_cap else 0.0,
            own,
        )

    def residual(w: Array) -> Array:
        s, shares, t, beta, gamma, own = read(w)
        v = 1.0 / s
        u = p.alpha * v
        half_a = 0.5 * p.client_sampling * v
        nu, ell = p.payment_unit * (p.payment_weight + beta), p.loss_weight + gamma
        m = shares @ p.points
        tau = float(m @ m)
        inner = p.points @ m
        gain = tau - 2.0 * inner + p.diagonal + half_a - p.theta * s
        every = own + np.where(eager, nu * u, 0.0)
        weight = ell * p.loss_square + nu + float(every.sum())
        q = (
            2.0 * (weight * inner - p.points @ (every @ p.points) - ell * p.loss_pull)
            + nu * (p.theta * s - p.diagonal)
            + ell * v * p.noise
        )
        scatter = float(p.noise @ shares) + p.loss_sampling
        out = [q[moving] - t, np.array([shares.sum() - 1.0])]
        if guess.budget:
            out.append(np.array([float(u[eager] @ gain[eager]) - float(shares @ gain) - p.usable_budget(s)]))
        if guess.loss_cap:
            loss = p.loss_square * tau - 2.0 * float(p.loss_pull @ shares) + p.loss_constant + v * scatter
            out.append(np.array([loss - p.loss_cap * (1.0 - shrink)]))
        edge = np.where(classes.volunteer, -shrink, shrink) * p.theta * s
        out.append((gain + edge)[tight])
        bend = half_a * v + p.theta
        with_s = (
            -ell * v * v * scatter
            + nu * (float(p.theta @ shares) + half_a * v - float(u[eager] @ (v * gain + bend)[eager]))
            - float(own @ bend)
            + v * float(u[capped] @ (t - q)[capped])
        )
        out.append(np.array([with_s]))
        return np.concatenate(out)

    w = np.concatenate(
        [
            z[moving],
            [level],
            [budget] if guess.budget else [],
            [loss_cap] if guess.loss_cap else [],
            rows[tight],
            [total],
        ]
    )
    with np.errstate(all="ignore"):
        for _ in range(JOINT_STEPS):
            at = residual(w)
            size = float(np.abs(at).max())
            if not np.isfinite(size):
                return None
            if size <= JOINTLY_SOLVED * max(1.0, abs(float(w[i0]))):
                break
            slopes = np.empty((i5, i5))
            for j in range(i5):
                h = DIFFERENCE * max(abs(float(w[j])), DIFFERENCE)
                moved = w.copy()
                moved[j] += h
                slopes[:, j] = (residual(moved) - at) / h
            if not np.isfinite(slopes).all():
                return None
            try:
                step = np.linalg.lstsq(slopes, at, rcond=1e-13)[0]
            except np.linalg.LinAlgError:
                return None
            reach = abs(float(step[i4])) / (0.2 * float(w[i4]))
            w = w - step / max(reach, 1.0)
        else:
            return None
    s, shares, _, beta, gamma, own = read(w)
    if not max(p.floor, float(p.alpha[classes.volunteer].sum())) <= s <= 1.0:
        return None
    u = p.alpha / s
    nu = p.payment_unit * (p.payment_weight + beta)
    if (shares < -TOUCHING * u).any() or (shares > u * (1.0 + TOUCHING)).any() or min(beta, gamma) < 0.0:
        return None
    if (own[tight] < -TOUCHING)[~classes.volunteer[tight]].any():
        return None
    return s, shares, own + np.where(eager, nu * u, 0.0), beta, gamma

"""Derivatives of a certified optimum: how objective, payments and participation change with budget, costs and the other numbers.

Near an optimum the clients that are out, full, paid and unpaid stay so, and the constraints that bind stay binding. On this
active set the optimum is a solution of a smooth system, the conditions of Karush, Kuhn and Tucker, which Newton's method
solves from the certified point and the implicit function theorem differentiates. Second derivatives and those with respect to
parameters are exact to rounding: they are taken by steps in the imaginary direction. What is assumed, and what is checked of
it, is in ``docs/theory/sensitivity.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..embedding.names import Position, listed
from ..errors import InputError, NotDifferentiableError
from ..model import Array, GameModel, frozen
from ..model.losses import Target
from .conditions import digits_of, is_singular

__all__ = ["OPTIMUM_OUTPUTS", "OPTIMUM_PARAMETERS", "OptimumDerivatives", "sensitivity_of_optimum"]

#: Parameters of an optimum, with what their derivatives are arranged by.
OPTIMUM_PARAMETERS: dict[str, str] = {
    "budget": "one number",
    "max_loss": "one number",
    "min_total": "one number",
    "costs": "one per remaining client",
    "sizes": "one per original client, costs unchanged",
    "lambda_q": "one number",
    "lambda_v": "one number",
    "lambda_s": "one number",
    "loss_constant": "one number",
    "sampling_constant": "one number",
}
#: Outputs, True where there is one number per client.
OPTIMUM_OUTPUTS: dict[str, bool] = {
    "payments": True,
    "participation": True,
    "samples": True,
    "objective": False,
    "server_loss": False,
    "spend": False,
    "total": False,
}
#: Parts of their scale up to which shares, brackets and slacks of the certified point are tried as zero.
NEARNESS = (1e-6, 1e-4, 1e-8, 1e-3)
#: Newton steps at most, and the part of the scale of the conditions at which they hold.
STEPS, SOLVED = 30, 1e-10
#: Multipliers and slacks that are less than this part of their scale do not tell on which side of a kink the optimum is.
STRICT = 1e-7
#: Part of the shares by which the last Newton step moves them, and a number below that of every scale.
SETTLED, TINY = 1e-14, 1e-300
#: Step in the imaginary direction: its square vanishes relative to 1.
STEP = 1e-30

Numbers = dict[str, Any]
Complex = npt.NDArray[np.complex128]


def sensitivity_of_optimum(solution: Any, parameter: str, of: str = "payments") -> Array:
    """Return the derivative of an output of a certified optimum; see :meth:`stackfu.Solution.sensitivity`."""
    return OptimumDerivatives(solution).derivative(parameter, of)


@dataclass(frozen=True)
class _Active:
    """The free, full and paid clients, and the binding constraints."""

    free: npt.NDArray[np.intp]
    full: npt.NDArray[np.intp]
    paid: npt.NDArray[np.bool_]
    volunteers: npt.NDArray[np.bool_]
    stuck: npt.NDArray[np.intp]
    limits: tuple[str, ...]


class OptimumDerivatives:
    """Derivatives of one certified optimum of linear payments.

    Raises
    ------
    InputError
        If the solution is not one of the certified search for payments per unit.
    NotDifferentiableError
        If no active set near the certified point satisfies the conditions strictly.

    Examples
    --------
    >>> from stackfu.demo import digits_game
    >>> derivatives = OptimumDerivatives(digits_game().solve(0.05, progress=False))
    >>> bool(derivatives.prices["budget"] > 0), derivatives.derivative("costs", "payments").shape
    (True, (7, 7))
    """

    def __init__(self, solution: Any) -> None:
        if solution.limits is None or solution.offers.kind != "linear" or solution.method != "certified":
            raise InputError(
                "solution",
                "must be one of the certified search for payments per unit",
                value=f"{solution.method}, {solution.offers.kind}",
            )
        if solution.robust:
            raise InputError("solution", "robust payments are no optimum of a smooth problem", value="robust")
        self.game: GameModel = solution.game
        self.goal = solution.goal
        self._read(solution)
        problems = []
        for near in NEARNESS:
            active = self._guess(np.array(solution.participation), near)
            try:
                self._solve(active, np.array(solution.participation))
            except NotDifferentiableError as error:
                problems.append(error)
                continue
            return
        raise problems[0]

    # ---------------------------------------------------------------- results

    @property
    def prices(self) -> dict[str, float]:
        """Return the multipliers of the limits: what relaxing each by one unit would save of the objective, at the margin."""
        named = dict.fromkeys(("budget", "max_loss", "min_total"), 0.0)
        for name, price in zip(self._active.limits, self._multipliers, strict=False):
            named[name] = float(price)
        return named

    def derivative(self, parameter: str, of: str = "payments") -> Array:
        """Return the derivative of an output with respect to a parameter: axes of the output, then of the parameter."""
        for argument, name, known in (
            ("parameter", parameter, OPTIMUM_PARAMETERS),
            ("of", of, OPTIMUM_OUTPUTS),
        ):
            if not isinstance(name, str) or name not in known:
                raise InputError(argument, f"must be one of {', '.join(known)}", value=repr(name))
        if parameter in ("lambda_v", "lambda_s") and not self.game.has_paper_loss:
            raise InputError(
                "parameter", "weighs the paper's loss; this game has a loss of its own", value=parameter
            )
        value = np.asarray(self._numbers[parameter], dtype=float)
        if parameter in ("budget", "max_loss", "min_total") and parameter not in self._active.limits:
            moves = [np.zeros(len(self._unknown))]  # a limit that does not bind
        else:
            moves = self._moves(parameter, value)
        columns = []
        for j, move in enumerate(moves):
            numbers = self._shifted(parameter, value, j)
            unknown = self._unknown + 1j * STEP * move
            columns.append(np.imag(self._output(of, unknown, numbers)) / STEP)
        found = np.stack(columns, axis=-1)
        shaped = found.reshape(*found.shape[:-1], *value.shape)
        return frozen(shaped if OPTIMUM_OUTPUTS[of] else shaped[0])

    def _moves(self, parameter: str, value: Array) -> list[Any]:
        """Return how the unknowns move with every entry of a parameter."""
        matrix = self._matrix
        moves = []
        for j in range(max(value.size, 1)):
            change = (
                np.imag(self._conditions(self._unknown.astype(complex), self._shifted(parameter, value, j)))
                / STEP
            )
            moves.append(-np.linalg.solve(matrix, change))
        return moves

    def _shifted(self, parameter: str, value: Array, j: int) -> Numbers:
        changed = np.array(value, dtype=complex).reshape(-1)
        changed[j] += 1j * STEP
        return {**self._numbers, parameter: changed.reshape(value.shape)[()]}

    # ---------------------------------------------------------------- the problem in numbers

    def _read(self, solution: Any) -> None:
        game = self.game
        keep = game.remaining
        emb, targets = game.embeddings, game.loss.targets
        points = np.array([t.values for t in targets if t.kind == "point"])
        if emb.features is not None:
            rows = np.asarray(emb.features, dtype=np.float64)
            rows = np.vstack([rows, points]) if len(points) else rows
            rows = rows - game.alpha @ rows[keep]
            self._products = rows @ rows.T
        else:
            weights = np.zeros(len(game.all_sizes))
            weights[keep] = game.alpha
            inner = np.array(emb._inner_products)
            means = inner @ weights
            self._products = inner - means[:, None] - means[None, :] + weights @ means
        self._certified = (float(solution.lower_bound), float(solution.objective))
        self._room = NEARNESS[0] * abs(self._certified[1])
        self._numbers: Numbers = {
            "budget": float(solution.budget),
            "max_loss": float(self.goal.max_loss),
            "min_total": float(self.goal.min_total),
            "costs": np.array(game.costs),
            "sizes": np.array(game.all_sizes),
            "lambda_q": game.lambda_q,
            "lambda_v": game.lambda_v,
            "lambda_s": game.lambda_s,
            "loss_constant": game.loss_constant,
            "sampling_constant": game.sampling_constant,
        }
        self._noisy = bool(self.goal.finite_sample or game.loss.sampling)

    def _shares(self, target: Target, sizes: Any, place: int) -> Any:
        shares = np.zeros(len(self._products), dtype=complex)
        everybody = len(self.game.all_sizes)
        if target.kind == "remaining":
            keep = self.game.remaining
            shares[keep] = sizes[keep] / sizes[keep].sum()
        elif target.kind == "original":
            shares[:everybody] = sizes / sizes.sum()
        elif target.kind == "mixture":
            shares[:everybody] = target.values
        else:
            before = sum(t.kind == "point" for t in self.game.loss.targets[:place])
            shares[everybody + before] = 1.0
        return shares

    def _noise(self, sizes: Complex) -> Any:
        """Return the variances of single samples, which depend on sizes where these are the numbers of samples embedded."""
        game = self.game
        known = game.sampling_noise
        if game.embeddings.sample_counts is not None:
            return known
        counts = sizes.sum() if game.is_homogeneous else sizes
        spread = 1.0 - game.embeddings.squared_norms[game.remaining]
        free = (game.noise_counts > 1.0) & (known < 1.0) & (spread > 0.0)
        return np.where(free, spread * counts / np.where(np.real(counts) == 1.0, 2.0, counts - 1.0), known)

    def _state(self, unknown: Complex, numbers: Numbers) -> Numbers:
        """Return everything that conditions and outputs are made of, with derivatives with respect to y."""
        game, active = self.game, self._active
        keep, sizes = game.remaining, numbers["sizes"] + 0j
        count = sizes[keep].sum()
        alpha = sizes[keep] / count
        y = np.zeros(game.count, dtype=complex)
        y[active.full] = alpha[active.full]
        y[active.free] = unknown[: len(active.free)]
        total = y.sum()
        z = np.zeros(len(self._products), dtype=complex)
        z[keep] = y / total
        towards = self._products @ z
        square = z @ towards
        lam = numbers["lambda_q"] * numbers["loss_constant"]
        a = numbers["sampling_constant"] / (numbers["loss_constant"] * count)
        inner = towards[keep]
        drift = np.diag(self._products)[keep] - 2.0 * inner + square
        drift_slopes = (
            2.0 / total * (inner[None, :] - self._products[np.ix_(keep, keep)] - square + inner[:, None])
        )
        wish = drift + a / (2.0 * total)
        wish_slopes = drift_slopes - a / (2.0 * total**2)
        brackets = numbers["costs"] - 2.0 * lam * alpha * wish / total
        bracket_slopes = -2.0 * lam * (alpha[:, None] / total) * (wish_slopes - (wish / total)[:, None])
        x = y / alpha
        paid = np.where(active.paid, brackets, 0.0)
        spend = x @ paid
        spend_slopes = paid / alpha + (x * active.paid) @ bracket_slopes
        weights = np.array(game.loss.weights, dtype=complex)
        if game.has_paper_loss:
            weights = np.array([numbers["lambda_v"], numbers["lambda_s"]]) * numbers["loss_constant"]
        weight = weights.sum()
        loss, loss_slopes = weight * a / total, np.full(game.count, -weight * a / total**2)
        for place, target in enumerate(game.loss.targets):
            gap = z - self._shares(target, sizes, place)
            pull = self._products @ gap
            loss = loss + weights[place] * (gap @ pull)
            loss_slopes = loss_slopes + 2.0 * weights[place] / total * (pull[keep] - z @ pull)
        shown = loss
        if self._noisy:
            variances = self._noise(sizes[keep])
            noise = weight * (y @ variances) / (count * total**2)
            loss = loss + noise
            loss_slopes = loss_slopes + weight * variances / (count * total**2) - 2.0 * noise / total
            shown = loss if game.loss.sampling else shown
        goal = self.goal
        return {
            "y": y, "x": x, "alpha": alpha, "total": total, "count": count, "brackets": brackets,
            "bracket_slopes": bracket_slopes, "payments": np.where(y == 0.0, 0.0, paid), "spend": spend,
            "spend_slopes": spend_slopes,
            "loss": loss, "loss_slopes": loss_slopes, "server_loss": shown,
            "objective": goal.loss_weight * loss + goal.payment_weight * spend,
            "slopes": goal.loss_weight * loss_slopes + goal.payment_weight * spend_slopes,
        }  # fmt: skip

    def _limits(self, state: Numbers, numbers: Numbers) -> tuple[list[Any], list[Any]]:
        """Return the binding constraints, each of which is zero and positive where it is violated, and their derivatives."""
        values, slopes = [], []
        for name in self._active.limits:
            if name == "budget":
                values.append(state["spend"] - numbers["budget"])
                slopes.append(state["spend_slopes"])
            elif name == "max_loss":
                values.append(state["loss"] - numbers["max_loss"])
                slopes.append(state["loss_slopes"])
            else:
                values.append(numbers["min_total"] - state["total"])
                slopes.append(-np.ones(self.game.count))
        for k in self._active.stuck:
            values.append(-state["brackets"][k])
            slopes.append(-state["bracket_slopes"][k])
        return values, slopes

    def _conditions(self, unknown: Complex, numbers: Numbers) -> Complex:
        """Return the derivatives of the Lagrangian in the free shares, and the binding constraints."""
        free = self._active.free
        state = self._state(unknown, numbers)
        values, slopes = self._limits(state, numbers)
        gradient = state["slopes"] + sum(
            (mu * slope for mu, slope in zip(unknown[len(free) :], slopes, strict=True)),
            np.zeros(self.game.count),
        )
        return np.concatenate([gradient[free], np.array(values, dtype=complex)])

    def _output(self, name: str, unknown: Complex, numbers: Numbers) -> Any:
        state = self._state(unknown, numbers)
        if name == "samples":
            return state["y"] * state["count"]
        return np.atleast_1d(state["x"] if name == "participation" else state[name])

    # ---------------------------------------------------------------- finding the active set and solving on it

    def _guess(self, x: Array, near: float) -> _Active:
        game = self.game
        free = np.flatnonzero((x > near) & (x < 1.0 - near))
        full = np.flatnonzero(x >= 1.0 - near)
        self._active = _Active(
            free, full, np.zeros(game.count, dtype=bool), np.zeros(game.count, dtype=bool), free[:0], ()
        )
        state = self._state((game.alpha * x)[free].astype(complex), self._numbers)
        brackets = np.real(state["brackets"]) / game.costs
        volunteers = np.zeros(game.count, dtype=bool)
        volunteers[full] = brackets[full] < -near
        stuck = np.flatnonzero((x < 1.0 - near) & (brackets <= near))
        paid = ~volunteers & (brackets > near)  # clients that are out would be paid if they took part
        spend = float((brackets * game.costs * np.where(x > near, x, 0.0))[paid].sum())
        limits = []
        budget = self._numbers["budget"]
        if np.isfinite(budget) and spend >= budget * (1.0 - max(near, NEARNESS[0])):
            limits.append("budget")
        if np.isfinite(self.goal.max_loss) and np.real(state["loss"]) >= self.goal.max_loss * (
            1.0 - max(near, NEARNESS[0])
        ):
            limits.append("max_loss")
        if self.goal.min_total > 0 and np.real(state["total"]) <= self.goal.min_total * (
            1.0 + max(near, NEARNESS[0])
        ):
            limits.append("min_total")
        return _Active(free, full, paid, volunteers, stuck, tuple(limits))

    def _solve(self, active: _Active, x: Array) -> None:
        self._active = active
        game, free = self.game, active.free
        start = (game.alpha * x)[free]
        state = self._state(start.astype(complex), self._numbers)
        _, slopes = self._limits(state, self._numbers)
        count = len(slopes)
        if count > len(free):
            raise self._refused("more constraints bind than clients are free to move")
        normals = np.array([np.real(s)[free] for s in slopes]).reshape(count, len(free))
        gradient = np.real(state["slopes"])[free]
        multipliers = np.linalg.lstsq(normals.T, -gradient, rcond=None)[0] if count else np.zeros(0)
        unknown = np.concatenate([start, multipliers])
        scale = max(float(np.abs(np.real(state["slopes"])).max()), TINY)
        for _ in range(STEPS):
            residual = np.real(self._conditions(unknown.astype(complex), self._numbers))
            matrix = self._jacobian(unknown)
            self._require_nonsingular(unknown, matrix)
            step = np.linalg.solve(matrix, -residual)
            unknown = unknown + step
            moved = float(np.abs(step[: len(free)]).max(initial=0.0))
            if not np.isfinite(unknown).all() or np.any(unknown[: len(free)] <= 0):
                raise self._refused("Newton's method leaves the certified point")
            if moved <= SETTLED * max(float(np.abs(start).max(initial=0.0)), TINY):
                break
        residual = np.real(self._conditions(unknown.astype(complex), self._numbers))
        if np.abs(residual[: len(free)]).max(initial=0.0) > SOLVED * scale:
            raise self._refused("no point near the certified one satisfies the conditions")
        self._unknown, self._matrix = unknown, self._jacobian(unknown)
        self._multipliers = unknown[len(free) :]
        self._require_nonsingular(unknown, self._matrix, solved=True)
        self._require_strict(x)

    def _jacobian(self, unknown: Array) -> Array:
        size = len(unknown)
        matrix = np.empty((size, size))
        for j in range(size):
            shifted = unknown.astype(complex)
            shifted[j] += 1j * STEP
            matrix[:, j] = np.imag(self._conditions(shifted, self._numbers)) / STEP
        return matrix

    def _require_nonsingular(self, unknown: Array, matrix: Array, solved: bool = False) -> None:
        """Refuse conditions that do not determine the point; of a solution, also those that rounding makes so."""
        if not len(matrix):
            return
        digits = digits_of(self.game)
        noise = digits * (np.abs(matrix) @ np.abs(unknown)) if solved else None
        if is_singular(matrix, digits, noise, lambda step: self._jacobian(unknown + step)):
            raise self._refused("the conditions do not determine the point")

    def _require_strict(self, x: Array) -> None:
        """Refuse points that are no local optimum, or that sit on a kink."""
        game, active = self.game, self._active
        free, state = active.free, self._state(self._unknown.astype(complex), self._numbers)
        y, alpha = np.real(state["y"]), np.real(state["alpha"])
        if np.any(y[free] >= alpha[free]) or np.any(np.abs(y / alpha - x) > 0.1):
            raise self._refused("Newton's method leaves the certified point")
        self._require_feasible(state)
        brackets = np.real(state["brackets"]) / game.costs
        regular = np.ones(game.count, dtype=bool)
        regular[active.stuck] = False
        wrong = regular & (np.where(active.volunteers, -brackets, brackets) <= STRICT)
        if wrong.any():
            raise self._refused(
                "they are about to be paid, or to take part for nothing", np.flatnonzero(wrong)
            )
        _, slopes = self._limits(state, self._numbers)
        gradient = np.real(state["slopes"]) + sum(
            (mu * np.real(slope) for mu, slope in zip(self._multipliers, slopes, strict=True)),
            np.zeros(game.count),
        )
        scale = max(float(np.abs(np.real(state["slopes"])).max()), TINY)
        out = np.setdiff1d(np.arange(game.count), np.concatenate([free, active.full]))
        held = np.zeros(game.count, dtype=bool)
        held[out] = gradient[out] <= STRICT * scale
        full = np.isin(np.arange(game.count), active.full)
        held |= active.paid & full & (gradient >= -STRICT * scale)
        if held.any():
            raise self._refused("it is about to pay for another amount of data", np.flatnonzero(held))
        weights = np.array([float(np.abs(np.real(s)[free]).max(initial=0.0)) for s in slopes])
        if np.any(self._multipliers * weights <= STRICT * scale):
            raise self._refused("a constraint binds but costs nothing")
        normals = np.array([np.real(s)[free] for s in slopes]).reshape(len(slopes), len(free))
        hessian = self._matrix[: len(free), : len(free)]
        _, values, basis = np.linalg.svd(normals, full_matrices=True)
        directions = basis[int((values > 0).sum()) :].T
        reduced = directions.T @ (0.5 * (hessian + hessian.T)) @ directions
        if reduced.size and np.linalg.eigvalsh(reduced).min() <= 0:
            raise self._refused("it is no strict local optimum")

    def _require_feasible(self, state: Numbers) -> None:
        """Refuse points beyond a limit that was taken not to bind, or with another objective than the certified one."""
        spend, loss, total = (float(np.real(state[name])) for name in ("spend", "loss", "total"))
        limits = self._numbers
        scale = float(self.game.costs.sum())
        beyond = {
            "budget": spend - limits["budget"] >= -STRICT * scale,
            "max_loss": loss - limits["max_loss"] >= -STRICT * abs(loss),
            "min_total": bool(limits["min_total"]) and limits["min_total"] - total >= -STRICT * total,
        }
        for name, broken in beyond.items():
            if broken and name not in self._active.limits:
                raise self._refused(f"{name} is about to bind")
        objective, low = float(np.real(state["objective"])), self._certified[0]
        if not low - self._room <= objective <= self._certified[1] + self._room:
            raise self._refused("Newton's method leaves the certified point")

    def _refused(self, why: str, places: npt.ArrayLike = ()) -> NotDifferentiableError:
        numbers = [Position(self.game.remaining[k]) for k in np.asarray(places, dtype=np.intp)]
        named = f" (clients {listed([self.game.called(k) for k in numbers[:10]])})" if numbers else ""
        return NotDifferentiableError(f"solution: the optimum has no derivative here: {why}{named}", numbers)

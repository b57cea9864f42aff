"""Equilibrium conditions at a profile, their derivatives, and which clients are at a threshold.

In the variables of :mod:`stackfu.model.profile`, with caps ``u_k = cap_k alpha_k``, a profile is an equilibrium iff

    g_k = d_k^2 + a / (2 S) - S w_k   is   <= 0 where y_k = 0,   = 0 where 0 < y_k < u_k,   >= 0 where y_k = u_k .

With ``C_jk = <mu_j - m, mu_k - m>`` the derivatives are

    d d_k^2 / d y_j = -(2 / S) C_kj,        d g_k / d y_j = -(2 / S) C_kj - a / (2 S^2) - w_k .
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..embedding.names import Position, listed
from ..errors import InputError, NotDifferentiableError
from ..judging.check_tolerances import NEGLIGIBLE
from ..model import Array, GameModel

__all__ = ["Conditions", "conditions_at", "digits_of", "is_singular"]

Places = npt.NDArray[np.intp]

#: Newton steps on the active set; each doubles the digits of a solver's answer, which has at least eight.
STEPS = 3
#: The totals of listed equilibria are those of exact ones to this part; a longer Newton step leads to something else.
NEAR = 1e-3
#: Derivatives that rounding could change by more than this part are refused.
ACCURACY = 1e-4


@dataclass(frozen=True, eq=False)
class Conditions:
    """The equilibrium conditions of a game at a profile y, and the active set of the equilibrium there.

    ``inside``, ``full`` and ``out`` are places of clients (among the remaining ones). Clients at a threshold are not among them:
    ``at_zero`` would take part at any larger payment, ``at_cap`` would hold back at any smaller one. A client with a cap of 0 that
    would take part is ``full``: it follows its cap.
    """

    game: GameModel
    payments: Array
    caps: Array
    y: Array
    total: float
    drift: Array
    g: Array
    w: Array
    drift_slopes: Array
    slopes: Array
    inside: Places
    full: Places
    out: Places
    at_zero: Places
    at_cap: Places

    @property
    def x(self) -> Array:
        """Participation of the clients."""
        return self.y / self.game.alpha

    @property
    def z(self) -> Array:
        """Mixture of the clients in the data that takes part."""
        return self.y / self.total

    @property
    def at_threshold(self) -> Places:
        """Clients at one of their two thresholds."""
        return np.sort(np.concatenate([self.at_zero, self.at_cap]))

    def names_of(self, places: npt.ArrayLike) -> tuple[str, tuple[int, ...]]:
        """Return clients for a message, and their numbers."""
        numbers = [Position(self.game.remaining[k]) for k in np.atleast_1d(places)]
        named = listed([self.game.called(k) for k in numbers[:10]])
        more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
        return f"client{'s' if len(numbers) > 1 else ''} {named}{more}", tuple(numbers)

    def require_regular(self, moving: Places) -> None:
        """Raise an error where the conditions of the clients that move do not determine how they move.

        Singular means: within rounding. The message says which of the two causes it is.
        """
        if not len(moving):
            return
        digits, block = digits_of(self.game), np.ix_(moving, moving)

        def shifted(step: Array) -> Array:
            y = np.array(self.y)
            y[moving] += step
            return np.asarray(_evaluated(self.game, self.payments, y)[5][block])

        noise = digits * _sizes_of_terms(self.game, self.payments, self.total, self.drift)[moving]
        if not is_singular(self.slopes[block], digits, noise, shifted):
            return
        size = len(moving)
        bordered = np.zeros((size + 1, size + 1))
        squares = self.drift_slopes[block]
        if (largest := float(np.abs(squares).max())) > 0.0:
            bordered[:size, :size] = squares / largest
        bordered[:size, size] = bordered[size, :size] = 1.0
        if is_singular(bordered, digits):
            named, numbers = self.names_of(moving)
            raise NotDifferentiableError(
                f"participation: {named} can trade: other shares of them make the same mixture, so how each of them moves is "
                "not determined",
                numbers,
            )
        raise NotDifferentiableError(
            f"participation: this equilibrium is a turning point at the total {self.total:.6g}, or too near to one: it meets "
            "another one there, and its derivative is infinite",
            self.names_of(moving)[1],
        )


def digits_of(game: GameModel) -> float:
    """Return the relative error of an inner product, at least that of a sum of as many numbers."""
    return float(game.count * max(game.rounding, float(np.finfo(np.float64).eps)))


def is_singular(
    matrix: Array, digits: float, noise: Array | None = None, shifted: Callable[[Array], Array] | None = None
) -> bool:
    """Return True if rounding can change solutions of systems with this matrix by more than :data:`ACCURACY`.

    Parameters
    ----------
    matrix
        The derivatives of some conditions at their solution.
    digits
        Rounding of the entries, relative to the largest of each row.
    noise
        Rounding of each condition, which moves the solution.
    shifted
        The derivatives at the solution moved by a step. Near a turning point a rounding of the conditions moves the solution so far
        that the matrix changes by as much as it lacks to being singular.
    """
    rows = np.abs(matrix).max(axis=1)
    if not np.all(rows > 0):
        return True
    columns = np.abs(matrix / rows[:, None]).max(axis=0)
    if not np.all(columns > 0):
        return True
    scale = np.outer(rows, columns)
    left, values, right = np.linalg.svd(matrix / scale)
    if values[-1] * ACCURACY <= digits * np.sqrt(len(matrix)):
        return True
    if shifted is None or noise is None:
        return False
    step = float(np.abs(left[:, -1] / rows) @ noise) / values[-1] * right[-1] / columns
    change = left[:, -1] @ ((shifted(step) - matrix) / scale) @ right[-1]
    return bool(not np.isfinite(change) or abs(change) > ACCURACY * values[-1])


def conditions_at(game: GameModel, payments: Array, participation: Array, caps: Array | None) -> Conditions:
    """Return the conditions and the active set at an equilibrium.

    The equilibrium is first made exact to rounding by Newton steps on the clients inside. A client is at a threshold if, out or
    at its cap, it has a slope of zero within :data:`~stackfu.judging.check_tolerances.NEGLIGIBLE` of its own stakes, the
    accuracy that is proved of an equilibrium.

    Raises
    ------
    InputError
        If the profile is no equilibrium of the payments.
    """
    most = game.no_caps if caps is None else caps
    top = most * game.alpha
    y = np.clip(game.alpha * participation, 0.0, top)
    asked = top > 0.0
    low = ~asked | (y <= NEGLIGIBLE * top)
    high = asked & (y >= (1.0 - NEGLIGIBLE) * top)
    y = np.where(low, 0.0, np.where(high, top, y))
    inside = np.flatnonzero(~low & ~high)
    y = _polished(game, payments, y, inside)
    total, drift, w, drift_slopes, g, slopes = _evaluated(game, payments, y)
    unit = total / game.drift_weight  # turns money per share into units of g
    stakes = unit * np.maximum(np.maximum(game.costs, payments), game.lam * drift)
    wrong = np.abs(g) / stakes
    level = wrong <= NEGLIGIBLE
    bad = np.where(inside_mask(game.count, inside), ~level, np.where(low, asked & (g > 0), g < 0) & ~level)
    if bad.any() or np.any(y < 0) or np.any(y > top):
        k = int(np.argmax(np.where(bad, wrong, 0.0)))
        raise InputError(
            "participation",
            "is no equilibrium of these payments to nine digits, which derivatives need",
            client=game.label(k),
            value=f"{participation[k]:.6g}",
        )
    return Conditions(
        game, payments, most, y, total, drift, g, w, drift_slopes, slopes,
        inside=inside,
        full=np.flatnonzero((high & ~level) | (~asked & ~level & (g > 0))),
        out=np.flatnonzero(low & ~level & (asked | (g < 0))),
        at_zero=np.flatnonzero(low & level),
        at_cap=np.flatnonzero(high & level),
    )  # fmt: skip


def inside_mask(count: int, inside: Places) -> npt.NDArray[np.bool_]:
    """Return a mask of the clients inside."""
    mask = np.zeros(count, dtype=bool)
    mask[inside] = True
    return mask


def _evaluated(game: GameModel, payments: Array, y: Array) -> tuple[float, Array, Array, Array, Array, Array]:
    """Return the total, squared distances, reluctances, their slopes, the conditions and their slopes."""
    total = float(y.sum())
    drift = game.geometry.drifts(y / total)
    everyone = np.arange(game.count)
    products = game.geometry.around(everyone, np.zeros(game.count)).products(y, total)
    drift_slopes = -2.0 / total * products
    w = game.reluctance_under(payments)
    g = drift - total * w + game.sampling / (2.0 * total)
    slopes = drift_slopes - (game.sampling / (2.0 * total**2) + w)[:, None]
    return total, drift, w, drift_slopes, g, slopes


def _sizes_of_terms(game: GameModel, payments: Array, total: float, drift: Array) -> Array:
    """Return the size of what is added up in each client's condition."""
    return np.asarray(drift + total * (game.costs + payments) / game.drift_weight + game.geometry.scale)


def _polished(game: GameModel, payments: Array, y: Array, inside: Places) -> Array:
    """Return the profile after Newton steps of the clients inside, as long as they shrink a residual that is more than rounding."""
    best, least = y, np.inf
    for _ in range(STEPS + 1 if len(inside) else 0):
        total, drift, _, _, g, slopes = _evaluated(game, payments, y)
        size = float((np.abs(g) / _sizes_of_terms(game, payments, total, drift))[inside].max())
        if not size < least:
            break
        best, least = y, size
        if size <= digits_of(game):
            break
        try:
            step = np.linalg.solve(slopes[np.ix_(inside, inside)], g[inside])
        except np.linalg.LinAlgError:
            break
        if not np.all(np.abs(step) <= NEAR * y[inside]):
            break
        y = np.array(y)
        y[inside] -= step
    return best

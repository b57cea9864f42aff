"""An independent check of an equilibrium: maximise every client's utility numerically, from its definition.

Nothing is shared with the solvers: not the variables y and S, not the closed form of the best response, not
the conditions on ``g_k``. With the others fixed, client k's utility at participation x is

    U_k(x) = (p_k - c_k) x - lam ||(sum_{i != k} alpha_i x_i mu_i + alpha_k x mu_k) / S(x) - mu_k||^2 - lam a / S(x),
    S(x) = sum_{i != k} alpha_i x_i + alpha_k x,

and it is compared with its largest value over a grid of [0, cap_k] that is refined around the best point.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..model import Array, FeatureGeometry, GameModel
from ..results import Equilibrium, Uniqueness, Verification
from ..results.facade import facade

__all__ = ["verify_equilibrium"]

#: Up to this many clients the equilibria are enumerated again where uniqueness is claimed.
LARGEST_ENUMERATION = 300
#: Clients are checked in blocks of this many.
_BLOCK = 4096


def verify_equilibrium(equilibrium: Equilibrium, tolerance: float = 1e-9) -> Verification:
    """Whether no client gains by deviating, in units of ``lam`` times the largest squared distance.

    Also recomputes the residual: where a client's condition is violated, its slope must be small beside all that it has at stake,
    ``max(c_k, p_k, 2 lam alpha_k d_k^2 / S)`` per unit (beside what is left of these when they cancel, rounding may look large).
    Checks that the reported regret and residual are not smaller than what is found, and that an equilibrium said to be the only
    one still is when they are enumerated again (in games small enough for that).
    """
    game, payments, x, caps = (
        equilibrium.game,
        equilibrium.payments,
        equilibrium.participation,
        equilibrium.caps,
    )
    scale = game.geometry.scale
    unit = game.lam * scale if scale > 0 else float(np.max(game.costs))
    most = game.no_caps if caps is None else caps
    if len(x) != game.count or np.any((x < 0) | (x > most)) or not np.any(x > 0):
        return Verification(False, np.inf, np.inf, tolerance, "the participation is no profile")
    residual = game.residual(payments, x, caps)
    gain, client = _largest_gain(game, payments, x, most)
    problems = []
    if gain > tolerance * unit:
        problems.append(f"client {game.who(client)} gains {gain:.3e} by deviating")
    wrong, own, stakes = _conditions(game, payments, x, most)
    if np.any(wrong > tolerance * stakes):
        problems.append(f"the equilibrium conditions are violated by {residual:.3e}")
    if gain > max(equilibrium.regret * (1.0 + 1e-6), 1e-12 * unit):
        problems.append(f"the reported regret {equilibrium.regret:.3e} is too small")
    if np.any(wrong > equilibrium.residual * own + tolerance * stakes):
        problems.append(f"the reported residual {equilibrium.residual:.3e} is too small")
    if equilibrium.uniqueness is Uniqueness.UNIQUE and game.count <= LARGEST_ENUMERATION:
        again = facade(game).equilibria(payments, caps=caps)
        if again.complete and again.uniqueness is not Uniqueness.UNIQUE:
            problems.append(f"said to be the only one, but enumerating again says {again.uniqueness.name}")
    message = "; ".join(problems) or f"no client gains more than {gain:.1e} by deviating"
    return Verification(not problems, residual, gain, tolerance, message)


def _conditions(game: GameModel, payments: Array, x: Array, caps: Array) -> tuple[Array, Array, Array]:
    """How far every client's slope ``dU_k / dx_k`` is from what its place asks for, its terms, and all its stakes per unit."""
    profile = game.profile(x)
    pull = 2.0 * game.lam * game.alpha * profile.to_clients / profile.total
    pull = pull + game.lam * game.alpha * game.sampling / profile.total**2
    net = payments - game.costs
    slope = net + pull
    wrong = np.maximum(np.where(x < caps, slope, 0.0), np.where(x > 0, -slope, 0.0))
    own = np.maximum(pull, np.abs(net))
    return np.maximum(wrong, 0.0), own, np.maximum(np.maximum(game.costs, payments), pull)


def _largest_gain(game: GameModel, payments: Array, x: Array, caps: Array) -> tuple[float, int]:
    """The largest gain found by search, and which client has it."""
    best, client = -np.inf, 0
    for start in range(0, game.count, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, game.count))
        rest, apart = _without(game, x, rows)
        gains = _search(game, payments, x, rows, rest, apart, caps[rows])
        k = int(np.argmax(gains))
        if gains[k] > best:
            best, client = float(gains[k]), start + k
    return max(best, 0.0) + 0.0, client  # + 0.0: no minus before a zero


def _without(game: GameModel, x: Array, rows: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """What the others bring, and how far their mixture is from client k: ``||mu_{-k} - mu_k||^2``."""
    weights = game.alpha * x
    rest = weights.sum() - weights[rows]  # exactly 0 for a sole participant: the others' weights are 0
    safe = np.where(rest > 0, rest, 1.0)
    geometry = game.geometry
    if isinstance(geometry, FeatureGeometry):
        own = np.asarray(geometry.features[geometry.remaining[rows]], dtype=np.float64)
        others = (geometry.combine(weights)[None, :] - weights[rows, None] * own) / safe[:, None]
        apart = np.einsum("ij,ij->i", others - own, others - own)
    else:
        mixtures = np.tile(weights, (len(rows), 1))
        mixtures[np.arange(len(rows)), rows] = 0.0
        mixtures /= safe[:, None]
        inner = mixtures @ geometry.gram
        square = np.einsum("ij,ij->i", inner, mixtures)
        own_square = np.diag(geometry.gram)[rows]
        apart = np.maximum(square - 2.0 * inner[np.arange(len(rows)), rows] + own_square, 0.0)
    return rest, np.where(rest > 0, apart, 0.0)


def _search(
    game: GameModel,
    payments: Array,
    x: Array,
    rows: npt.NDArray[np.intp],
    rest: Array,
    apart: Array,
    caps: Array,
) -> Array:
    """Gain over the current utility by the best of a grid on [0, cap], refined four times around it."""
    net = (payments - game.costs)[rows]
    alpha = game.alpha[rows]

    def gain(candidate: Array) -> Array:
        """``U_k(candidate) - U_k(x)``; a client facing nobody never sees drift."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(
                rest[:, None] > 0, rest[:, None] / (rest[:, None] + alpha[:, None] * candidate), 0.0
            )
            now = np.where(rest > 0, rest / (rest + alpha * x[rows]), 0.0)
        drift = game.lam * apart[:, None] * (share - now[:, None]) * (share + now[:, None])
        gained: Array = net[:, None] * (candidate - x[rows, None]) - drift
        if game.sampling > 0.0:
            total, after = float((game.alpha * x).sum()), rest[:, None] + alpha[:, None] * candidate
            with np.errstate(divide="ignore", invalid="ignore"):
                more = alpha[:, None] * (candidate - x[rows, None])
                gained = gained + game.lam * game.sampling * more / (total * after)
        return gained

    low, high = np.zeros(len(rows)), np.array(caps)
    best = np.zeros(len(rows))
    for _ in range(5):
        grid = low[:, None] + np.linspace(0.0, 1.0, 33) * (high - low)[:, None]
        # facing nobody, x = 0 leaves no mixture at all; only positive participation counts
        values = np.where((rest[:, None] > 0) | (grid > 0), gain(grid), -np.inf)
        place = np.argmax(values, axis=1)
        best = np.maximum(best, values[np.arange(len(rows)), place])
        width = (high - low) / 32.0
        centre = grid[np.arange(len(rows)), place]
        low, high = np.maximum(centre - width, 0.0), np.minimum(centre + width, caps)
    return best

"""An independent check of an equilibrium: maximise every client's utility numerically, from its definition.

Nothing is shared with the solvers: not the variables y and S, not the closed form of the best response, not
the conditions on ``g_k``. With the others fixed, client k's utility at participation x is

    U_k(x) = (p_k - c_k) x - lam ||(sum_{i != k} alpha_i x_i mu_i + alpha_k x mu_k) / S(x) - mu_k||^2 - lam a / S(x),
    S(x) = sum_{i != k} alpha_i x_i + alpha_k x,

and it is compared with its largest value over a grid of [0, cap_k] that is refined around the best point. What can be proved
about the same gain is :mod:`stackfu.judging.stakes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..model import Array, FeatureGeometry, GameModel
from ..model.game_model import require_formulas
from ..results import Equilibria, Equilibrium, Face, Uniqueness, Verification
from ..results.facade import facade
from .check_tolerances import FOUND_AGAIN, NEGLIGIBLE, REGRET_ROUNDING
from .completeness import LARGEST_ALIKE, check_alike
from .stakes import check_at_caps, check_stakes

__all__ = ["verify_equilibrium"]

#: Up to this many clients the equilibria are enumerated again where uniqueness is claimed.
LARGEST_ENUMERATION = 300
#: Faces that are found again agree with the stated ones to this, in participation: what a linear programme leaves.
FACE = 1e-7
#: Up to this many products every client's distance to the others is taken from their differences.
CLOSE_LOOK = 10_000_000
#: Clients are checked in blocks of this many.
_BLOCK = 4096


def verify_equilibrium(equilibrium: Equilibrium, tolerance: float = 1e-9) -> Verification:
    """Derive all claims of an equilibrium again from its game.

    The profile: nobody can gain more than ``tolerance`` of its own stakes (proved by :func:`stackfu.judging.stakes.check_stakes`;
    where the status claims no proof, a small residual will do). The numbers: regret and residual are what is found again. The
    word: UNIQUE, MULTIPLE and CONTINUUM are proved again, UNKNOWN claims nothing.
    """
    game, payments, x = equilibrium.game, equilibrium.payments, equilibrium.participation
    require_formulas(game)
    if len(x) != game.count or not np.all((x >= 0) & (x <= 1)) or not np.any(x > 0):
        return Verification(False, np.inf, np.inf, tolerance, "the participation is no profile")
    caps = game.check_caps(equilibrium.caps)
    if np.any(x > caps):
        k = int(np.argmax(x - caps))
        message = f"client {game.label(k)} takes part with {x[k]:.6g}, more than its cap {caps[k]:.6g}"
        return Verification(False, np.inf, np.inf, tolerance, message)
    with np.errstate(all="ignore"):  # what overflows is no number, and nothing is derived from it
        residual, regret = game.judge(payments, x, equilibrium.caps)
        found = _largest_gain(game, payments, x, caps)
        unit = max(float(np.max(np.maximum(game.costs, payments))), game.lam * game.geometry.scale)
        problems = [
            *_gains(equilibrium, residual, found, tolerance),
            *_numbers(equilibrium, residual, max(regret, found.gain), unit, tolerance),
            *_others(equilibrium),
        ]
    gains = f"gains more than {found.gain:.1e}" if found.gain else "gains anything"
    message = "; ".join(problems) or f"no client {gains} by deviating"
    return Verification(not problems, residual, found.gain, tolerance, message)


def _gains(equilibrium: Equilibrium, residual: float, found: Gain, tolerance: float) -> Iterator[str]:
    """Yield an error if a client gains by deviating, relative to its stakes."""
    game = equilibrium.game
    proved = check_stakes(game, equilibrium.payments, equilibrium.participation, equilibrium.caps)
    k = int(np.argmax(proved))
    if not proved[k] <= tolerance:
        if found.relative > tolerance:
            yield (
                f"client {game.label(found.client)} gains {found.gain:.3e} by deviating, "
                f"{found.relative:.3e} of its stakes"
            )
        if residual > tolerance:
            yield f"the equilibrium conditions are violated by {residual:.3e}"
    if equilibrium.status.proved and not proved[k] <= NEGLIGIBLE:
        yield f"said to be certified, but client {game.label(k)} may gain up to {proved[k]:.3e} of its stakes"


def _numbers(
    equilibrium: Equilibrium, residual: float, regret: float, unit: float, tolerance: float
) -> Iterator[str]:
    """Yield an error if the stated regret or residual is not that of the profile, up to the rounding of either computation."""
    stated = equilibrium.regret
    if not abs(stated - regret) <= FOUND_AGAIN * regret + REGRET_ROUNDING * unit or stated < 0:
        yield f"the reported regret {stated:.3e} is not what is found again, {regret:.3e}"
    stated = equilibrium.residual
    if not abs(stated - residual) <= FOUND_AGAIN * residual + tolerance or stated < 0:
        yield f"the reported residual {stated:.3e} is not what is found again, {residual:.3e}"


def _others(equilibrium: Equilibrium) -> Iterator[str]:
    """Yield errors in the claims about other equilibria: their number, and the face of this one."""
    word, face = equilibrium.uniqueness, equilibrium.face
    if face is None and (word is Uniqueness.UNKNOWN or (word is Uniqueness.UNIQUE and _alone(equilibrium))):
        return
    again: Equilibria | None = None
    if equilibrium.game.count <= LARGEST_ENUMERATION:
        proposed: Equilibria = facade(equilibrium.game).equilibria(
            equilibrium.payments, caps=equilibrium.caps
        )
        judged = proposed.complete and all(eq.status.proved for eq in proposed)
        again = proposed if judged else replace(proposed, uniqueness=Uniqueness.UNKNOWN)
    if word is not Uniqueness.UNKNOWN:
        yield from _word(equilibrium, Uniqueness.UNKNOWN if again is None else again.uniqueness)
    if face is not None:
        yield from _face(equilibrium, face, again)


def _face(equilibrium: Equilibrium, face: Face, again: Equilibria | None) -> Iterator[str]:
    """Yield an error if the face does not belong to an equilibrium with this total, or one of its points is no equilibrium."""
    game, payments, x = equilibrium.game, equilibrium.payments, equilibrium.participation
    total = float(game.alpha @ x)
    shapes = len(face.clients) == len(face.lower) == len(face.upper) and all(
        len(p) == game.count for p in face.points
    )
    if not shapes or not set(face.clients) <= set(game.remaining.tolist()):
        yield "the stated face is none of these clients"
        return
    for point in face.points:
        possible = bool(np.all((point >= 0) & (point <= game.check_caps(equilibrium.caps))) and point.any())
        if not possible or not check_stakes(game, payments, point, equilibrium.caps).max() <= NEGLIGIBLE:
            yield "a point of the stated face is no equilibrium"
            return
    if face.spend is not None:
        spends = [float(payments @ point) for point in (*face.points, x)]
        # if all clients may stay out one after another, the least spend is that of an empty profile, which does not exist
        ends = face.spend_range(game, payments, x)
        for said, known in zip(face.spend, ((min(spends), ends[0]), (max(spends), ends[1])), strict=True):
            if not any(abs(said - v) <= FACE * abs(v) for v in known):
                yield f"the stated face is said to cost {said:.9g}, where it costs {known[0]:.9g}"
    if again is None:
        return
    same = [
        eq.face
        for eq in again
        if eq.face is not None and abs(eq.total - total) <= FACE * total and eq.face.clients == face.clients
    ]
    if not any(
        other.dimension == face.dimension
        and np.allclose(other.lower, face.lower, rtol=0.0, atol=FACE)
        and np.allclose(other.upper, face.upper, rtol=0.0, atol=FACE)
        for other in same
    ):
        yield "the stated face is not the one that is found again"


def _word(equilibrium: Equilibrium, found: Uniqueness) -> Iterator[str]:
    """Yield an error if the stated number of equilibria was neither found again nor proved otherwise."""
    word = equilibrium.uniqueness
    if found is Uniqueness.UNKNOWN and word is Uniqueness.UNIQUE and _alone(equilibrium):
        found = word
    if found is Uniqueness.UNKNOWN and word is Uniqueness.CONTINUUM and _many_inside(equilibrium):
        found = word
    if found is not word:
        said = {
            Uniqueness.UNIQUE: "the only one",
            Uniqueness.MULTIPLE: "one of several",
            Uniqueness.CONTINUUM: "one of infinitely many",
        }[word]
        again = "this cannot be proved" if found is Uniqueness.UNKNOWN else f"they are {found.name}"
        yield f"said to be {said}, but when the equilibria are enumerated again {again}"


def _alone(equilibrium: Equilibrium) -> bool:
    """Return True if it is unique because all clients want to exceed their caps, or because all are equally reluctant."""
    game, payments, x, caps = (
        equilibrium.game,
        equilibrium.payments,
        equilibrium.participation,
        equilibrium.caps,
    )
    if np.array_equal(x, game.check_caps(caps)) and check_at_caps(game, payments, caps):
        return True
    return game.count <= LARGEST_ALIKE and bool(check_alike(game, payments, x, caps))


def _many_inside(equilibrium: Equilibrium) -> bool:
    """Return True if clients can trade: more of them inside (0, 1) than their embeddings have dimensions, or a face that holds."""
    game, x, face = equilibrium.game, equilibrium.participation, equilibrium.face
    features = game.embeddings.features
    inside = int(np.count_nonzero((x > 0) & (x < game.check_caps(equilibrium.caps))))
    if features is not None and inside > features.shape[1] + 1:
        return True
    return (
        face is not None
        and len(face.points) > 1
        and all(
            check_stakes(game, equilibrium.payments, p, equilibrium.caps).max() <= NEGLIGIBLE
            for p in face.points
        )
    )


class Gain(NamedTuple):
    """The largest gain found by search: as such, relative to the stakes of the client who has that, and who it is."""

    gain: float
    relative: float
    client: int


def _largest_gain(game: GameModel, payments: Array, x: Array, caps: Array) -> Gain:
    largest, relative, client = 0.0, 0.0, 0
    floor = np.maximum(game.costs, payments)
    for start in range(0, game.count, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, game.count))
        rest, apart = _without(game, x, rows)
        gains = _search(game, payments, x, caps[rows], rows, rest, apart)
        drift = game.lam * apart * (rest / (rest + game.alpha[rows] * x[rows] + (rest == 0))) ** 2
        shares = gains / np.maximum(floor[rows], drift)
        k = int(np.argmax(shares))
        largest = max(largest, float(gains.max()))
        if shares[k] > relative:
            relative, client = float(shares[k]), start + k
    return Gain(largest, relative, client)


def _without(game: GameModel, x: Array, rows: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Return the others' participation, and the distance of their mixture from client k: ``||mu_{-k} - mu_k||^2``."""
    weights = game.alpha * x
    rest = weights.sum() - weights[rows]  # exactly 0 for a sole participant: the others' weights are 0
    safe = np.where(rest > 0, rest, 1.0)
    geometry = game.geometry
    features = game.embeddings.features
    if features is not None and game.count * features.size <= CLOSE_LOOK:
        every = np.asarray(features[game.remaining], dtype=np.float64)
        # from each client to the others, one by one: nothing that all rows share is rounded
        pull = np.array([weights @ (every - every[k]) for k in rows]) / safe[:, None]
        apart = np.einsum("ij,ij->i", pull, pull)
    elif isinstance(geometry, FeatureGeometry):
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
    caps: Array,
    rows: npt.NDArray[np.intp],
    rest: Array,
    apart: Array,
) -> Array:
    """Gain over the current utility by the best of a grid on [0, cap], refined four times around it."""
    net = (payments - game.costs)[rows]
    alpha = game.alpha[rows]

    def gain(candidate: Array) -> Array:
        """Return ``U_k(candidate) - U_k(x)``; a sole participant has no drift."""
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

    low, high = np.zeros(len(rows)), caps
    best = np.zeros(len(rows))
    for _ in range(5):
        grid = low[:, None] + np.linspace(0.0, 1.0, 33) * (high - low)[:, None]
        # for a sole participant, x = 0 leaves no mixture; only positive participation counts
        values = np.where((rest[:, None] > 0) | (grid > 0), gain(grid), -np.inf)
        place = np.argmax(values, axis=1)
        best = np.maximum(best, values[np.arange(len(rows)), place])
        width = (high - low) / 32.0
        centre = grid[np.arange(len(rows)), place]
        low, high = np.maximum(centre - width, 0.0), np.minimum(centre + width, caps)
    return best

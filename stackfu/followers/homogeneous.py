"""The special case of clients with equal data: there is no drift, payment and cost alone decide.

With all ``d_k = 0`` and no sampling term the conditions read ``-S w_k <= 0, = 0, >= 0``: a client paid more than its cost takes
part fully, one paid less stays out, and one paid exactly its cost may do anything. If all are
paid less than their costs none takes part, and that is no profile: every client alone would shrink towards 0
but loses all at 0.

With a sampling term they read ``a / (2 S) - S w_k <= 0, = 0, >= 0``: the least reluctant take part first, each as long as
``S < sqrt(a / (2 w_k))``, so there is always an equilibrium and one total; who shares the last reluctance may trade.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ..model import Array, GameModel, frozen
from ..model.data import INDISTINGUISHABLE
from ..model.geometry import EPS
from ..results import Face
from .solver_tolerances import EQUAL

__all__ = ["COLLAPSE", "all_alike", "homogeneous_equilibrium"]

#: Share of its cap that an indifferent client brings where at least one client must take part.
EVER_SO_LITTLE = 1e-3
COLLAPSE = (
    "all clients own the same data and are paid less than their costs, so nobody takes part: "
    "there is no equilibrium with a participant"
)


def all_alike(game: GameModel, caps: Array | None = None) -> bool:
    """Return True if all clients with a positive cap own the same data, up to rounding."""
    if caps is None or game.is_homogeneous or caps.min() > 0:
        return game.is_homogeneous
    who = game.remaining[caps > 0]
    features = game.embeddings.features
    if features is not None:
        rows = np.asarray(features[who], dtype=np.float64)
        rounding, apart = EPS * float(np.abs(rows).max()), float(np.abs(rows - rows[0]).max())
    else:
        inner = game.embeddings._best[np.ix_(who, who)]
        rounding, apart = EPS * float(np.abs(inner).max()), float(np.abs(inner - inner[0, 0]).max())
    return rounding >= INDISTINGUISHABLE * apart


def homogeneous_equilibrium(
    game: GameModel, payments: Array, caps: Array | None = None
) -> tuple[Array, Face | None, bool] | None:
    """The equilibrium with the largest total, the face it belongs to, and whether rounding leaves no doubt; None: there is none."""
    most = game.no_caps if caps is None else caps
    if game.sampling > 0.0:
        return _with_sampling(game, payments, most)
    net = np.where(most > 0, payments - game.costs, -np.inf)
    if np.all(net < 0):
        return None
    free = net == 0
    x = np.where(net >= 0, most, 0.0)
    if not free.any():
        return frozen(x), None, True
    count = int(free.sum())
    # the free clients may all stay out, unless there are no others: then one of them takes part, with a tiny share
    without = np.where(free, 0.0, x)
    face = Face(
        tuple(int(k) for k in game.remaining[free]),
        frozen(np.zeros(count)),
        frozen(most[free]),
        count,
        (float(payments @ without), float(payments @ x)),
        tuple(frozen(v) for v in (without if without.any() else EVER_SO_LITTLE * x, x)),
    )
    return frozen(x), face, True


def _with_sampling(game: GameModel, payments: Array, caps: Array) -> tuple[Array, Face | None, bool]:
    """Fill up from the least reluctant on."""
    w, bound = game.reluctance_under(payments), game.alpha * caps
    x, sure = np.where(w <= 0, caps, 0.0), True
    total = float((game.alpha * x).sum())
    for group in _equally_reluctant(game, payments, w, np.flatnonzero((w > 0) & (bound > 0))):
        room = float(np.sqrt(game.sampling / (2.0 * w[group[0]]))) - total
        owned = float(bound[group].sum())
        close = min(abs(room), abs(owned - room)) <= EQUAL * (total + owned)
        sure = sure and not (close and len(group) > 1)
        if room <= 0.0:
            break
        if owned <= room:
            x[group] = caps[group]
            total += owned
            continue
        x[group] = caps[group] * (room / owned)
        return frozen(x), None if len(group) == 1 else _shared(game, payments, caps, x, group, room), sure
    return frozen(x), None, sure


def _equally_reluctant(
    game: GameModel, payments: Array, w: Array, clients: npt.NDArray[np.intp]
) -> Iterator[npt.NDArray[np.intp]]:
    """The clients in groups of exactly the same ``(c_k - p_k) / n_k``, the least reluctant first.

    Quotients that are the same can differ in their last digit as floats, so those that are close are compared as fractions.
    """
    if len(clients) == 0:
        return
    order = clients[np.argsort(w[clients], kind="stable")]
    for near in np.split(order, 1 + np.flatnonzero(np.diff(w[order]) > EQUAL * w[order][1:])):
        exact: dict[Fraction, list[int]] = {}
        for k in near if len(near) > 1 else ():
            net = Fraction(float(game.costs[k])) - Fraction(float(payments[k]))
            exact.setdefault(net / Fraction(float(game.sizes[k])), []).append(int(k))
        yield from (np.array(exact[level]) for level in sorted(exact)) if exact else [near]


def _shared(
    game: GameModel, payments: Array, caps: Array, x: Array, group: npt.NDArray[np.intp], amount: float
) -> Face:
    """Return the face of those who bring an amount together, in any way."""
    bound = game.alpha[group] * caps[group]
    upper = np.minimum(bound, amount)
    lower = np.maximum(amount - (bound.sum() - bound), 0.0)
    price = payments[group] / game.alpha[group]
    points = []
    for order in (np.argsort(price, kind="stable"), np.argsort(-price, kind="stable")):
        at, left = np.array(x), amount
        for i in order:
            brought = min(bound[i], left)
            at[group[i]] = caps[group[i]] if brought >= bound[i] else brought / game.alpha[group[i]]
            left -= brought
        points.append(frozen(at))
    return Face(
        tuple(int(k) for k in game.remaining[group]),
        frozen(lower / game.alpha[group]),
        frozen(np.minimum(upper / game.alpha[group], caps[group])),
        len(group) - 1,
        (float(payments @ points[0]), float(payments @ points[1])),
        tuple(points),
    )

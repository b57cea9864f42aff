"""Participation profiles with the same total and mean embedding as an equilibrium.

Given S and m, the clients with ``g_k = 0`` may trade participation as long as neither changes: the profiles
form the polytope

    { y + v :  sum v = 0,  sum v_k mu_k = 0,  v_k = 0 where g_k != 0,  0 <= y + v <= alpha cap },

a single point where the embeddings of those clients are affinely independent or the bounds leave no room. All its points have
the same loss; what the server spends, ``p . x``, differs along it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..model import Array, GameModel, Profile, frozen
from ..results import Face
from .solver_tolerances import BLUR, NULL, NULL_OF_ROUNDING, PINNED, STILL, TIGHT, TIGHT_OF_ROUNDING

__all__ = ["equilibrium_face", "span_of"]

#: Up to this many clients the widest range of each is found, by two linear programs per client; for more, a range that it can have.
FEW = 24
#: Rounds of projection in search of a point away from all bounds.
ROUNDS = 200
#: Distance from the bounds, in parts of a client's data, at which an interior point keeps movable clients.
AWAY_FROM_BOUNDS = 1e-3
#: More clients than this who may move are searched for trades only with patience: it takes the third power of their number.
MOST_TIGHT = 1000
#: Of more clients than this ranges are worked out one by one only with patience, each by linear programmes in all of them.
MOST_MOVED = 100

Clients = npt.NDArray[np.intp]


def equilibrium_face(
    game: GameModel,
    payments: Array,
    participation: Array,
    profile: Profile | None = None,
    caps: Array | None = None,
    *,
    patient: bool = True,
) -> Face | None:
    """Return the polytope of equilibria through this one that share S and m; None if it is a point.

    If not ``patient``, None is also returned if the computation takes very long; the checkers then settle nothing.
    """
    profile = game.profile(participation) if profile is None else profile
    own = profile.total * game.reluctance(payments)
    pull = (
        profile.to_clients
        if game.sampling == 0.0
        else profile.to_clients + game.sampling / (2.0 * profile.total)
    )
    g = pull - own
    terms = np.maximum(pull, np.abs(own))
    noise = TIGHT_OF_ROUNDING * game.rounding * game.geometry.scale
    most = game.no_caps if caps is None else caps
    inside = (participation > 0) & (participation < most)
    clients = np.flatnonzero((inside | (np.abs(g) <= np.maximum(TIGHT * terms, noise))) & (most > 0))
    if not patient and len(clients) > MOST_TIGHT:
        return None
    directions = _dependences(game, clients)
    if directions.shape[1] == 0:
        return None
    top = most[clients]
    polytope = _Polytope(game.alpha[clients] * top, profile.y[clients], directions)
    ranges = polytope.ranges() if len(clients) <= FEW else polytope.some_ranges(patient)
    if ranges is None:
        return None
    lower, upper, dimension = ranges[0] * top, ranges[1] * top, ranges[2]
    loose = upper - lower > STILL
    if not loose.any():
        return None
    price = payments[clients] / game.alpha[clients]
    widest = np.zeros(len(clients))
    widest[int(np.argmax(upper - lower))] = 1.0
    points = []
    for objective in (-price, price, -widest, widest):
        x = np.array(participation)
        x[clients] = np.clip(
            (profile.y[clients] + polytope.furthest(objective)) / game.alpha[clients], 0.0, top
        )
        points.append(frozen(x))
    spends = [float(payments @ x) for x in (*points, participation)]
    return Face(
        tuple(int(k) for k in game.remaining[clients[loose]]),
        frozen(lower[loose]),
        frozen(upper[loose]),
        dimension,
        (min(spends), max(spends)),
        tuple(points),
    )


def _dependences(game: GameModel, clients: Clients) -> Array:
    """Orthonormal basis of ``{v : sum v = 0, sum v_k mu_k = 0}`` over the given clients."""
    if len(clients) == 0:
        return np.zeros((0, 0))
    products = game.geometry.products(clients)
    means = products.mean(axis=1)
    products = products - means[:, None] - means[None, :] + means.mean()
    spread = float(np.diag(products).max(initial=0.0))
    if spread <= 2.5 * NULL_OF_ROUNDING * game.rounding * game.geometry.scale:  # alike, up to rounding
        spread = game.geometry.scale
    values, vectors = np.linalg.eigh(products / spread + 1.0)
    noise = NULL_OF_ROUNDING * game.rounding * game.geometry.scale / spread
    return np.ascontiguousarray(vectors[:, values <= max(NULL, noise) * len(clients)])


class _Polytope:
    """Movements ``v`` in the span of ``directions`` with ``0 <= y + v <= alpha``, the most that each may bring."""

    def __init__(self, alpha: Array, y: Array, directions: Array) -> None:
        self.alpha, self.y, self.directions = alpha, y, directions
        self.unit = float(alpha.max())
        # movements are orthogonal to everything the directions do not span
        self.rest = np.linalg.qr(directions, mode="complete")[0][:, directions.shape[1] :].T
        self.movable = np.abs(directions).max(axis=1) > PINNED

    def furthest(self, objective: Array) -> Array:
        """Return the largest movement of y along ``objective``."""
        from scipy.optimize import linprog

        bounds = np.column_stack([np.minimum(-self.y, 0.0), np.maximum(self.alpha - self.y, 0.0)]) / self.unit
        size = float(np.abs(objective).max())
        if size == 0.0:
            return np.zeros(len(objective))
        result = linprog(
            -objective / size, A_eq=self.rest, b_eq=np.zeros(len(self.rest)), bounds=bounds, method="highs"
        )
        return self._sharpened(self.unit * result.x) if result.status == 0 else np.zeros(len(objective))

    def _sharpened(self, move: Array) -> Array:
        """A vertex to the last digits, from one that a linear programme gave to eight or so: in the span, exactly at its bounds."""
        low, high = np.minimum(-self.y, 0.0), np.maximum(self.alpha - self.y, 0.0)
        slack = BLUR * self.unit
        target = np.where(move - low <= slack, low, np.where(high - move <= slack, high, np.nan))
        held = np.isfinite(target)
        along = self.directions.T @ move
        rows = self.directions[held]
        along = along + np.linalg.lstsq(rows, target[held] - rows @ along, rcond=None)[0]
        sharp = self.directions @ along
        return np.clip(sharp, low, high) if np.abs(sharp - move).max() <= 10.0 * slack else move

    def ranges(self) -> tuple[Array, Array, int]:
        """Smallest and largest participation of every client, and the polytope's dimension."""
        x, alpha, directions = self.y / self.alpha, self.alpha, self.directions
        lower, upper = x.copy(), x.copy()
        axes = np.eye(len(x))
        for i in np.flatnonzero(self.movable):
            upper[i] = min(max(x[i] + self.furthest(axes[i])[i] / alpha[i], x[i]), 1.0)
            lower[i] = max(min(x[i] + self.furthest(-axes[i])[i] / alpha[i], x[i]), 0.0)
        if not np.any(upper - lower > STILL):
            return lower, upper, 0
        # dimension: look along directions not yet known to move or to be fixed, until none is left
        known = np.zeros((directions.shape[1], 0))
        dimension = 0
        while known.shape[1] < directions.shape[1]:
            axis = np.linalg.qr(known, mode="complete")[0][:, known.shape[1]]
            move = self.furthest(directions @ axis) - self.furthest(-(directions @ axis))
            # along the axis itself: two ends that are equally far along it may differ elsewhere
            moves = float((directions @ axis) @ move) > STILL * self.unit
            dimension += moves
            known = np.column_stack([known, directions.T @ move / np.abs(move).max() if moves else axis])
        return lower, upper, dimension

    def some_ranges(self, patient: bool) -> tuple[Array, Array, int] | None:
        """Return a range that every client can have while the others balance it, and the dimension; None if there is no room.

        From a point away from all bounds each client moves both ways along the projection of its own axis.
        """
        centre = self.interior()
        if centre is None:  # some bound holds everywhere: the slow way, for those who trade with each other
            return self.ranges_of_groups() if patient or len(self.y) <= MOST_MOVED else None
        low, high = centre.copy(), centre.copy()
        for i in np.flatnonzero(self.movable):
            ray = self.directions @ self.directions[i]
            with np.errstate(divide="ignore", invalid="ignore"):
                up = np.where(ray > 0, self.alpha - centre, -centre) / ray
                down = np.where(ray > 0, centre, centre - self.alpha) / ray
            rates = np.abs(ray) > PINNED
            high[i] = centre[i] + ray[i] * float(np.abs(up[rates]).min())
            low[i] = centre[i] - ray[i] * float(np.abs(down[rates]).min())
        here = self.y / self.alpha
        lower = np.clip(np.minimum(low / self.alpha, here), 0.0, 1.0)
        upper = np.clip(np.maximum(high / self.alpha, here), 0.0, 1.0)
        return lower, upper, self.directions.shape[1]

    def ranges_of_groups(self) -> tuple[Array, Array, int]:
        """:meth:`ranges`, from those of groups that trade among themselves only: twins with their twins, say."""
        from scipy.sparse.csgraph import connected_components

        onto = self.directions @ self.directions.T
        count, group = connected_components(np.abs(onto) > PINNED, directed=False)
        if count == 1:
            return self.ranges()
        lower, upper, dimension = self.y / self.alpha, self.y / self.alpha, 0
        for i in range(count):
            members = np.flatnonzero(group == i)
            values, vectors = np.linalg.eigh(onto[np.ix_(members, members)])  # a projection: 0 or 1
            along = vectors[:, values > 0.5]
            if along.shape[1] == 0:
                continue
            some = _Polytope(self.alpha[members], self.y[members], along)
            lower[members], upper[members], of_some = (
                some.ranges() if along.shape[1] > 1 else some.range_of_line()
            )
            dimension += of_some
        return lower, upper, dimension

    def range_of_line(self) -> tuple[Array, Array, int]:
        """:meth:`ranges` along a single direction: as far as the first bound, either way."""
        v, x = np.where(self.movable, self.directions[:, 0], 0.0), self.y / self.alpha
        room, left = np.maximum(self.alpha - self.y, 0.0), np.maximum(self.y, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            up, down = np.where(v > 0, room, left) / np.abs(v), np.where(v > 0, left, room) / np.abs(v)
        ends = [
            x + float(up[self.movable].min()) * v / self.alpha,
            x - float(down[self.movable].min()) * v / self.alpha,
        ]
        lower, upper = (np.clip(end, 0.0, 1.0) for end in (np.minimum(*ends), np.maximum(*ends)))
        return lower, upper, int(np.any(upper - lower > STILL))

    def interior(self) -> Array | None:
        """Point of the polytope with all movable clients away from their bounds, by alternating projections; None if not found."""
        margin = np.where(self.movable, AWAY_FROM_BOUNDS * self.alpha, 0.0)
        point = self.y
        for _ in range(ROUNDS):
            inside = np.where(self.movable, np.clip(point, margin, self.alpha - margin), self.y)
            point = self.y + self.directions @ (self.directions.T @ (inside - self.y))
            clear = np.where(self.movable, np.minimum(point, self.alpha - point), 1.0)
            if np.all(clear > 0.1 * margin):
                return np.asarray(point)
        return None


def span_of(
    game: GameModel,
    payments: Array,
    first: Array,
    second: Array,
    between: Sequence[Array] = (),
    caps: Array | None = None,
) -> Face:
    """The equilibria between two with different totals, between which t is zero throughout; some profiles ``between`` them."""
    lower, upper = np.minimum(first, second), np.maximum(first, second)
    dimension = 1
    spends = [float(payments @ first), float(payments @ second)]
    for end in (first, second):
        face = equilibrium_face(game, payments, end, caps=caps)
        if face is not None:
            place = np.searchsorted(game.remaining, face.clients)
            lower[place] = np.minimum(lower[place], face.lower)
            upper[place] = np.maximum(upper[place], face.upper)
            dimension = max(dimension, 1 + face.dimension)
            spends += face.spend or ()
    loose = upper - lower > STILL
    return Face(
        tuple(int(k) for k in game.remaining[loose]),
        frozen(lower[loose]),
        frozen(upper[loose]),
        dimension,
        (min(spends), max(spends)),
        (*sorted((frozen(first), frozen(second)), key=lambda x: float(payments @ x)), *between),
    )

"""A mixture that is kept up to date while clients respond one after another.

With features ``sum y mu`` is kept, and a response costs O(D); with a Gram matrix ``G y`` is summed anew for every sweep, and a
response costs O(N).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from ..model import Array, FeatureGeometry, GameModel, Geometry
from .solver_tolerances import SAMPLE_SETTLED

__all__ = ["Centre", "Clients", "RunningMixture", "running_mixture"]

Clients = npt.NDArray[np.intp]
#: Representation of m (the point itself, or the mixture), and S.
Centre = tuple[Array, float]

#: With features, so many neighbouring rows are visited in a row.
BLOCK = 64
#: Sweeps over a sample.
SAMPLE_SWEEPS = 15


def running_mixture(game: GameModel, w: Array, bound: Array | None = None) -> RunningMixture:
    """Return the running mixture for the game's geometry; ``bound`` is the cap on participation, by default alpha."""
    geometry = game.geometry
    kind: type[RunningMixture] = _OfFeatures if isinstance(geometry, FeatureGeometry) else _OfGram
    return kind(geometry, game.alpha, w, game.alpha if bound is None else bound, game.sampling)


class RunningMixture(ABC):
    """The kernels bound to one game: sweeps, passes over clients, and distances between mixtures."""

    #: ``sum y mu``, where it is kept.
    point: Array | None = None

    def __init__(self, geometry: Geometry, alpha: Array, w: Array, bound: Array, a: float) -> None:
        self.alpha, self.w, self.bound, self.a = alpha, w, bound, a

    @abstractmethod
    def sweep(self, y: Array, clients: Clients, damping: float = 1.0) -> tuple[int, float, float]:
        """Let the clients respond, one after another; y changes in place.

        Returns the number of participants, the largest violation met and the largest move of x.
        """

    @abstractmethod
    def shuffled(self, clients: Clients, rng: np.random.Generator) -> Clients:
        """Clients in random order."""

    @abstractmethod
    def refresh(self, y: Array) -> None:
        """Sum anew what is kept: sweeps keep it up to date, with rounding."""

    @abstractmethod
    def follow(self, y: Array, after: Array) -> None:
        """Take a change of few entries of y into account."""

    @abstractmethod
    def centre(self, y: Array) -> Centre:
        """Return the representation of m, and S."""

    @abstractmethod
    def apart(self, a: Centre, b: Centre) -> tuple[float, float]:
        """Return the distance of two centres, and of their totals."""

    @abstractmethod
    def squares(self, clients: Clients | None, centre: Centre) -> Array:
        """Return squared distances of the given clients (None: all) to a centre, in the clients' order."""

    @abstractmethod
    def of_sample(self, few: Clients, y: float, rng: np.random.Generator) -> Centre | None:
        """Return the limit of a sample of the clients from participation y; None if it cannot be determined."""


class _OfGram(RunningMixture):
    def __init__(self, geometry: Geometry, alpha: Array, w: Array, bound: Array, a: float) -> None:
        super().__init__(geometry, alpha, w, bound, a)
        self._geometry = geometry

    def sweep(self, y: Array, clients: Clients, damping: float = 1.0) -> tuple[int, float, float]:
        from . import _sweep_kernels as kernels

        gram = self._geometry.gram
        participants, worst, moved = kernels.sweep_gram(
            gram, self.bound, self.w, y, np.empty(len(y)), clients, damping, self.a
        )
        return int(participants), float(worst), float(moved)

    def shuffled(self, clients: Clients, rng: np.random.Generator) -> Clients:
        return rng.permutation(clients)

    def refresh(self, y: Array) -> None:
        """Nothing is kept between sweeps."""

    def follow(self, y: Array, after: Array) -> None:
        """Nothing is kept between sweeps."""

    def centre(self, y: Array) -> Centre:
        total = float(y.sum())
        return y / total, total

    def apart(self, a: Centre, b: Centre) -> tuple[float, float]:
        gap = a[0] - b[0]
        return max(float(gap @ self._geometry.gram @ gap), 0.0) ** 0.5, abs(a[1] - b[1])

    def squares(self, clients: Clients | None, centre: Centre) -> Array:
        every = self._geometry.mixture(centre[0]).to_clients
        return every if clients is None else every[clients]

    def of_sample(self, few: Clients, y: float, rng: np.random.Generator) -> Centre | None:
        return None  # a centre is a mixture of everybody here


class _OfFeatures(RunningMixture):
    point: Array

    def __init__(self, geometry: FeatureGeometry, alpha: Array, w: Array, bound: Array, a: float) -> None:
        super().__init__(geometry, alpha, w, bound, a)
        self._geometry = geometry

    def sweep(self, y: Array, clients: Clients, damping: float = 1.0) -> tuple[int, float, float]:
        from . import _sweep_kernels as kernels

        table, rows = self._geometry.features, self._geometry.remaining
        participants, worst, moved = kernels.sweep_features(
            table, rows, self.bound, self.w, y, self.point, clients, damping, self.a
        )
        return int(participants), float(worst), float(moved)

    def shuffled(self, clients: Clients, rng: np.random.Generator) -> Clients:
        """By blocks of neighbours, so that memory is read in order."""
        whole = len(clients) // BLOCK * BLOCK
        blocks = clients[:whole].reshape(-1, BLOCK)
        return np.concatenate([rng.permutation(blocks, axis=0).ravel(), clients[whole:]])

    def refresh(self, y: Array) -> None:
        self.point = self._geometry.combine(y)

    def follow(self, y: Array, after: Array) -> None:
        changed = np.flatnonzero(after != y)
        self.point = self.point + (after[changed] - y[changed]) @ self._geometry.rows(changed)

    def centre(self, y: Array) -> Centre:
        total = float(y.sum())
        return self.point / total, total

    def apart(self, a: Centre, b: Centre) -> tuple[float, float]:
        gap = a[0] - b[0]
        return float(gap @ gap) ** 0.5, abs(a[1] - b[1])

    def squares(self, clients: Clients | None, centre: Centre) -> Array:
        if clients is None:
            return self._geometry.squared_distances(centre[0])
        from ..model._geometry_kernels import squared_distances

        return np.asarray(
            squared_distances(self._geometry.features, self._geometry.remaining[clients], centre[0])
        )

    def of_sample(self, few: Clients, y: float, rng: np.random.Generator) -> Centre | None:
        from . import _sweep_kernels as kernels

        whole = self.alpha[few].sum()
        geometry, bound, w = self._geometry, self.bound[few] / whole, self.w[few]
        shares = np.minimum(self.alpha[few] / whole * y, bound)
        if not shares.any():
            return None
        point = shares @ geometry.rows(few)
        for _ in range(SAMPLE_SWEEPS):
            order = rng.permutation(len(few))
            participants, _, moved = kernels.sweep_features(
                geometry.features, geometry.remaining[few], bound, w, shares, point, order, 1.0, self.a
            )
            if participants < 2 and self.a == 0.0:
                return None
            if moved < SAMPLE_SETTLED:
                break
        total = float(shares.sum())
        return point / total, total

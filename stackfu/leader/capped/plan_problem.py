"""The server's problem under capped offers, in normalised units.

Squared distances are divided by ``scale``, the largest one; losses by their weight times ``scale``; payments by ``2 lam
scale``. The origin is the point the server would like the mixture to be at, projected onto the clients' span. With ``v = 1/S``

    loss  = W ||m||^2 + constant + v (noise . z + A')
    spend = sum_k z_k (theta_k S - D_k)_+ [+ what keeps everybody],       D_k = ||m - mu_k||^2 + a v / 2
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from ...model import Array, FeatureGeometry, GameModel, Objective
from ...model.offers import firmness
from ..tolerances import EIGENVALUE_ROUNDING, ROUNDING

__all__ = ["PlanProblem"]

#: Corners that the nearest mixture is sought from, at most.
MOST_CORNERS = 1000
#: Up to this many clients the programmes have variables for every client: tighter bounds, but slow ones.
SMALL = 100
#: Above this many clients programmes are solved for a sample of so many. Their multipliers bound everybody's plans, if not quite as
#: well: by 1 % with 10,000, falling with their number.
SAMPLED_CLIENTS = 30_000
#: Directions in which weights move the embedding by less than this part of the most they can are not moved in.
DEPENDENT = 1e-10


class Sample(NamedTuple):
    """Some of the clients, and the problem with them alone."""

    rows: npt.NDArray[np.int64]
    problem: PlanProblem


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """Data of bound, programmes and local search."""

    alpha: Array
    theta: Array  # kappa_k / (2 lam scale)
    points: Array  # (N, r), from the server's ideal point
    target: Array  # (r,), the ideal point as seen from mu_N
    loss_square: float  # W: 1, or 0 if the server does not care
    loss_constant: float
    noise: Array  # coefficient of z_k / S in the loss
    loss_sampling: float  # A': coefficient of 1 / S in the loss
    client_sampling: float  # a
    loss_weight: float  # of the loss in the objective
    payment_weight: float  # of the spend in the objective
    budget: float
    loss_cap: float
    floor: float
    outside: Array | None  # o_k / (2 lam scale); -inf for who cannot leave
    unit_square: float
    unit_loss: float
    unit_spend: float
    coordinates_are_features: bool = False  # but for the origin and the unit
    diagonal: Array = field(init=False)
    reach: Array = field(init=False)

    def __post_init__(self) -> None:
        diagonal = np.einsum("ij,ij->i", self.points, self.points)
        object.__setattr__(self, "diagonal", diagonal)
        if len(diagonal) <= 2000:
            pairs = diagonal[:, None] + diagonal[None, :] - 2.0 * self.points @ self.points.T
            object.__setattr__(self, "reach", pairs.max(axis=1))
        else:
            object.__setattr__(self, "reach", (np.sqrt(diagonal) + np.sqrt(diagonal.max())) ** 2)

    @classmethod
    def of(cls, game: GameModel, goal: Objective, outside: Array | None = None) -> PlanProblem:
        """Normalise a game's data."""
        scale = _unit(game)
        server, pull, square = game.loss_centre
        unit_spend = 2.0 * game.lam * scale
        unit_loss = server * scale if server > 0 else unit_spend
        points, target = _coordinates(game, pull)
        noise = np.zeros(game.count)
        if server > 0 and (goal.finite_sample or game.loss.sampling):
            noise = game.sampling_noise / (game.sizes.sum() * scale)
        with np.errstate(over="ignore"):  # who has next to -infinity outside cannot leave
            apart = None if outside is None else outside / unit_spend
        return cls(
            alpha=game.alpha,
            theta=game.kappa / unit_spend,
            points=points,
            target=target,
            loss_square=1.0 if server > 0 else 0.0,
            loss_constant=max(square / scale - float(target @ target), 0.0) if server > 0 else 0.0,
            noise=noise,
            loss_sampling=game.sampling / scale if server > 0 else 0.0,
            client_sampling=game.sampling / scale,
            loss_weight=goal.loss_weight if server > 0 else 0.0,
            payment_weight=goal.payment_weight * unit_spend / unit_loss,
            budget=goal.budget / float(unit_spend),  # of plain floats: 1e300 may become infinite in silence
            loss_cap=goal.max_loss / float(unit_loss),
            floor=goal.min_total,
            outside=apart,
            unit_square=scale,
            unit_loss=unit_loss,
            unit_spend=unit_spend,
            coordinates_are_features=isinstance(game.geometry, FeatureGeometry)
            and game.count > SMALL
            and not game.is_homogeneous,
        )

    def with_loss_cap(self, max_loss: float) -> PlanProblem:
        """The problem under another cap on the loss."""
        cap = max_loss / float(self.unit_loss)
        return self if cap == self.loss_cap else replace(self, loss_cap=cap)

    @property
    def large(self) -> bool:
        """True if there are too many clients for cone programmes with a few variables for each."""
        return self.count > SMALL

    @property
    def count(self) -> int:
        """N."""
        return len(self.alpha)

    @cached_property
    def sampled(self) -> Sample | None:
        """Few clients who stand for all; None where all are few enough."""
        return self.sample(SAMPLED_CLIENTS) if self.count > SAMPLED_CLIENTS else None

    def sample(self, size: int) -> Sample:
        """So many clients, and the problem as it would be with them alone.

        Who is picked with probability q_k owns ``alpha_k / q_k`` there; the chance is proportional to what one owns, and 1 for the
        largest.
        """
        # q = min(1, c alpha) with a sum of ``size``: so many of the largest are certain that the next one is not
        order = np.argsort(-self.alpha, kind="stable")
        owned = self.alpha[order]
        rest = 1.0 - np.concatenate([[0.0], np.cumsum(owned)[: size - 1]])
        certain = int(np.argmax(owned[:size] * (size - np.arange(size)) <= rest))
        chance = np.minimum(self.alpha * ((size - certain) / rest[certain]), 1.0)
        chance[order[:certain]] = 1.0
        # at equal steps of the summed chances: the same clients in every run
        steps = np.floor(np.cumsum(chance) + 0.5)
        rows = np.flatnonzero(np.diff(steps, prepend=0.0) > 0.0)
        alpha = self.alpha[rows] / chance[rows]
        few = replace(
            self,
            alpha=alpha / alpha.sum(),
            theta=self.theta[rows],
            points=self.points[rows],
            noise=self.noise[rows],
            outside=None,
        )
        return Sample(rows, few)

    @cached_property
    def least_sampling(self) -> float:
        """``A' + min noise``: the loss is at least ``constant + this / S``."""
        return self.loss_sampling + float(self.noise.min())

    def stakes(self, z: Array, total: float) -> Array:
        """``D_k`` of a mixture."""
        return np.asarray(self.gaps(z @ self.points) + 0.5 * self.client_sampling / total)

    def gaps(self, m: Array) -> Array:
        """``||m - mu_k||^2``; with very many clients by inner products, without a copy of all points."""
        if self.large:
            return np.maximum(self.diagonal - 2.0 * (self.points @ m) + float(m @ m), 0.0)
        apart = self.points - m
        return np.asarray(np.einsum("ij,ij->i", apart, apart))

    def loss(self, z: Array, total: float) -> float:
        """The server's loss."""
        m = z @ self.points
        spread = self.loss_square * float(m @ m) + self.loss_constant
        return spread + (float(self.noise @ z) + self.loss_sampling) / total

    def spend(self, z: Array, total: float) -> float:
        """The price of the plan, as it is posted."""
        return self._price(z, self.stakes(z, total), total)

    def _price(self, z: Array, stakes: Array, total: float) -> float:
        paid = z * np.maximum((1.0 + firmness(self.count)) * self.theta * total - stakes, 0.0)
        if self.outside is not None:
            keep = self.theta * total * z + 0.5 * stakes + 0.25 * self.client_sampling / total + self.outside
            paid = np.maximum(paid, keep)
        return float(paid.sum())

    def value(self, z: Array, total: float) -> float:
        """The objective."""
        return self.loss_weight * self.loss(z, total) + self.payment_weight * self.spend(z, total)

    @cached_property
    def _lift(self) -> Array:
        """(N, r): weights that sum to zero and move a mixture's embedding in each direction, as far as weights can."""
        system = np.vstack([self.points.T, np.ones(self.count)])
        return np.asarray(np.linalg.pinv(system, rcond=DEPENDENT)[:, :-1])

    def weights_of(self, shift: Array) -> Array:
        """Weights, summing to zero, that move the embedding by ``shift``."""
        return np.asarray(self._lift @ shift)

    @cached_property
    def ideal(self) -> Array:
        """The mixture nearest to the server's ideal, whatever it costs (non-negative least squares over a few corners)."""
        # a few corners at a time: those that lie behind the nearest point so far
        if self.sampled is None:
            corners = np.array([int(np.argmin(self.diagonal))])
            weights = np.ones(1)
        else:
            ideal = self.sampled.problem.ideal
            corners, weights = self.sampled.rows[ideal > 0.0], ideal[ideal > 0.0]
        for _ in range(MOST_CORNERS):
            m = weights @ self.points[corners]
            behind = self.points @ m
            k = int(np.argmin(behind))
            if behind[k] >= float(m @ m) * (1.0 - ROUNDING) - EIGENVALUE_ROUNDING or k in corners:
                break
            corners = np.append(corners, k)
            system = np.vstack([self.points[corners].T, np.ones(len(corners))])
            found, _ = nnls(system, np.append(np.zeros(self.points.shape[1]), 1.0))
            keep = found > 0.0
            corners, weights = corners[keep], found[keep] / found[keep].sum()
        z = np.zeros(self.count)
        z[corners] = weights
        return z


def _unit(game: GameModel) -> float:
    """The largest squared distance; where all data are alike, what the sampling term or costs are as large as instead."""
    if game.is_homogeneous:
        return max(game.sampling, float(game.kappa.max()) / (2.0 * game.lam))
    return game.geometry.scale


def _coordinates(game: GameModel, pull: Array) -> tuple[Array, Array]:
    """The clients' embeddings from the server's ideal point, and that point from ``mu_N``, in units of ``sqrt(scale)``."""
    geometry = game.geometry
    if game.is_homogeneous:  # one point; its distance to the ideal one is a constant of the loss
        return np.zeros((game.count, 1)), np.zeros(1)
    scale = geometry.scale
    if isinstance(geometry, FeatureGeometry) and game.count > SMALL:
        rows = np.asarray(geometry.features[geometry.remaining], dtype=np.float64) - geometry.mean_remaining
        rows /= np.sqrt(scale)
        # <mu_k - mu_N, t> = pull_k determines t within the rows' span
        gram = rows.T @ rows
        target = np.linalg.lstsq(gram, rows.T @ (pull / scale), rcond=None)[0]
        rows -= target
        return rows, target
    values, vectors = np.linalg.eigh(geometry.gram / scale)
    keep = values > EIGENVALUE_ROUNDING * max(values[-1], 0.0) * len(values)
    roots = np.sqrt(values[keep])
    target = (vectors[:, keep].T @ pull) / (roots * scale)
    return np.ascontiguousarray(vectors[:, keep] * roots - target), target

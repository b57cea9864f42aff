"""Server loss of coalitions of clients.

A coalition T brings ``y_k`` of each of its clients and nothing of the others. Its loss is a ratio of quadratics in these amounts:
with inner products G of the embeddings around ``mu_N``, ``S_T = sum y_k``, ``q_T = sum y_j y_k G_jk``, ``l_T = sum y_k pull_k`` and
the variances v of one sample,

    loss(T) = W (q_T / S_T^2 - 2 l_T / S_T + square + a / S_T + [sum y_k v_k / (n_N S_T^2)]) .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model import Array, GameModel

__all__ = ["CoalitionLoss", "coalition_loss"]


@dataclass(frozen=True, eq=False)
class CoalitionLoss:
    """Numbers that the loss of coalitions of some clients is made of; see the formula above."""

    amounts: Array
    inner: Array
    pull: Array
    square: float
    weight: float
    thin: float
    noise: Array

    @property
    def count(self) -> int:
        """Return the number of clients."""
        return len(self.amounts)

    def loss(self, total: Any, pulled: Any, spread: Any, noisy: Any) -> Any:
        """Return the loss of coalitions from ``S_T``, ``l_T``, ``q_T`` and ``sum y_k v_k / n_N``."""
        return self.weight * (
            spread / total**2 - 2.0 * pulled / total + self.square + self.thin / total + noisy / total**2
        )

    def of_members(self, members: npt.NDArray[np.bool_]) -> float:
        """Return the loss of one coalition that is not empty."""
        y = np.where(members, self.amounts, 0.0)
        return float(self.loss(y.sum(), y @ self.pull, y @ self.inner @ y, y @ self.noise))

    @property
    def alone(self) -> Array:
        """Return the loss of every client alone."""
        y = self.amounts
        return np.asarray(self.loss(y, y * self.pull, y * y * np.diag(self.inner), y * self.noise))

    @property
    def pairs(self) -> Array:
        """Return the loss of every pair of clients; of a client alone on the diagonal."""
        y = self.amounts
        own = y * y * np.diag(self.inner)
        spread = own[:, None] + own[None, :] + 2.0 * np.outer(y, y) * self.inner
        sums = [values[:, None] + values[None, :] for values in (y, y * self.pull, y * self.noise)]
        found = np.array(self.loss(sums[0], sums[1], spread, sums[2]))
        np.fill_diagonal(found, self.alone)
        return found

    @property
    def without(self) -> tuple[Array, Array]:
        """Return the loss of all but one client, and of all but two (the former on the diagonal).

        Of two clients all but two is no coalition; the entries are infinite then.
        """
        y = self.amounts
        towards, own = self.inner @ y, y * y * np.diag(self.inner)
        whole = float(y @ towards)
        less = [float(v.sum()) - v for v in (y, y * self.pull, y * self.noise)]
        spread = whole - 2.0 * y * towards + own
        one = np.asarray(self.loss(less[0], less[1], spread, less[2]))
        pairs = spread[:, None] + spread[None, :] - whole + 2.0 * np.outer(y, y) * self.inner
        both = [
            values[:, None] + values[None, :] - float(v.sum())
            for values, v in zip(less, (y, y * self.pull, y * self.noise), strict=True)
        ]
        np.fill_diagonal(both[0], 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            two = np.array(self.loss(both[0], both[1], pairs, both[2]))
        if self.count == 2:
            two[:] = np.inf
        np.fill_diagonal(two, one)
        return one, two

    def all_losses(self, empty: float) -> Array:
        """Return the loss of all ``2^n`` coalitions; client k is in coalition i if bit k of i is set.

        The sums over a coalition are built by doubling: those of the first k clients, and the same with client k added.
        """
        y = self.amounts
        total, pulled, noisy, spread = (np.zeros(1) for _ in range(4))
        for k in range(self.count):
            towards = np.zeros(
                1
            )  # <sum over the coalition of y_j mu_j, mu_k>, for coalitions of the first k clients
            for j in range(k):
                towards = np.concatenate([towards, towards + y[j] * self.inner[j, k]])
            spread = np.concatenate([spread, spread + 2.0 * y[k] * towards + y[k] ** 2 * self.inner[k, k]])
            total, pulled, noisy = (
                np.concatenate([values, values + y[k] * each])
                for values, each in ((total, 1.0), (pulled, self.pull[k]), (noisy, self.noise[k]))
            )
        total[0] = 1.0
        losses = np.asarray(self.loss(total, pulled, spread, noisy))
        losses[0] = empty
        return losses

    def marginals(self, order: npt.NDArray[np.intp]) -> Array:
        """Return what every client adds to coalitions of every size along one order.

        Row s and column k hold ``loss(T) - loss(T + k)`` for the coalition T of the first s of the other clients in the order.
        Row 0 (the empty coalition) is zero.
        """
        n, y = self.count, self.amounts
        place = np.empty(n, dtype=np.intp)
        place[order] = np.arange(n)
        start = np.zeros((1, n))
        towards = np.vstack([start, np.cumsum(y[order, None] * self.inner[order], axis=0)])
        own = y * y * np.diag(self.inner)
        steps = 2.0 * y[order] * towards[np.arange(n), order] + own[order]
        sums = [np.concatenate([[0.0], np.cumsum(v[order])]) for v in (y, y * self.pull, y * self.noise)]
        spread = np.concatenate([[0.0], np.cumsum(steps)])
        # T are the first s clients of the order, or the first s + 1 without k where k is among them
        rows = np.arange(n)[:, None]
        within = rows > place[None, :]
        first = rows + within
        minus = np.where(within, 1.0, 0.0)
        each = (y, y * self.pull, y * self.noise)
        base = [values[first] - minus * v for values, v in zip(sums, each, strict=True)]
        seen = np.take_along_axis(towards, first, axis=0) - minus * (y * np.diag(self.inner))
        square = spread[first] - minus * (2.0 * y * seen + own)
        base[0][0] = 1.0
        found = self.loss(base[0], base[1], square, base[2]) - self.loss(
            base[0] + y, base[1] + each[1], square + 2.0 * y * seen + own, base[2] + each[2]
        )
        found[0] = 0.0
        return np.asarray(found)


def coalition_loss(game: GameModel, participation: Array) -> tuple[CoalitionLoss, npt.NDArray[np.intp]]:
    """Return the loss of coalitions of the clients that bring anything, and their places among the remaining clients."""
    places = np.flatnonzero(participation > 0)
    weight, pull, square = game.loss_centre
    noise = np.zeros(len(places))
    if game.loss.sampling:
        noise = game.sampling_noise[places] / float(game.sizes.sum())
    return (
        CoalitionLoss(
            amounts=game.alpha[places] * participation[places],
            inner=game.geometry.products(places),
            pull=pull[places],
            square=square,
            weight=weight,
            thin=game.sampling,
            noise=noise,
        ),
        places,
    )

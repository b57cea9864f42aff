"""The clients' game in balls of python-flint: the stored binary numbers taken at face value, all derived ones enclosed.

Every judge of equilibria that works in balls reads its game here; the precision is the one that is set while it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flint
import numpy as np

from ..model import Array, GameModel

__all__ = ["Ball", "BallGame", "Balls", "stored_embeddings"]

Ball = Any
Balls = list[Any]


def stored_embeddings(game: GameModel) -> tuple[str, Array]:
    """Return the stored embeddings of the remaining clients: "features" and their rows, or "gram" and their inner products.

    Inner products are minus the complement where that is known: the same up to a constant, which no distance sees.
    """
    keep, features = game.remaining, game.embeddings.features
    if features is not None:
        return "features", np.asarray(features[keep], dtype=np.float64)
    return "gram", -np.asarray(game.embeddings._best[np.ix_(keep, keep)], dtype=np.float64)


class BallGame:
    """Shares, reluctances and embeddings of the clients; all arguments are exact balls."""

    def __init__(
        self,
        sizes: Balls,
        costs: Balls,
        payments: Balls,
        caps: Balls,
        constants: Sequence[Ball],
        form: str,
        embeddings: Sequence[Balls],
    ) -> None:
        lambda_q, loss_constant, sampling_constant = constants
        owned = self.total(sizes)
        self.n, self.costs, self.payments, self.caps = len(sizes), costs, payments, caps
        self.alpha = [n / owned for n in sizes]
        self.bound = [a * c for a, c in zip(self.alpha, caps, strict=True)]
        self.lam = lambda_q * loss_constant
        self.a = sampling_constant / (loss_constant * owned)
        self.net = [p - c for c, p in zip(costs, payments, strict=True)]
        self.w = [-net / (2 * self.lam * a) for net, a in zip(self.net, self.alpha, strict=True)]
        self.form = form
        entries = [v for row in embeddings for v in row]
        self.embeddings = flint.arb_mat(self.n, len(entries) // self.n, entries)

    @classmethod
    def of(cls, game: GameModel, payments: Array, caps: Array | None = None) -> BallGame:
        """Return a game under payments and caps (None: everything may be taken)."""
        most = game.no_caps if caps is None else caps
        form, rows = stored_embeddings(game)
        constants = [flint.arb(v) for v in (game.lambda_q, game.loss_constant, game.sampling_constant)]
        sizes, costs, paid, taken = (_balls(v) for v in (game.sizes, game.costs, payments, most))
        return cls(sizes, costs, paid, taken, constants, form, [_balls(row) for row in rows])

    def total(self, values: Sequence[Ball]) -> Ball:
        """Return a sum."""
        return sum(values, flint.arb(0))

    def amounts(self, x: Sequence[Any]) -> Balls:
        """``y_k = alpha_k x_k`` of a profile of floats or exact numbers."""
        return [a * flint.arb(v) for a, v in zip(self.alpha, x, strict=True)]

    def squares(self, z: Balls) -> Balls:
        """``d_k^2`` of a mixture."""
        stored, weights = self.embeddings, flint.arb_mat(1, self.n, z)
        row = weights * stored
        if self.form == "features":
            gaps = ([row[0, d] - stored[k, d] for d in range(stored.ncols())] for k in range(self.n))
            return [self.total([gap * gap for gap in line]) for line in gaps]
        square = (row * weights.transpose())[0, 0]
        return [stored[k, k] - 2 * row[0, k] + square for k in range(self.n)]

    def distances(self) -> Any:
        """``D_ij`` of all pairs."""
        stored, n = self.embeddings, self.n
        out = flint.arb_mat(n, n)
        for i in range(n):
            for j in range(i):
                if self.form == "features":
                    gaps = [stored[i, d] - stored[j, d] for d in range(stored.ncols())]
                    out[i, j] = self.total([gap * gap for gap in gaps])
                else:
                    out[i, j] = stored[i, i] + stored[j, j] - (stored[i, j] + stored[j, i])
                out[j, i] = out[i, j]
        return out


def _balls(values: Any) -> Balls:
    return [flint.arb(float(v)) for v in values]

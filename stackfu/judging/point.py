"""Enclosures of a profile's spend, loss and total participation between proved bounds.

Up to :data:`LARGEST_POINT` clients in balls of python-flint, to the last digits; beyond, in floats with errors bounded by
the sizes of the terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model import Array, GameModel, Objective
from .distances import U
from .numbers import exact_sum

__all__ = ["PointEnclosure", "enclose_point"]

#: Up to this many original clients balls are used.
LARGEST_POINT = 400
Pair = tuple[float, float]


@dataclass(frozen=True)
class PointEnclosure:
    """Lower and upper ends of the spend, the loss (with the sampling terms that count) and the total participation."""

    spend: Pair
    loss: Pair
    total: Pair

    def objective(self, goal: Objective) -> Pair:
        """Return the minimised value, between its ends."""
        low = goal.loss_weight * self.loss[0] + goal.payment_weight * self.spend[0]
        high = goal.loss_weight * self.loss[1] + goal.payment_weight * self.spend[1]
        return low * (1.0 - 4.0 * U), high * (1.0 + 4.0 * U)


def enclose_point(game: GameModel, goal: Objective, payments: Array, x: Array) -> PointEnclosure:
    """Enclose what the payments cost at the profile, what it is worth, and how much data takes part."""
    if len(game.all_sizes) <= LARGEST_POINT:
        return _in_balls(game, goal, payments, x)
    return _in_floats(game, goal, payments, x)


def _ends(ball: Any) -> Pair:
    if ball.is_zero():
        return 0.0, 0.0
    low, high = float(ball.lower()), float(ball.upper())
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)


def _in_balls(
    game: GameModel, goal: Objective, payments: Array, x: Array, precision: int = 192
) -> PointEnclosure:
    import flint

    from .numbers import BallArithmetic

    arb = flint.arb
    with BallArithmetic(precision).context():
        count, keep = len(game.all_sizes), [int(k) for k in game.remaining]
        sizes = [arb(float(n)) for n in game.all_sizes]
        left = sum((sizes[k] for k in keep), arb(0))
        everything = sum(sizes, arb(0))
        used = [arb(0)] * count
        for k, share in zip(keep, x, strict=True):
            used[k] = sizes[k] * arb(float(share))
        amount = sum(used, arb(0))
        total = amount / left
        mixture = [v / amount for v in used]
        kept = set(keep)
        shares = {
            "remaining": [sizes[k] / left if k in kept else arb(0) for k in range(count)],
            "original": [n / everything for n in sizes],
        }
        square = _squares(game, flint)
        loss = arb(0)
        for weight, target in zip(game.loss.weights, game.loss.targets, strict=True):
            if target.kind == "point":
                loss += arb(weight) * square(mixture, None, target.values)
            else:
                there = shares.get(target.kind) or [arb(v) for v in target.values]
                loss += arb(weight) * square(mixture, there, None)
        weights = sum((arb(w) for w in game.loss.weights), arb(0))
        if game.sampling_constant:
            loss += weights * arb(game.sampling_constant) / (arb(game.loss_constant) * amount)
        if goal.finite_sample or game.loss.sampling:
            for k, noise in zip(keep, game.sampling_noise, strict=True):
                loss += weights * mixture[k] * arb(float(noise)) / amount
        spend = arb(0)
        for p, share in zip(payments, x, strict=True):
            spend += arb(float(p)) * arb(float(share))
        return PointEnclosure(_ends(spend), _ends(loss), _ends(total))


def _squares(game: GameModel, flint: Any) -> Any:
    """Return a function that encloses ``||sum a_k mu_k - t||^2``, t a mixture or a feature row."""
    features, count = game.embeddings.features, len(game.all_sizes)
    if features is not None:
        rows = np.asarray(features, dtype=np.float64)
        width = rows.shape[1]
        table = flint.arb_mat(count, width, [flint.arb(float(v)) for v in rows.ravel()])

        def to_row(a: list[Any], b: list[Any] | None, row: Any) -> Any:
            weights = a if b is None else [u - v for u, v in zip(a, b, strict=True)]
            gap = flint.arb_mat(1, count, weights) * table
            if row is not None:
                gap = gap - flint.arb_mat(1, width, [flint.arb(float(v)) for v in row])
            return (gap * gap.transpose())[0, 0]

        return to_row
    inner = -np.asarray(game.embeddings._best, dtype=np.float64)
    products = flint.arb_mat(count, count, [flint.arb(float(v)) for v in inner.ravel()])

    def to_mixture(a: list[Any], b: list[Any] | None, row: Any) -> Any:
        assert b is not None
        gap = flint.arb_mat(1, count, [u - v for u, v in zip(a, b, strict=True)])
        return (gap * products * gap.transpose())[0, 0]

    return to_mixture


def _in_floats(game: GameModel, goal: Objective, payments: Array, x: Array) -> PointEnclosure:
    few = (6 * len(game.all_sizes) + 64) * U
    profile = game.profile(x)
    total = profile.total
    loss, off = 0.0, 0.0
    largest = _largest_norm(game)
    for weight, target in zip(game.loss.weights, game.loss.targets, strict=True):
        square = game.geometry.to_target(profile.mixture, profile.distances, target)
        loss += weight * square
        # both ends of the difference are means of rows, each known to ``few`` times the largest row
        off += weight * (4.0 * few * largest * math.sqrt(square) + 8.0 * (few * largest) ** 2 + few * square)
        if game.embeddings.features is None:
            off += weight * 4.0 * few * largest**2
    added = game.loss_of(profile, goal.finite_sample) - loss if game.sampling or goal.finite_sample else 0.0
    loss, off = loss + added, off + few * abs(added) + 4.0 * few * abs(loss)
    spend = exact_sum(payments * x)
    slack = 4.0 * U * exact_sum(np.abs(payments * x))
    return PointEnclosure(
        (spend - slack, spend + slack),
        (max(loss - off, 0.0), loss + off),
        (total * (1.0 - few), total * (1.0 + few)),
    )


def _largest_norm(game: GameModel) -> float:
    features = game.embeddings.features
    if features is None:
        inner = game.embeddings._inner_products
        return math.sqrt(max(float(inner.max()), -float(inner.min())))
    return math.sqrt(
        max(float(np.einsum("ij,ij->i", block, block, dtype=np.float64).max()) for block in _blocks(features))
    )


def _blocks(rows: Any, size: int = 65536) -> Any:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]

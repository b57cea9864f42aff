"""The server's loss as a value: which embeddings the mixture should be near, and how much each counts.

    loss(m) = sum_j weight_j ||m - target_j||^2   [+ (sum_j weight_j) sum_k z_k (1 - ||mu_k||^2) / (n_N S)]

The paper's loss has two targets, the mean of the remaining clients (unlearning effectiveness) and that of the original ones
(stability). Any other weighted sum of squared distances is a user's own objective: formulas, HAIPO, the certified search,
verification and files all read this one value, so a certificate always speaks of the loss that the game has. The bracket is
the sampling term, see :meth:`stackfu.StackelbergGame.finite_sample_penalty`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import InputError

__all__ = ["ServerLoss", "Target"]

Kind = Literal["remaining", "original", "mixture", "point"]


@dataclass(frozen=True)
class Target:
    """An embedding: the mean of the remaining or of the original clients, a mixture of original clients, or a feature row."""

    kind: Kind
    values: tuple[float, ...] = ()

    def __str__(self) -> str:
        return self.kind if not self.values else f"{self.kind} of {len(self.values)} numbers"


REMAINING, ORIGINAL = Target("remaining"), Target("original")


@dataclass(frozen=True)
class ServerLoss:
    """A weighted sum of squared distances to given embeddings.

    >>> ServerLoss.of_paper(1.0, 0.5)
    ServerLoss(1 ||m - remaining||^2 + 0.5 ||m - original||^2)
    >>> ServerLoss.to_mixtures([[0.0, 0.5, 0.5]], [2.0])
    ServerLoss(2 ||m - mixture of 3 numbers||^2)
    """

    targets: tuple[Target, ...]
    weights: tuple[float, ...]
    sampling: bool = False

    def __post_init__(self) -> None:
        if len(self.targets) != len(self.weights) or not self.targets:
            raise InputError(
                "weights", f"needs one number per target, {len(self.targets)}", value=len(self.weights)
            )
        for j, target in enumerate(self.targets):
            if not isinstance(target, Target) or target.kind not in get_args(Kind):
                raise InputError("targets", f"entry {j} is none of {', '.join(get_args(Kind))}", value=target)
        for j, weight in enumerate(self.weights):
            if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight) or weight < 0:
                raise InputError("weights", f"entry {j} must be finite and not negative", value=weight)

    @classmethod
    def of_paper(cls, lam_v: float, lam_s: float) -> ServerLoss:
        """``lam_v ||m - mu_N||^2 + lam_s ||m - mu_O||^2``."""
        return cls((REMAINING, ORIGINAL), (lam_v, lam_s))

    @classmethod
    def to_mixtures(cls, mixtures: npt.ArrayLike, weights: Sequence[float]) -> ServerLoss:
        """Squared distances to mixtures of the original clients' embeddings, one row of shares (summing to 1) per target."""
        rows = _rows(mixtures, "mixtures")
        sums = rows.sum(axis=1)
        bad = np.flatnonzero(~(np.abs(sums - 1.0) <= 1e-9))
        if len(bad):
            raise InputError("mixtures", f"row {bad[0]} must sum to 1", value=sums[bad[0]])
        return cls(
            tuple(Target("mixture", tuple(map(float, row / row.sum()))) for row in rows), _weights(weights)
        )

    @classmethod
    def to_points(cls, points: npt.ArrayLike, weights: Sequence[float]) -> ServerLoss:
        """Squared distances to feature rows, for games whose embeddings are feature rows of the same width."""
        rows = _rows(points, "points")
        return cls(tuple(Target("point", tuple(map(float, row))) for row in rows), _weights(weights))

    @property
    def is_of_paper(self) -> bool:
        """Whether the targets are the paper's two."""
        return self.targets == (REMAINING, ORIGINAL)

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return float(sum(self.weights))

    def with_sampling(self) -> ServerLoss:
        """The same distances, and the variance of the used samples' embedding."""
        return replace(self, sampling=True)

    def check(self, clients: int, width: int | None) -> None:
        """Refuse targets that do not fit a game of this many original clients, whose rows have this width (None: no rows)."""
        for j, target in enumerate(self.targets):
            if target.kind == "mixture" and len(target.values) != clients:
                raise InputError(
                    "server_loss",
                    f"target {j} needs {clients} shares, one per original client",
                    value=len(target.values),
                )
            if target.kind == "point" and len(target.values) != width:
                why = (
                    "the embeddings are inner products, not feature rows"
                    if width is None
                    else "one per feature"
                )
                raise InputError(
                    "server_loss", f"target {j} does not fit: {why}", value=f"{len(target.values)} numbers"
                )

    def __repr__(self) -> str:
        terms = " + ".join(f"{w:g} ||m - {t}||^2" for w, t in zip(self.weights, self.targets, strict=True))
        return f"ServerLoss({terms}{' + sampling' if self.sampling else ''})"


def _rows(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    try:
        rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(name, "must be an array of numbers, one row per target") from None
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(name, "must be an array of numbers, one row per target", value=rows.shape)
    if not np.isfinite(rows).all():
        raise InputError(name, "must be finite", value=rows[~np.isfinite(rows)][0])
    return rows


def _weights(weights: Sequence[float]) -> tuple[float, ...]:
    try:
        return tuple(float(w) for w in weights)
    except (TypeError, ValueError):
        raise InputError("weights", "must be numbers, one per target", value=repr(weights)) from None

"""The server's loss as a value: which embeddings the mixture should be near, and how much each counts.

    loss(m) = sum_j weight_j ||m - target_j||^2   [+ (sum_j weight_j) sum_k z_k v_k / (n_N S)]

The paper's loss has two targets, the mean of the remaining clients (unlearning effectiveness) and that of the original ones
(stability). Any other weighted sum of squared distances is a user's own objective: formulas, HAIPO, the certified search,
verification and files all read this one value, so a certificate always speaks of the loss that the game has. The bracket is
the sampling term, with the variances v_k of one sample, see :meth:`stackfu.StackelbergGame.finite_sample_penalty`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..embedding.names import refuse_names
from ..errors import InputError
from .arguments import flag, number, numbers

__all__ = ["ServerLoss", "Target"]

Kind = Literal["remaining", "original", "mixture", "point"]
#: The shares of a mixture sum to 1 up to this, then exactly but for the last digits of each.
WHOLE, LAST_DIGITS = 1e-9, 2.0**-52


@dataclass(frozen=True)
class Target:
    """An embedding: the mean of the remaining or of the original clients, a mixture of original clients, or a feature row."""

    kind: Kind
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in get_args(Kind):
            raise InputError("kind", f"is none of {', '.join(get_args(Kind))}", value=repr(self.kind))
        if self.kind == "mixture":
            refuse_names(self.values, "values", "one share per original client in their order")
        values = numbers(self.values, "values", "must be a sequence of numbers")
        if values.ndim != 1 or (len(values) > 0) != (self.kind in ("mixture", "point")):
            what = {"mixture": "one share per original client", "point": "one number per feature"}
            asked = what.get(self.kind, "left out")
            raise InputError("values", f'must be {asked} where the kind is "{self.kind}"', value=values.shape)
        if not np.isfinite(values).all():
            raise InputError("values", "must be finite", value=values[~np.isfinite(values)][0])
        object.__setattr__(
            self, "values", tuple(_shares(values) if self.kind == "mixture" else values.tolist())
        )

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
        targets, weights = (_several(getattr(self, name), name) for name in ("targets", "weights"))
        if len(targets) != len(weights) or not targets:
            raise InputError("weights", f"needs one number per target, {len(targets)}", value=len(weights))
        for j, target in enumerate(targets):
            if (
                type(target) is not Target
            ):  # solvers and files read its fields, not what a subclass makes of them
                raise InputError("targets", f"entry {j} must be a Target", value=type(target).__name__)
        read = tuple(
            number(weight, "weights", f"entry {j} must be a number") for j, weight in enumerate(weights)
        )
        for j, weight in enumerate(read):
            if not 0.0 <= weight < math.inf:
                raise InputError("weights", f"entry {j} must be finite and not negative", value=weight)
        if not math.isfinite(sum(read)):
            raise InputError("weights", "must have a finite sum", value=read)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "weights", read)
        object.__setattr__(self, "sampling", flag(self.sampling, "sampling"))

    @classmethod
    def of_paper(cls, lam_v: float, lam_s: float) -> ServerLoss:
        """``lam_v ||m - mu_N||^2 + lam_s ||m - mu_O||^2``."""
        return cls((REMAINING, ORIGINAL), (lam_v, lam_s))

    @classmethod
    def to_mixtures(cls, mixtures: npt.ArrayLike, weights: Sequence[float]) -> ServerLoss:
        """Return squared distances to mixtures of the original clients' embeddings, one row of shares (summing to 1) per target."""
        refuse_names(mixtures, "mixtures", "one share per original client in their order")
        return cls(tuple(Target("mixture", row) for row in _rows(mixtures, "mixtures")), weights)  # type: ignore[arg-type]

    @classmethod
    def to_points(cls, points: npt.ArrayLike, weights: Sequence[float]) -> ServerLoss:
        """Return squared distances to feature rows, for games with embeddings of the same width."""
        return cls(tuple(Target("point", row) for row in _rows(points, "points")), weights)  # type: ignore[arg-type]

    @property
    def is_of_paper(self) -> bool:
        """True if the targets are the paper's two."""
        return self.targets == (REMAINING, ORIGINAL)

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return float(sum(self.weights))

    def with_sampling(self) -> ServerLoss:
        """Return the same distances, and the variance of the used samples' embedding."""
        return replace(self, sampling=True)

    def check(self, clients: int, width: int | None) -> None:
        """Refuse targets that do not fit a game of this many original clients with rows of this width (None: no rows)."""
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
    problem = "must be an array of numbers, one row per target"
    rows = np.atleast_2d(numbers(values, name, problem))
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(name, problem, value=rows.shape)
    return rows


def _shares(values: npt.NDArray[np.float64]) -> list[float]:
    """Return shares with a sum of 1 to the last digits; exact sums are left as they are, so that files reproduce them."""
    total = math.fsum(values)
    if not abs(total - 1.0) <= WHOLE:
        raise InputError("values", "of a mixture must sum to 1", value=total)
    exact = abs(total - 1.0) <= LAST_DIGITS * float(np.abs(values).sum())
    shares: list[float] = (values if exact else values / total).tolist()
    return shares


def _several(values: object, name: str) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(name, "must be a sequence, one entry per target", value=repr(values))
    return tuple(values)

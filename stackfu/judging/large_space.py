"""A feature game of any size read exactly: what :class:`~stackfu.judging.space.Space` encloses, with no copy of the features.

Errors of sums over coordinates are bounded through norms: ``|<mu, x> - computed| <= gamma ||mu|| ||x||`` however they are added up,
so that one pass over the rows gives the value and its error at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..results.certificate import Knot
from .check_tolerances import NORM_ROUNDING
from .distances import U
from .inner_products import gamma
from .rows import FeatureRows
from .space import Centre, Space

__all__ = ["LargeSpace"]

Floats = npt.NDArray[np.float64]


class LargeSpace(Space):
    """Intervals only; rows are read from the features pass by pass."""

    together = False

    def _feature_norms(self, features: Any, keep: Any) -> Any:
        return self._between_squares(FeatureRows(features, keep, np.zeros(features.shape[1])).squares())

    def _between_squares(self, squares: Floats) -> Any:
        return self.numbers.between(squares, gamma(self._width + 8) * squares)

    def _from_features(self, features: Any, keep: Any, shares: list[Any]) -> None:
        numbers = self.numbers
        self.kind, self.defect, self._width = "features", 0.0, features.shape[1]
        nowhere = np.zeros(self._width)
        self._origin = origin = FeatureRows(features, keep, nowhere).combine(self._middle(self.alpha))
        # each entry of a row seen from there is exact but for its own last digit
        self._seen = FeatureRows(features, keep, origin)
        squares = self._seen.squares()
        self.diagonal = self._between_squares(squares)
        self._norms = np.asarray(numbers.high(numbers.root(self.diagonal)))
        everybody = FeatureRows(features, np.arange(len(features)), origin)
        norms = np.asarray(numbers.high(numbers.root(self._between_squares(everybody.squares()))))
        self.targets = []
        for mix, target in shares:
            if mix is None:
                value = np.array(target.values) - origin
                self.targets.append((value, U * 1.01 * float(np.linalg.norm(value))))
                continue
            middle = self._middle(mix)
            spread = 0.5 * (mix.high - mix.low) * 1.01 + 4 * U * np.abs(middle)
            value, error = self._added(everybody, norms, middle)
            self.targets.append((value, (error + float(spread @ norms)) * 1.01))
        value = sum(w * v for w, (v, _) in zip(self.weights, self.targets, strict=True))
        error = sum(
            w * (e + 8 * U * float(np.linalg.norm(v)))
            for w, (v, e) in zip(self.weights, self.targets, strict=True)
        )
        self.target_pull = self._along(value, error * 1.01)
        total = numbers.of(0.0)
        for w, (v, e) in zip(self.weights, self.targets, strict=True):
            total = total + w * self._product((v, e), (v, e))
        self.loss_constant = total
        norms = numbers.root(self.diagonal)
        far = norms + numbers.of(float(np.max(numbers.high(norms))))
        self.reach = np.asarray(numbers.high(far * far))

    def _added(self, rows: FeatureRows, norms: Floats, weights: Floats) -> tuple[Floats, float]:
        """``sum_k weights_k rows_k`` and a bound on the norm of its error; ``norms`` are upper bounds of the rows'."""
        size = float(np.abs(weights) @ norms) * (1.0 + gamma(len(norms) + 2))
        return rows.combine(weights), gamma(rows.terms + 8) * size * 1.01

    def _along(self, value: Floats, error: float) -> Any:
        """``<mu_k, x>`` for every client, x given with a bound on the norm of its error.

        However the products are summed, the result is off by at most ``gamma sum_d |mu_kd x_d| <= gamma ||mu_k|| ||x||``.
        """
        size = gamma(self._width + 8) * float(np.linalg.norm(value)) * 1.01 + error
        return self.numbers.between(self._seen.inner(value), self._norms * (size * 1.01))

    def _product(self, a: tuple[Floats, float], b: tuple[Floats, float]) -> Any:
        middle = float(a[0] @ b[0])
        first, second = (float(np.linalg.norm(x)) * 1.01 for x in (a[0], b[0]))
        errors = first * b[1] + a[1] * second + a[1] * b[1]
        return self.numbers.between(middle, (gamma(len(a[0]) + 8) * first * second + errors) * 1.01)

    def mixed(self, clients: Any, weights: Floats) -> Any:
        """``<mu_k, sum_j weights_j mu_j>`` for every client k."""
        return self._along(*self._mixture(clients, weights))

    def _mixture(self, clients: Any, weights: Floats) -> tuple[Floats, float]:
        """``sum_j weights_j mu_j`` over some clients, with a bound on the norm of its error."""
        value, error = self._added(self._seen.among(clients), self._norms[clients], weights)
        return value, error + 4 * U * float(np.linalg.norm(value))

    def centre(self, knot: Knot) -> Centre:
        """Return the reference point of a knot."""
        if knot.support is not None:
            value, error = self._mixture(knot.support, knot.centre)
            size = float(np.linalg.norm(knot.centre)) * (1 + NORM_ROUNDING)
            return Centre(self._along(value, error), (value, error), size)
        if len(knot.centre) != len(self._origin):
            raise VerificationError("a centre does not have as many coordinates as the feature rows")
        value = knot.centre - self._origin
        error = U * float(np.linalg.norm(value)) * 1.01
        return Centre(self._along(value, error), (value, error), 0.0)

    def cross(self, a: Centre, b: Centre) -> Any:
        """``<c_a, c_b>``."""
        return self._product(a.made_of, b.made_of)

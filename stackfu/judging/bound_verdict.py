"""Result of a check of a lower bound, and the final step of both checkers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BoundVerdict", "parabola"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BoundVerdict:
    """Result of a check: ``passed``, the proved bound, and the first failing leaf as a sentence.

    ``margin`` is the least ``g`` over all leaves: how much there is to spare, or what is missing.
    """

    passed: bool
    lower: float
    leaves: int
    margin: float
    message: str
    failing_leaf: int | None = None

    def __bool__(self) -> bool:
        return self.passed


def parabola(left: Floats, right: Floats, bend: Floats) -> Floats:
    """Lower bounds of ``(1 - x) left + x right + x (1 - x) bend`` on [0, 1]."""
    least = np.minimum(left, right)
    rise = np.nextafter(np.abs(right - left), 0.0)
    falls = (bend < 0.0) & ~(rise >= -bend)
    down = np.where(falls, bend, -1.0)
    # the vertex lies (|bend| - rise)^2 / (4 |bend|) below the lower end, never more than |bend| / 4
    fall = np.nextafter(np.nextafter(-down - rise, np.inf) ** 2, np.inf) / np.nextafter(-4.0 * down, 0.0)
    drop = np.fmin(np.nextafter(fall, np.inf), np.nextafter(-0.25 * down, np.inf))
    value = np.where(falls, np.nextafter(least - drop, -np.inf), least)
    unknown = np.isnan(left) | np.isnan(right) | np.isnan(bend)
    return np.asarray(np.where(unknown, -np.inf, value))

"""Ranges of axes that one extreme client does not squeeze."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..model.geometry import Array

__all__ = ["outliers"]

#: A value is extreme if it is further from the quartiles than this many interquartile ranges ...
FAR = 3.0
#: ... and all values span more than this many times what the others span.
SQUEEZED = 3.0
#: Fewer values than this have no outliers; of more at most this part, and at most this number.
FEWEST, PART, MOST = 5, 0.1, 5
#: Values that differ by less than this part of the largest are alike.
ROUNDING = 1e-9


def outliers(values: Array) -> npt.NDArray[np.bool_]:
    """Return True for the few values that would squeeze all others on an axis into a small part of it.

    >>> import numpy as np
    >>> outliers(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 90.0])).tolist()
    [False, False, False, False, False, True]
    >>> bool(outliers(np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])).any())
    False
    """
    none = np.zeros(len(values), dtype=bool)
    if len(values) < FEWEST:
        return none
    first, third = np.quantile(values, [0.25, 0.75])
    reach = FAR * (third - first)
    far = (values < first - reach) | (values > third + reach)
    if not far.any() or far.sum() > max(1, min(MOST, int(PART * len(values)))):
        return none
    span = np.ptp(values[~far])
    squeezed = np.ptp(values) > max(SQUEEZED * span, ROUNDING * np.abs(values).max())
    return far if squeezed else none

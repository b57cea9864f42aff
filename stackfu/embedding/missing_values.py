"""Missing values in a table: how they are spelled, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["SPELLED", "gap_problem"]

#: Cells of a text file that stand for a missing value, in lower case.
SPELLED = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})


def gap_problem(holes: NDArray[np.bool_], columns: Sequence[str]) -> str:
    """Return where the first gap of a table is, how many there are, and what can be done about them.

    >>> print(gap_problem(np.array([[False, False], [True, False], [True, True]]), ["age", "weight"]).partition("; ")[0])
    row 2 of column 'age' is missing, and 2 of 3 rows have gaps (in 2 of 2 columns, most in 'age': 2)
    """
    row, place = (int(k) for k in np.argwhere(holes)[0])
    rows, per_column = int(holes.any(axis=1).sum()), holes.sum(axis=0)
    most = int(np.argmax(per_column))
    return (
        f"row {row + 1} of column {columns[place]!r} is missing, and {rows} of {len(holes)} rows have gaps "
        f"(in {int((per_column > 0).sum())} of {len(columns)} columns, most in {columns[most]!r}: {int(per_column[most])}); "
        'leave these rows out with missing="drop", or fill gaps with missing="median"'
    )

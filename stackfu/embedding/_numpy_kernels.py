"""NumPy versions of the compiled inner loops, on the same packed layout.

They run while there is no machine code yet (:mod:`stackfu.jit`) and are the reference for the compiled versions in tests. All
arithmetic is in float64.
"""

from __future__ import annotations

import numpy as np

#: Numbers in a block of pairs that is computed at once.
_BLOCK = 1 << 20


def add_column_sums(rows, out):
    """Add the sum of the rows to ``out``."""
    out += rows.sum(axis=0, dtype=np.float64)


def sum_of_squares(rows, centre, scale):
    """Return the sum over the rows of ``|(row - centre) scale|^2``."""
    differences = ((rows - centre) * scale).ravel()
    return float(differences @ differences)


def pack_rows(rows, centre, scale, first, expanded, values, halves):
    """Write ``(rows - centre) * scale`` to the places from ``first`` on, and ``-|value|^2 / 2`` if ``expanded``."""
    scaled = ((rows - centre) * scale).astype(values.dtype)
    groups, places = np.divmod(np.arange(first, first + len(rows)), values.shape[2])
    values[groups, :, places] = scaled
    exact = scaled.astype(np.float64)
    halves[groups, places] = -0.5 * np.einsum("ij,ij->i", exact, exact) if expanded else 0.0


def sum_complements(
    left, left_start, counts, run_starts, run_clients, right, right_start, d, q_start, q_stop, first_row, starts, first,
    direct, unit, out,
):  # fmt: skip
    """Add the sums of ``1 - k`` of each run of left groups with each client on the right to ``out``."""
    columns = right.shape[2]
    b = _rows(right[q_start:q_stop])
    b_start = right_start[q_start:q_stop].reshape(-1).astype(np.float64)
    begin = first_row + q_start * columns
    end = min(first_row + q_stop * columns, int(starts[-1]))
    b, b_start = b[: end - begin], b_start[: end - begin]
    owner = np.searchsorted(starts, begin, side="right") - 1
    last = np.searchsorted(starts, end, side="left")
    cuts = np.maximum(starts[owner:last] - begin, 0)
    for run in range(len(run_clients)):
        groups = slice(run_starts[run], run_starts[run + 1])
        real = (np.arange(left.shape[2]) < counts[groups, None]).reshape(-1)
        a = _rows(left[groups])[real]
        a_start = left_start[groups].reshape(-1)[real].astype(np.float64)
        sums = np.zeros(len(b))
        step = max(1, _BLOCK // max(1, len(b)))
        for i in range(0, len(a), step):
            part = slice(i, i + step)
            power = (
                -_squares(a[part], b, float(unit))
                if direct
                else a_start[part, None] + b_start + a[part] @ b.T
            )
            sums -= np.expm1(np.minimum(power, 1.0) * np.log(2.0)).sum(axis=0)
        out[run_clients[run], owner - first : last - first] += np.add.reduceat(sums, cuts)


def count_distances(
    left, left_start, right, right_start, d, n, p_start, p_stop, low, width, bins, found, kept
):  # fmt: skip
    """Histogram the squared distances of all pairs of rows ``i < j``, i in the left groups ``p_start : p_stop``."""
    rows = left.shape[2]
    a = _rows(left[p_start:p_stop])[: n - p_start * rows]
    b = _rows(right)[:n]
    last = len(bins) - 1
    for i, row in enumerate(a, start=p_start * rows):
        values = _squares(row[None], b[i + 1 :], 1.0)[0]
        place = (values - low) / width
        below, listed = values < low, (values >= low) & (place < last - 1)
        bins[0] += np.count_nonzero(below)
        bins[last] += np.count_nonzero(~below & ~listed)
        bins[1:last] += np.bincount(place[listed].astype(np.int64), minlength=last - 1)
        new = values[listed][: len(found) - kept]
        found[kept : kept + len(new)] = new
        kept += len(new)
    return kept


def _rows(groups):
    """Return packed groups as rows of float64."""
    return groups.transpose(0, 2, 1).reshape(-1, groups.shape[1]).astype(np.float64)


def _squares(a, b, unit):
    """Return ``|(a_i - b_j) unit|^2`` from differences."""
    out = np.empty((len(a), len(b)))
    for i, row in enumerate(a):
        differences = (b - row) * unit
        out[i] = np.einsum("ij,ij->i", differences, differences)
    return out

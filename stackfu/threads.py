"""Number of threads of a factorisation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = ["MOST_TOGETHER", "factoring"]

#: Rows of a matrix that several threads may factor. OpenBLAS 0.3 ends the process ("Segmentation fault") when two threads factor
#: 16,300 rows in double precision; it was seen to factor 12,000.
MOST_TOGETHER = 10_000


def factoring(rows: int, threads: int | None = None) -> AbstractContextManager[Any]:
    """Within it, BLAS uses as many threads as are safe for a Cholesky factorisation of so many rows; ``threads`` at most.

    >>> with factoring(20_000):
    ...     pass
    """
    from threadpoolctl import threadpool_limits

    within: AbstractContextManager[Any] = threadpool_limits(
        limits=1 if rows > MOST_TOGETHER else threads, user_api="blas"
    )
    return within

"""How many threads passes over very many clients run on: as many as were faster just now.

Two threads halve a pass on a quiet machine. On a busy one each of the many short passes waits for the slower thread, and one alone
can be ten times faster. So a pass is timed both ways before a search begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numba

__all__ = ["as_fast_as_now"]

#: Times that either way is tried; the best counts.
TRIALS = 3
#: All threads are used if they take less than this part of the time of one.
WORTH_IT = 0.85


@contextmanager
def as_fast_as_now(task: Callable[[], object]) -> Iterator[int]:
    """Inside, compiled passes run on one thread or on all, whichever did ``task`` faster; gives the number.

    >>> before = numba.get_num_threads()
    >>> with as_fast_as_now(lambda: None) as threads:
    ...     threads in (1, before)
    True
    >>> numba.get_num_threads() == before
    True
    """
    allowed = numba.get_num_threads()
    try:
        if allowed > 1:
            task()
            best = {1: float("inf"), allowed: float("inf")}
            for _ in range(TRIALS):
                for threads in best:
                    numba.set_num_threads(threads)
                    began = time.perf_counter()
                    task()
                    best[threads] = min(best[threads], time.perf_counter() - began)
            numba.set_num_threads(allowed if best[allowed] < WORTH_IT * best[1] else 1)
        yield numba.get_num_threads()
    finally:
        numba.set_num_threads(allowed)

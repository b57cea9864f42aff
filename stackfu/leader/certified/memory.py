"""Return freed memory to the system.

The C library keeps freed arrays of up to 32 MB for later use, between others that are still in use. With a million clients, and
arrays of that size, it kept more memory than was in use. ``malloc_trim`` returns every free page.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from .knots import COMPACT

__all__ = ["trim_heap"]


@cache
def _trim() -> Callable[[int], Any] | None:
    """Return the C library's ``malloc_trim``, or None if it has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another system, or another library
        return None


def trim_heap(clients: int) -> None:
    """Return the memory of freed arrays to the system, if they are of many clients; small arrays keep little."""
    trim = _trim() if clients >= COMPACT else None
    if trim is not None:
        trim(0)

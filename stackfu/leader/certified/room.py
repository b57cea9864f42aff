"""Memory that was freed, handed back to the system.

The C library keeps freed arrays of up to 32 MB for whoever asks next, in between others that are still in use: of a million
clients, whose arrays are that large, it kept more than all that was in use. Asked to, it gives back every page that is free.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from .knots import COMPACT

__all__ = ["give_back"]


@cache
def _trim() -> Callable[[int], Any] | None:
    """The C library's ``malloc_trim``; None where it has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another system, or another library
        return None


def give_back(clients: int) -> None:
    """Give back what arrays of so many clients have left behind; of few there is nothing to speak of."""
    trim = _trim() if clients >= COMPACT else None
    if trim is not None:
        trim(0)

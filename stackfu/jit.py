"""Compiled functions, and where their machine code is kept between runs.

numba keeps machine code in ``NUMBA_CACHE_DIR``, else beside the source, else in the user's cache folder, and by
itself refuses to *decorate* a function for which none of them can be written: a read-only installation without a home
could not even be imported. Here such a function is compiled anew in every process; only time is lost. Every compiled
function of the library comes from this :func:`njit`.

A process that meets a function for the first time compiles it, or reads its machine code, in the middle of the work. Limits on
time are meant for the work: :func:`clock` stands still meanwhile. The compiler makes millions of objects that live as long as
it works; the garbage collector, which would walk over all of them again and again, waits until it has finished.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

__all__ = ["ForgivingCache", "clock", "njit"]

_log = logging.getLogger(__name__)

#: Waits until another process has compiled the function of this name; whether one was asked to (:mod:`stackfu.ahead`).
awaited: Callable[[str], bool] | None = None

#: In a process that only compiles: the functions that will be called from Python. The others are inner ones, which need no
#: wrapper for that and must not be kept without it. None: every function may be called.
called_from_python: frozenset[str] | None = None


class ForgivingCache(FunctionCache):  # type: ignore[misc]
    """numba's cache, except that a folder which fails in use (full, taken away) ends the caching, not the computation."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._called = _called(function)

    def keeps(self, sig: Any, target_context: Any) -> bool:
        """Whether the machine code for these arguments is on disk; True as well if that cannot be told."""
        try:
            return self._index_key(sig, target_context.codegen()) in self._cache_file._load_index()
        except (
            OSError,
            AttributeError,
        ) as error:  # they are numba's own affair, and may be called something else one day
            _log.info("cannot tell what compiled code is kept: %s", error)
            return True

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for these arguments, or None; waits for a process that was asked to compile it."""
        try:
            found = super().load_overload(sig, target_context)
            if found is None and awaited is not None and awaited(self._called):
                found = super().load_overload(sig, target_context)
            return found
        except OSError as error:
            return self._give_up(error)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.disable()
        _log.info("compiled code is not kept: %s", error)


def njit(*, cache: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(**options)``, with the machine code kept on disk where that is possible.

    >>> @njit(nogil=True)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """

    def decorate(function: Callable[..., Any]) -> Any:
        inner = called_from_python is not None and _called(function) not in called_from_python
        # nothing here is called from C: the wrappers for that would be compiled and never used
        compiled = numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=inner, **options)(function)
        if cache and not inner and not numba.config.DISABLE_JIT:
            try:
                compiled._cache = ForgivingCache(function)  # what cache=True does, with a cache of our own
            except (RuntimeError, OSError) as error:  # "no locator available": no folder, or no source file
                _log.info("compiled code is not kept: %s", error)
        return compiled

    return decorate


def _called(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


class _Compiling(event.Listener):  # type: ignore[misc]
    """Adds up how long the compiler was at work, and has the garbage collector wait for it.

    Its lock is held inside itself, so only the outermost one counts; threads that wait for it are inside as well.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._since, self._collecting = 0, 0.0, False
        self._counting = threading.RLock()

    def on_start(self, event: Any) -> None:
        with self._counting:
            if self._depth == 0:
                self._since, self._collecting = time.perf_counter(), gc.isenabled()
                gc.disable()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        with self._counting:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._since
                if self._collecting:
                    gc.enable()


_compiling = _Compiling()
event.register("numba:compiler_lock", _compiling)


def clock() -> float:
    """Seconds since some moment, like ``time.perf_counter``, without those in which functions were compiled.

    >>> before = clock()
    >>> before <= clock()
    True
    """
    return time.perf_counter() - _compiling.seconds

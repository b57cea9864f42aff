"""Compiled functions: where their machine code is kept, and what runs until there is some.

Every compiled function of the library comes from :func:`njit`. Its machine code is kept on disk, in ``NUMBA_CACHE_DIR``, else next
to the source, else in the user's cache folder; where none of them can be written, functions are compiled anew in every process.

Compiling everything that a first solve calls takes half a minute. A call with small arguments does not wait for it: the same source
runs as plain Python (:func:`plain`), while a process in the background compiles the function (:mod:`stackfu.background_compiler`).
As soon as the machine code is on disk it is used. A call with large arguments compiles at once, and a message on standard
error appears after a second. The environment variable ``STACKFU_COMPILE`` chooses otherwise: ``now`` compiles at every
first call, ``never`` runs plain Python only, ``background`` is the default.

Time limits exclude compilation: :func:`clock` stands still while a function is compiled. The compiler makes millions of
objects that live as long as it works; the garbage collector, which would walk over all of them again and again, waits until it
has finished.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.core import event
from numba.core.caching import FunctionCache

__all__ = ["ForgivingCache", "clock", "njit", "plain", "seconds_at_work"]

_log = logging.getLogger(__name__)

#: Entries that the arrays of a call may have in all for the call to run as plain Python.
SMALL = 4_000
#: Seconds of plain Python after which a function waits for its machine code, if that is being compiled.
PATIENCE = 2.0
#: Seconds between two looks at the disk for the machine code of a function that runs as plain Python.
LOOK_AGAIN = 0.1
#: Seconds of compiling after which a message appears.
SILENT = 1.0


class ForgivingCache(FunctionCache):  # type: ignore[misc]
    """numba's cache, except that a folder which fails in use (full, taken away) ends the caching, not the computation."""

    def keeps(self, sig: Any, target_context: Any) -> bool:
        """Return True if the machine code for these argument types is on disk."""
        try:
            return self._index_key(sig, target_context.codegen()) in self._cache_file._load_index()
        except (OSError, AttributeError) as error:
            _log.info("cannot tell which compiled code is kept: %s", error)
            return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code that is kept for these argument types, or None."""
        try:
            return super().load_overload(sig, target_context)
        except OSError as error:
            return self._give_up(error)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled code, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.disable()
        _log.info("compiled code is not kept: %s", error)


def njit(
    *,
    cache: bool = True,
    substitute: Callable[..., Any] | None = None,
    small: int = SMALL,
    allocates: bool = True,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function with ``numba.njit``, keeps the code on disk, and bridges the time until then.

    Parameters
    ----------
    cache : bool
        Keep the machine code on disk where that is possible.
    substitute : callable, optional
        Does the same in NumPy; runs instead of the Python source while there is no machine code.
    small : int
        Entries that the arrays of a call may have in all for the call to run without machine code.
    allocates : bool
        Pass False for a function that makes no arrays of its own and is called by other compiled functions: nothing then counts
        the references to the arrays it is given, which would cost more than most short functions (80 ns a call beside 5).
    **options
        Options of ``numba.njit``.

    Examples
    --------
    >>> @njit(nogil=True)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """

    if not allocates:
        options["_nrt"] = False

    def decorate(function: Callable[..., Any]) -> Any:
        # nothing here is called from C: the wrappers for that would be compiled and never used
        compiled = numba.njit(no_cfunc_wrapper=True, **options)(function)
        if numba.config.DISABLE_JIT:
            return function if substitute is None else substitute
        if cache:
            try:
                compiled._cache = ForgivingCache(function)  # what cache=True does, with a cache of our own
            except (RuntimeError, OSError) as error:  # "no locator available": no folder, or no source file
                _log.info("compiled code is not kept: %s", error)
            # numba asks this method for the function to call where it has no machine code for the arguments
            compiled._compile_for_args = _Bridge(compiled, substitute, small)
        return compiled

    return decorate


def plain(function: Any) -> Callable[..., Any]:
    """Return the plain Python version of a compiled function.

    Numbers come back as Python's own, as from compiled code. Divisions by zero give infinities or NaN where the function was
    compiled with ``error_model="numpy"``, because floats come in as NumPy's.

    Examples
    --------
    >>> from stackfu.embedding._kernels import sum_of_squares
    >>> plain(sum_of_squares)(np.ones((2, 3)), np.zeros(3), 2.0)
    24.0
    """
    bridge = getattr(function, "_compile_for_args", None)
    inner = bridge.inner if isinstance(bridge, _Bridge) else function

    @functools.wraps(inner)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return _as_python(inner(*map(_as_numpy, args)))

    return run


def _as_numpy(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_numpy, value))
    return np.float64(value) if type(value) is float else value


def _as_python(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_python, value))
    return value.item() if isinstance(value, np.generic) else value


class _Bridge:
    """Chooses for a compiled function between its machine code and plain Python, for arguments that come for the first time."""

    def __init__(self, compiled: Any, substitute: Callable[..., Any] | None, small: int) -> None:
        self._compiled, self._substitute, self._small = compiled, substitute, small
        self._compile = compiled._compile_for_args
        self._spent, self._next_look = 0.0, 0.0

    @functools.cached_property
    def inner(self) -> Callable[..., Any]:
        """The Python source, calling plain Python versions in turn; or the substitute."""
        if self._substitute is not None:
            return self._substitute
        return _in_plain_python(self._compiled.py_func)

    @functools.cached_property
    def _timed(self) -> Callable[..., Any]:
        run = plain(self._compiled)

        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return run(*args)
            finally:
                self._spent += time.perf_counter() - start

        return timed

    def __call__(self, *args: Any) -> Callable[..., Any]:
        """Return the function to call with these arguments."""
        mode = os.environ.get("STACKFU_COMPILE", "background")
        if mode == "never":
            return self._timed
        if mode == "now" or sum(a.size for a in args if isinstance(a, np.ndarray)) > self._small:
            return self._compile(*args)  # type: ignore[no-any-return]
        if time.perf_counter() >= self._next_look:
            kept = getattr(self._compiled._cache, "keeps", None)
            if kept is None:  # no folder to keep machine code in: a background process could not hand it over
                return self._compile(*args) if self._spent > PATIENCE else self._timed
            types = tuple(map(self._compiled.typeof_pyval, args))
            if kept(types, self._compiled.targetctx):
                return self._compile(*args)  # type: ignore[no-any-return]
            from .background_compiler import request

            working = request(self._compiled, types)
            while self._spent > PATIENCE and working():
                time.sleep(LOOK_AGAIN)
                if kept(types, self._compiled.targetctx):
                    break
            if self._spent > PATIENCE:
                return self._compile(*args)  # type: ignore[no-any-return]
            self._next_look = time.perf_counter() + LOOK_AGAIN
        return self._timed


#: For every module of compiled functions its names, with plain Python versions in place of compiled functions.
_plain_names: dict[str, dict[str, Any]] = {}


def _in_plain_python(source: FunctionType) -> FunctionType:
    """Return the function such that it calls the plain Python versions of the compiled functions it names."""
    module = source.__module__
    if module not in _plain_names:
        names = _plain_names[module] = dict(source.__globals__)
        for name, value in source.__globals__.items():
            bridge = getattr(value, "_compile_for_args", None)
            if isinstance(bridge, _Bridge):
                names[name] = bridge.inner
    return FunctionType(
        source.__code__, _plain_names[module], source.__name__, source.__defaults__, source.__closure__
    )


class _Compiling(event.Listener):  # type: ignore[misc]
    """Adds up how long the compiler was at work, and has the garbage collector wait for it.

    Its lock is held inside itself, so only the outermost one counts; threads that wait for it are inside as well.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._since, self._collecting = 0, 0.0, False
        self._counting = threading.RLock()
        self._said, self._timer = False, threading.Timer(0.0, lambda: None)

    def on_start(self, event: Any) -> None:
        with self._counting:
            if self._depth == 0:
                self._since, self._collecting = time.perf_counter(), gc.isenabled()
                gc.disable()
                if not self._said:
                    self._timer = threading.Timer(SILENT, self._say)
                    self._timer.daemon = True
                    self._timer.start()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        with self._counting:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._since
                self._timer.cancel()
                if self._collecting:
                    gc.enable()

    def _say(self) -> None:
        self._said = True
        print(
            "stackfu: compiling for this machine; this happens once and can take half a minute",
            file=sys.stderr,
            flush=True,
        )


_compiling = _Compiling()
event.register("numba:compiler_lock", _compiling)


def seconds_at_work() -> float:
    """Return the seconds since some moment, without those in which functions were compiled."""
    return time.perf_counter() - _compiling.seconds


#: The clock that :func:`clock` reads. The tests put one in its place that counts its readings, so that a search which is
#: limited by time stops after the same steps on every machine.
source: Callable[[], float] = seconds_at_work


def clock() -> float:
    """Return the seconds since some moment by the clock that limits searches: :func:`seconds_at_work`.

    >>> before = clock()
    >>> before <= clock()
    True
    """
    return source()

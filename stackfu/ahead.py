"""Compiling ahead: on the first run after an installation, what a solve needs is compiled by all cores at once.

numba compiles a function when it is first called, one after the other, for half a minute in all; its front end is Python and
keeps one core busy. Here the functions that a solve calls from Python are written down with their argument types, dealt out
to processes of their own, and the machine code goes to numba's cache on disk, from where the process that wants to work takes
each as soon as it is there. A list that no longer fits costs time and nothing else: what is missing is compiled when it is
called, as ever.

The processes compile nothing but this and end, so they may do what a user's process may not: leave out the wrappers by which
Python would call the inner functions (a fifth of the time), compare numba's options by what was set (a tenth), turn inner
functions into machine code only within those that call them (a fifth), and remember what a call with such arguments returns (a
tenth).
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from . import jit

__all__ = ["ENTRIES", "Entry", "compile_ahead"]

_log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A compiled function that Python calls.

    ``types`` has a word per argument: a letter (``f`` float64, ``i`` int64, ``c`` int8, ``b`` bool), the number of dimensions
    if it is an array, ``!`` if that is read-only, ``*4`` for a tuple of four. ``seconds`` is what compiling it took once, a
    hint for dealing out.
    """

    module: str
    name: str
    types: str
    seconds: float


#: What ``stackfu demo`` calls, in the order in which it is needed.
ENTRIES = (
    Entry("embedding._kernels", "add_column_sums", "f2 f1", 0.4),
    Entry("embedding._kernels", "sum_of_squares", "f2 f1 f", 0.1),
    Entry("embedding._kernels", "pack_rows", "f2 f1 f i b f3 f2", 0.4),
    Entry("embedding._kernels", "count_distances", "f3 f2 f3 f2 i i i i f f i1 f1 i", 0.4),
    Entry("embedding._kernels", "sum_complements", "f3 f2 f1 i1 i1 f3 f2 i i i i i1 i b f f2", 0.6),
    Entry("followers.path._loop", "follow", "f2! f1! f1 f f2 f1 f2 c2 c1 i1 f2 f1! f f f1! f", 6.1),
    Entry("followers.path._chain", "smallest_total", "f2! f1 f1! f1! f f", 0.2),
    Entry("model._geometry_kernels", "drifts", "f2! f1", 0.2),
    Entry("model._geometry_kernels", "judge", "f1 f1! f1! f1! f1! f1! f1! f", 0.5),
    Entry("judging._stake_kernels", "stakes", "f2 f2 f1 f1 f1 f1! f1! f1! f f f f f1", 0.7),
    Entry("judging._stake_kernels", "reluctances", "f1 f1 f1! f f f1", 0.2),
    Entry("judging._segment_kernels", "ends", "f2 f1 f1! f1 f1 f2 f1 f f f", 0.4),
    Entry("judging._segment_kernels", "weigh", "f2 f1 f2", 0.2),
    Entry("judging._segment_kernels", "walk", "f2 f2 f2 f f1 f1 f1 f f f i f3 c2 f1", 3.0),
    Entry("judging._segment_kernels", "settle", "f3 c2 f1 f1 f f2 f2 f2 f f1 f1! f1 f1 f f f f f2", 1.9),
    Entry(
        "leader.certified._bound_kernels",
        "client_sums",
        "b f1! f1 f1 f1 f1 b1 b1 f1 f1 f1 f1 f1 f f f*4 f f f f f f",
        0.5,
    ),
    Entry(
        "leader.certified._polish_kernels",
        "polish_at",
        "f2 f1! f1 f1 f1 f1 f2 b1 b1 f1 f f f f f f f f f f f f1 f1 f f b1 b1 b1 b1 b1 b1",
        3.2,
    ),
    Entry(
        "leader.certified._polish_kernels",
        "polish_jointly",
        "f2 f1! f1 f1 f1 f1 b1 b1 f f f f f f f f f f f f f f f1 f1 f f f b1 b1 b1 b1 b1",
        1.9,
    ),
)


@contextmanager
def compile_ahead(entries: tuple[Entry, ...] = ENTRIES, cores: int | None = None) -> Iterator[bool]:
    """Within this context calls of ``entries`` wait for processes that compile them, if there is anything to compile.

    Yields whether there is. Leaving the context waits for what is still being compiled, so that it is done once and for all.
    """
    missing = [entry for entry in entries if _can_be_kept(entry) and not _is_kept(entry)]
    if not missing:
        yield False
        return
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        workers = [_Worker(share) for share in _deal(missing, cores)]
    except OSError as error:  # no processes here
        _log.info("nothing is compiled ahead: %s", error)
        yield False
        return
    before, jit.awaited = jit.awaited, lambda name: any(worker.brings(name) for worker in workers)
    try:
        yield True
        for worker in workers:
            worker.process.wait()
    finally:
        jit.awaited = before
        for worker in workers:
            worker.close()


class _Worker:
    """A process that compiles a share, and what it has said of it."""

    def __init__(self, share: list[Entry]) -> None:
        self._done = {_full_name(entry): threading.Event() for entry in share}
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, *(str(ENTRIES.index(entry)) for entry in share)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            text=True,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                done = self._done.get(line.strip())
                if done is not None:
                    done.set()
        for done in self._done.values():  # it has ended: nobody waits for what it did not bring
            done.set()

    def brings(self, name: str) -> bool:
        """Whether this function was in the share, once that is decided."""
        done = self._done.get(name)
        if done is None:
            return False
        done.wait()
        return True

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self._listening.join()


def _deal(entries: list[Entry], cores: int) -> list[list[Entry]]:
    """Shares of about equal length, the longest dealt first; each in the order in which its functions are needed.

    A module's functions stay together: they call the same inner ones, which every process compiles for itself.

    >>> one, other = map(_length, _deal(list(ENTRIES), 2))
    >>> abs(one - other) < 1
    True
    """
    modules: dict[str, list[Entry]] = {}
    for entry in entries:
        modules.setdefault(entry.module, []).append(entry)
    shares: list[list[Entry]] = [[] for _ in range(max(1, min(cores, len(modules), 3)))]
    for module in sorted(modules.values(), key=lambda module: -_length(module)):
        min(shares, key=_length).extend(module)
    return [sorted(share, key=entries.index) for share in shares if share]


def _length(share: list[Entry]) -> float:
    return sum(entry.seconds for entry in share)


def _full_name(entry: Entry) -> str:
    return f"{__package__}.{entry.module}.{entry.name}"


def _function(entry: Entry) -> Any:
    module: Any
    match entry.module:  # imported one by one: a process needs its own share only
        case "embedding._kernels":
            from .embedding import _kernels as module
        case "followers.path._chain":
            from .followers.path import _chain as module
        case "followers.path._loop":
            from .followers.path import _loop as module
        case "model._geometry_kernels":
            from .model import _geometry_kernels as module
        case "judging._stake_kernels":
            from .judging import _stake_kernels as module
        case "judging._segment_kernels":
            from .judging import _segment_kernels as module
        case "leader.certified._bound_kernels":
            from .leader.certified import _bound_kernels as module
        case "leader.certified._polish_kernels":
            from .leader.certified import _polish_kernels as module
    return getattr(module, entry.name)


def _can_be_kept(entry: Entry) -> bool:
    return isinstance(getattr(_function(entry), "_cache", None), jit.ForgivingCache)


def _is_kept(entry: Entry) -> bool:
    function = _function(entry)
    if function.signatures:  # this process has it
        return True
    return bool(function._cache.keeps(argument_types(entry.types), function.targetctx))


def argument_types(words: str) -> tuple[Any, ...]:
    """numba's types for the words of an :class:`Entry`.

    >>> argument_types("f2! i f*2")
    (Array(float64, 2, 'C', True, aligned=True), int64, UniTuple(float64, 2))
    """
    types: Any = importlib.import_module("numba.core.types")
    letters = {"f": types.float64, "i": types.int64, "c": types.int8, "b": types.boolean}

    def read(word: str) -> Any:
        letter, rest = letters[word[0]], word[1:]
        if not rest:
            return letter
        if rest[0] == "*":
            return types.UniTuple(letter, int(rest[1:]))
        return types.Array(letter, int(rest[0]), "C", readonly=rest[1:] == "!")

    return tuple(read(word) for word in words.split())


# ------------------------------------------------------------------ in a process of its own


def _compile(entries: list[Entry], say: Callable[[str], None]) -> None:
    """Compile these, tell of each, and nothing else: afterwards this process is good for nothing."""
    gc.disable()
    jit.called_from_python = frozenset(_full_name(entry) for entry in entries)
    _compare_options_quickly()
    _finish_what_is_called()
    _remember_calls()
    for entry in entries:
        _function(entry).compile(argument_types(entry.types))
        say(_full_name(entry))


def _compare_options_quickly() -> None:
    """numba's options, compared millions of times, compare by what was set instead of by reading out every one of them.

    The meaning is the same: two are equal if every option has the same value, set or by default.
    """
    from numba.core.targetconfig import TargetConfig

    def chosen(self: Any) -> dict[str, Any]:
        options = type(self).options
        return {name: value for name, value in self._values.items() if value != options[name].default}

    def equal(self: Any, other: Any) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        return self._values == other._values or chosen(self) == chosen(other)

    TargetConfig.__eq__ = equal
    TargetConfig.__hash__ = lambda self: hash(frozenset(chosen(self)))


def _finish_what_is_called() -> None:
    """Inner functions are optimised and turned into machine code within those that call them, no longer by themselves as well.

    numba does both for every function, so that it could be called alone, and then again for the copy in its caller. What is
    kept on disk is the caller's machine code, in which everything was optimised together.
    """
    from numba import _dynfunc
    from numba.core.codegen import JITCodeLibrary
    from numba.core.cpu import CPUContext

    inner: set[Any] = set()
    executable, optimize, emit = (
        CPUContext.get_executable,
        JITCodeLibrary._optimize_final_module,
        JITCodeLibrary._finalize_final_module,
    )

    def get_executable(self: Any, library: Any, function: Any, environment: Any) -> Any:
        if f"{function.modname}.{function.qualname}" in (jit.called_from_python or ()):
            return executable(self, library, function, environment)
        inner.add(library)
        # a key for numba's tables that leads nowhere, as functions without a wrapper have it
        return _dynfunc.make_function(
            function.lookup_module(), function.qualname, "", 0, environment, (library,)
        )

    def optimize_final_module(self: Any) -> None:
        if self not in inner:
            optimize(self)

    def finalize_final_module(self: Any) -> None:
        if self in inner:
            self._finalized = True
        else:
            emit(self)

    CPUContext.get_executable = get_executable
    JITCodeLibrary._optimize_final_module = optimize_final_module
    JITCodeLibrary._finalize_final_module = finalize_final_module


def _remember_calls() -> None:
    """What a call of a builtin function or an operator is typed as, for such arguments, is looked up once.

    numba tries every implementation anew at every ``+`` and ``*``, those for strings, lists and dates included.
    """
    from numba.core.types.functions import BaseFunction

    look_up = BaseFunction.get_call_type
    known: dict[Any, Any] = {}

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        key = (id(self), tuple(args), frozenset(dict(kws).items()))
        if key not in known:
            known[key] = self, look_up(self, context, args, kws)  # kept alive: an id is used again
        return known[key][1]

    BaseFunction.get_call_type = get_call_type  # type: ignore[method-assign]


if __name__ == "__main__":
    _compile([ENTRIES[int(number)] for number in sys.argv[1:]], lambda name: print(name, flush=True))
    os._exit(
        0
    )  # taking a compiler's millions of objects apart would keep everybody waiting for most of a second

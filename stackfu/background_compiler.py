"""A process that compiles functions while the process that needs them runs plain Python.

:func:`request` starts it on first use and hands it functions with their argument types; the machine code goes to numba's cache on
disk. The process compiles everything that was requested, also after the process that asked has ended, and then ends itself:
half a minute at low priority. Of several such processes one compiles at a time, and what another has compiled meanwhile is not
compiled again.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["request"]

_log = logging.getLogger(__name__)

_requested: set[tuple[str, str, Any]] = set()
_process: subprocess.Popen[bytes] | None = None
_failed = False
_lock = threading.Lock()


def request(compiled: Any, types: tuple[Any, ...]) -> Callable[[], bool]:
    """Ask for the machine code of a function for arguments of these types.

    Parameters
    ----------
    compiled : numba dispatcher
        A function of a module that the other process can import.
    types : tuple
        numba's types of the arguments.

    Returns
    -------
    callable
        Returns True as long as the other process works.
    """
    function = compiled.py_func
    key = (function.__module__, function.__qualname__, types)
    with _lock:
        if key not in _requested and "<locals>" not in key[1] and key[0] != "__main__":
            _requested.add(key)
            _send(key)
    return _is_working


def _is_working() -> bool:
    return _process is not None and _process.poll() is None


def _send(key: tuple[str, str, Any]) -> None:
    global _failed
    if _failed:
        return
    try:
        process = _start() if _process is None else _process
        assert process.stdin is not None
        pickle.dump(key, process.stdin)
        process.stdin.flush()
    except (OSError, ValueError) as error:  # no processes here, or it has ended
        _failed = True
        _log.info("nothing is compiled in the background: %s", error)


def _start() -> subprocess.Popen[bytes]:
    global _process
    _process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=os.name == "posix",  # an interrupt on the keyboard is meant for the other process
    )
    atexit.register(_leave, _process)
    return _process


def _leave(process: subprocess.Popen[bytes]) -> None:
    """Let the process finish on its own: it ends when it has compiled the last request."""
    try:
        if process.stdin is not None:
            process.stdin.close()
    except OSError:
        pass
    if process.poll() is None:
        process.returncode = 0  # otherwise its object complains that nobody waited for it


# ------------------------------------------------------------------ in the other process


def _compile_what_comes(source: BinaryIO) -> None:
    """Compile the functions with the names and types read from ``source``, until it ends."""
    requests: queue.Queue[tuple[str, str, Any] | None] = queue.Queue()

    def read() -> None:
        while True:
            try:
                requests.put(pickle.load(source))
            except (EOFError, OSError, pickle.UnpicklingError):
                requests.put(None)
                return

    threading.Thread(target=read, daemon=True).start()
    while (key := requests.get()) is not None:
        module, name, types = key
        try:
            compiled = getattr(importlib.import_module(module), name)
            with _alone(Path(compiled._cache.cache_path)):
                compiled.compile(types)  # reads it from the disk if it is there by now
        except Exception as error:  # the other process will meet it too, and show it
            _log.info("%s.%s was not compiled: %s", module, name, error)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other such process keeps machine code in this folder."""
    try:
        import fcntl
    except ImportError:  # not on this system: the work may be done twice
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stackfu-compiler.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    os.environ["STACKFU_COMPILE"] = "now"
    if hasattr(os, "nice"):
        os.nice(5)
    _compile_what_comes(sys.stdin.buffer)
    os._exit(0)  # taking the compiler's millions of objects apart would take most of a second

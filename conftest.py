"""Shared by all tests of both packages and all examples of the documentation: machine code, clocks, and temporary files.

A search that is limited by time would do more on a fast machine than on a slow one. In the tests the clock that limits searches
(:func:`stackfu.jit.clock`) therefore counts how often it is read: a second is :data:`READINGS` readings, so a search stops after
the same steps on every machine, and a test that needs more of them fails everywhere.

``STACKFU_FAST_CLOCK=5`` gives the tests real clocks instead, all of which run five times as fast, in the processes that tests
start as well: everything that waits or is limited by time has a fifth of it, as on a machine that is five times as slow.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Machine code in all tests, compiled when it is first called; tests/test_plain_python.py compares plain Python with it
os.environ.setdefault("STACKFU_COMPILE", "now")

#: Readings of the clock that count as a second; searches read theirs a few thousand times per second.
READINGS = 1000

FAST = "STACKFU_FAST_CLOCK"

#: Bytes that must be free for files of tests to be kept in memory; the files of a test that passed are removed at once.
ROOM = 2 * 1024**3

#: Run by every Python process that a test starts.
SPEED_UP = """
import os, time

def run_faster(name, factor, unit):
    true = getattr(time, name)
    start = true()
    if unit == int:
        setattr(time, name, lambda: start + int(factor * (true() - start)))
    else:
        setattr(time, name, lambda: start + factor * (true() - start))

if not hasattr(time, "run_faster"):
    time.run_faster = run_faster
    for name in ("time", "monotonic", "perf_counter"):
        run_faster(name, float(os.environ["STACKFU_FAST_CLOCK"]), float)
        run_faster(name + "_ns", float(os.environ["STACKFU_FAST_CLOCK"]), int)
"""


def count_readings() -> None:
    """Let the clock of searches count its readings from now on."""
    import stackfu.jit

    readings = itertools.count()
    stackfu.jit.source = lambda: next(readings) / READINGS


def speed_up_all_clocks() -> None:
    """Let the clocks of this process and of those that it starts run faster."""
    folder = Path(tempfile.mkdtemp(prefix="stackfu-clock-"))
    (folder / "sitecustomize.py").write_text(SPEED_UP)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    exec(compile(SPEED_UP, "sitecustomize.py", "exec"), {})


def keep_files_in_memory() -> None:
    """Let ``tmp_path`` be in memory where there is room: ledgers wait for the disk hundreds of times in every federation."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        executable = not os.statvfs(memory).f_flag & os.ST_NOEXEC
        if executable and shutil.disk_usage(memory).free > ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


if os.environ.get(FAST):
    speed_up_all_clocks()
else:
    count_readings()
keep_files_in_memory()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """Return a function that waits until a condition holds and returns it; the seconds are a ceiling for the slowest machine."""

    def wait(condition: Callable[[], Any], awaited: str, seconds: float = 300.0) -> Any:
        until = time.monotonic() + seconds * float(os.environ.get(FAST, "1"))
        while not (found := condition()):
            assert time.monotonic() < until, f"{awaited} did not come"
            time.sleep(0.05)
        return found

    return wait


@pytest.fixture
def counted_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of searches count its readings whatever clocks the tests have, for tests that limit a search by time."""
    import stackfu.jit

    monkeypatch.setattr(stackfu.jit, "source", stackfu.jit.source)
    count_readings()


@pytest.fixture
def real_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of searches show real seconds, for tests that are about it."""
    import stackfu.jit

    monkeypatch.setattr(stackfu.jit, "source", stackfu.jit.seconds_at_work)

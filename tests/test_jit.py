"""Compiled code is kept on disk where that is possible, and its absence costs nothing but time."""

import ast
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import stackfu
from stackfu.jit import clock, njit

ROOT = Path(stackfu.__file__).parent

#: Imports every compiled function of the library, uses one, and prints where it is kept.
USE = """
import importlib, pathlib, numpy as np, stackfu
root = pathlib.Path(stackfu.__file__).parent
for path in sorted(root.rglob("*_kernels.py")):
    importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))
from stackfu.embedding._kernels import add_column_sums
total = np.zeros(2)
add_column_sums(np.ones((3, 2)), total)
assert total.tolist() == [3.0, 3.0]
print(add_column_sums.stats.cache_path)
"""


@pytest.fixture
def installation(tmp_path):
    """A copy of the package in a folder that is not writable, even by root."""
    copy = tmp_path / "site" / "stackfu"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {path.parent for path in copy.rglob("*.py")}:
        (folder / "__pycache__").write_text("a file where a folder should be")
    return copy.parent


def use(installation, **environment):
    command = [sys.executable, "-c", USE]
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    }
    done = subprocess.run(
        command,
        cwd=installation,
        env={**kept, "PYTHONPATH": str(installation), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nowhere_to_write_costs_only_time(installation, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")
    nowhere = {"XDG_CACHE_HOME": str(blocked), "HOME": str(blocked)}
    assert use(installation, NUMBA_CACHE_DIR=str(blocked / "cache"), **nowhere) == "None"


def test_a_folder_that_can_be_written_is_used(installation, tmp_path):
    folder = tmp_path / "cache"
    assert use(installation, NUMBA_CACHE_DIR=str(folder)).startswith(str(folder))
    assert list(folder.rglob("*.nbc"))


def test_a_folder_that_fails_in_use_ends_the_caching_only(monkeypatch, caplog):
    from numba.core.caching import IndexDataCacheFile

    from stackfu.jit import njit

    def full(self, key, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "save", full)

    @njit()
    def triple(x):
        return 3 * x

    with caplog.at_level("INFO", "stackfu.jit"):
        assert triple(2) == 6
        assert triple(2.5) == 7.5
    assert caplog.text.count("No space left") == 1


def test_every_compiled_function_comes_from_one_place():
    for path in ROOT.rglob("*.py"):
        if path.name == "jit.py" and path.parent == ROOT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba"):
                names = {alias.name for alias in node.names}
                assert not names & {"jit", "njit", "vectorize", "guvectorize"}, (
                    f"{path.name}: use stackfu.jit.njit"
                )


def test_the_clock_stands_still_while_a_function_is_compiled(real_clock):
    @njit(cache=False)
    def thrice(x):
        return 3 * x

    compiling = time.perf_counter() - clock()
    assert thrice(14) == 42
    after = time.perf_counter() - clock()
    assert after > compiling
    assert thrice(14) == 42  # compiled already
    assert time.perf_counter() - clock() == pytest.approx(after, abs=1e-4 * after + 1e-6)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_garbage_collector_waits_for_the_compiler_and_no_longer(wanted):
    from numba.core import event

    seen = []

    class Watch(event.Listener):
        def on_start(self, event):
            seen.append(gc.isenabled())

        def on_end(self, event):
            seen.append(gc.isenabled())

    @njit(cache=False)
    def fourfold(x):
        return 4 * x

    before = gc.isenabled()
    (gc.enable if wanted else gc.disable)()
    try:
        with event.install_listener("numba:compile", Watch()):
            assert fourfold(3) == 12
        assert seen
        assert not any(seen)
        assert gc.isenabled() == wanted
    finally:
        (gc.enable if before else gc.disable)()


def test_threads_that_compile_at_once_leave_the_collector_as_it_was(real_clock):
    functions = []
    for _ in range(4):

        @njit(cache=False)
        def sum_up(n):
            total = 0
            for i in range(n):
                total += i
            return total

        functions.append(sum_up)
    threads = [threading.Thread(target=f, args=(10,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()
    assert all(f(4) == 6 for f in functions)
    before = clock()
    time.sleep(0.01)
    assert clock() > before  # and the clock runs again

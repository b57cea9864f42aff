"""No test depends on how fast the machine is: searches count the readings of their clock, and tests wait for conditions."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf
from stackfu.jit import clock

ROOT = Path(__file__).parents[1]
#: Fixtures by which a test says that it is about clocks.
ABOUT_CLOCKS = {"counted_clock", "real_clock"}
#: Functions of ``time`` that a test has no use for: it waits for conditions with the fixture ``wait_until``.
OF_TIME = {"sleep", "monotonic", "perf_counter", "process_time"}


def depends_on_time(source):
    """Return the lines on which code limits a search by seconds, waits for some, or measures them.

    No seconds (a search stops at once) and infinitely many are no limit that a slow machine reaches sooner.
    """

    def is_limit(value):
        try:
            return 0.0 < float(ast.literal_eval(value)) < np.inf
        except (ValueError, TypeError):
            return False

    def look(node):
        if isinstance(node, ast.FunctionDef) and ABOUT_CLOCKS & {a.arg for a in node.args.args}:
            return
        if isinstance(node, ast.keyword) and node.arg == "time_limit" and is_limit(node.value):
            yield node.value.lineno
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "time_limit" and is_limit(value):
                    yield value.lineno
        if isinstance(node, ast.Attribute) and node.attr in OF_TIME and ast.unparse(node.value) == "time":
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from look(child)

    return sorted(look(ast.parse(source)))


def test_tests_that_depend_on_time_are_found():
    found = depends_on_time(
        """

from time import sleep
options = {"gap": 0.1, "time_limit": 2.0}
def test_it():
    solve(0.1, time_limit=5)
    solve(0.1, time_limit=0.0)
    solve(0.1, time_limit=np.inf)
    time.sleep(1.0)
def test_limits(counted_clock):
    solve(0.1, time_limit=5)
"""
    )
    assert found == [3, 4, 6, 9]


def files_with_tests():
    return sorted(
        [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "integration" / "tests").rglob("test_*.py")]
    )


@pytest.mark.parametrize("path", files_with_tests(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_depends_on_time(path):
    lines = depends_on_time(path.read_text())
    assert not lines, (
        f"{path.relative_to(ROOT)}, lines {lines}: bound searches by max_nodes, wait with the fixture wait_until, "
        "or take the fixture counted_clock"
    )


def test_a_search_that_is_limited_by_time_stops_at_the_same_place_every_time(counted_clock):
    game, budget = random_game(3, 12)
    stopped = [game.solve(budget, gap=1e-12, time_limit=0.2, progress=False) for _ in range(2)]
    assert stopped[0].nodes == stopped[1].nodes
    assert stopped[0].lower_bound == stopped[1].lower_bound
    assert stopped[0].seconds == pytest.approx(stopped[1].seconds, abs=0.02)
    assert all(found.verify() for found in stopped)


def test_the_clock_of_searches_counts_its_readings(counted_clock):
    first = clock()
    assert [round(1000 * (clock() - first)) for _ in range(3)] == [1, 2, 3]


def test_the_clock_of_searches_shows_seconds_at_work_to_users():
    """Outside the tests, where nothing was put in its place."""
    probe = "import time; from stackfu.jit import clock; a = clock(); time.sleep(0.05); print(clock() - a >= 0.05)"
    environment = {name: value for name, value in os.environ.items() if name != "STACKFU_FAST_CLOCK"}
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True"


def test_clocks_that_run_faster_do_so_in_processes_that_tests_start(tmp_path):
    test = tmp_path / "test_faster.py"
    test.write_text(
        """
import subprocess, sys, time

def test_faster():
    assert time.run_faster
    probe = "import time; print(hasattr(time, 'run_faster'))"
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "True"
    for name in ("time", "monotonic", "perf_counter"):
        before = getattr(time, name)()
        time.sleep(0.02)
        assert getattr(time, name)() - before >= 0.09, name
"""
    )
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env={**os.environ, "STACKFU_FAST_CLOCK": "5", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_waiting_ends_with_the_condition_or_says_what_did_not_come(wait_until):
    asked = []
    assert wait_until(lambda: asked.append(1) or len(asked) == 3, "three questions")
    assert len(asked) == 3
    with pytest.raises(AssertionError, match="nothing did not come"):
        wait_until(lambda: False, "nothing", seconds=0.0)


@pytest.mark.parametrize("method", [{}, {"offers": "capped"}, {"offers": "contract"}], ids=str)
def test_a_search_without_time_ends_by_its_boxes(method):
    game, budget = random_game(3, 5)
    asked = {"min_total": 0.3, "gap": 1e-9, "max_nodes": 3, "time_limit": np.inf, "progress": False}
    first, second = (game.solve(budget, **asked, **method) for _ in range(2))
    assert isinstance(first, sf.Solution)
    np.testing.assert_array_equal(first.payments, second.payments)
    assert first.lower_bound == second.lower_bound
    assert first.verify()

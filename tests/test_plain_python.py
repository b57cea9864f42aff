"""Without machine code the library answers at once, and gives the same answers as with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu
from stackfu import background_compiler, jit
from stackfu.embedding import _kernels, _numpy_kernels

ROOT = str(Path(stackfu.__file__).parent.parent)

#: Plays games of several kinds and prints the answers; the second line counts the functions that have machine code.
PLAY = """
import json, sys
import numpy as np, stackfu as sf
from numba.core.dispatcher import Dispatcher
rng = np.random.default_rng(int(sys.argv[1]))
answers = []
for n in (2, 4, 7, 11):
    for kind in range(2):
        if kind:
            samples = [rng.normal(rng.normal(size=3), 1.0, (rng.integers(3, 30), 3)) for _ in range(n + 2)]
            emb = sf.MeanEmbeddings.from_samples(samples, bandwidth="median")
        else:
            emb = sf.MeanEmbeddings.from_features(rng.dirichlet(np.full(6, 0.4), n + 2))
        game = sf.StackelbergGame(
            emb, rng.integers(20, 600, n + 2), removed=[0, 1], cost_scale=float(rng.choice([0.5, 2, 10])),
            sampling_constant=float(rng.choice([0, 1.0])),
        )
        equilibrium = game.equilibrium()
        answers.append([equilibrium.status.name, equilibrium.uniqueness.name, *equilibrium.participation])
        answers.append([len(game.equilibria()), float(emb.bandwidth) if kind else 0.0])
        solution = game.solve(0.05)
        answers.append([solution.status.name, solution.server_loss, solution.verify().passed])
print(json.dumps(answers))
print(sum(
    len(value.signatures) for module in list(sys.modules.values())
    if getattr(module, "__name__", "").startswith("stackfu")
    for value in vars(module).values() if isinstance(value, Dispatcher)
))
"""


def python(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": ROOT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("seed", [1, 2])
def test_answers_do_not_depend_on_which_version_ran(seed):
    plain, compiled = (
        python("-c", PLAY, str(seed), STACKFU_COMPILE=mode).stdout.splitlines() for mode in ("never", "now")
    )
    assert int(plain[1]) == 0
    assert int(compiled[1]) > 0
    for one, other in zip(json.loads(plain[0]), json.loads(compiled[0]), strict=True):
        assert [x for x in one if isinstance(x, str)] == [x for x in other if isinstance(x, str)]
        numbers = [[x for x in answer if not isinstance(x, str)] for answer in (one, other)]
        np.testing.assert_allclose(*numbers, rtol=1e-6, atol=1e-9)


def packed(rows, width, real, runs, expanded):
    """Rows in groups of ``width``, runs of one client each; padding as gram.pack makes it."""
    groups = [-(-len(run) // width) for run in np.array_split(rows, runs)]
    values = np.zeros((sum(groups), rows.shape[1], width), dtype=real)
    halves = np.full((sum(groups), width), -1e30, dtype=real)
    counts = np.full(sum(groups), float(width))
    starts = np.concatenate([[0], np.cumsum(groups)]).astype(np.int64)
    for place, run in zip(starts, np.array_split(rows, runs), strict=False):
        _numpy_kernels.pack_rows(run, np.zeros(rows.shape[1]), 1.0, place * width, expanded, values, halves)
        counts[place + -(-len(run) // width) - 1] -= -len(run) % width
    return values, halves, counts, starts


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_numpy_sums_over_pairs_are_those_of_the_compiled_kernel(seed, direct, single):
    rng = np.random.default_rng(seed)
    real = np.float32 if single and not direct else np.float64
    d, runs = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    left, right = (rng.normal(size=(int(rng.integers(low, 60)), d)).astype(real) for low in (runs, 3))
    values, halves, counts, run_starts = packed(left, _kernels.ROWS, real, runs, not direct)
    other, other_halves, _, _ = packed(right, _kernels.COLUMNS, real, 1, not direct)
    cuts = np.unique(rng.integers(1, len(right), 2))
    starts = np.concatenate([[0], cuts, [len(right)]]).astype(np.int64)
    owners = np.arange(runs)
    found = []
    for kernel in (_kernels.sum_complements, _numpy_kernels.sum_complements):
        out = np.zeros((runs, len(starts) - 1))
        kernel(
            values, halves, counts, run_starts, owners, other, other_halves, d, 0, len(other), 0, starts, 0,
            direct, 0.7 if direct else 1.0, out,
        )  # fmt: skip
        found.append(out)
    exact = np.exp2(
        -(0.49 if direct else 0.5)
        * ((left[:, None].astype(float) - right[None].astype(float)) ** 2).sum(axis=2)
    )
    reference = np.add.reduceat(
        np.array([(1 - exact)[run].sum(axis=0) for run in np.array_split(np.arange(len(left)), runs)]),
        starts[:-1],
        axis=1,
    )
    rough = {"rtol": 1e-5, "atol": 1e-4} if real is np.float32 else {"rtol": 1e-11, "atol": 1e-10}
    np.testing.assert_allclose(found[1], reference, **rough)
    np.testing.assert_allclose(found[0], found[1], **rough)


@given(st.integers(0, 2**32 - 1))
def test_numpy_counts_distances_as_the_compiled_kernel_does(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 5, (int(rng.integers(2, 50)), 2)).astype(float)  # whole numbers: no rounding
    left = packed(rows, _kernels.ROWS, np.float64, 1, False)
    right = packed(rows, _kernels.COLUMNS, np.float64, 1, False)
    found = []
    for kernel in (_kernels.count_distances, _numpy_kernels.count_distances):
        bins, listed = np.zeros(12, dtype=np.int64), np.full(2000, -1.0)
        kept = kernel(
            left[0], left[1], right[0], right[1], 2, len(rows), 0, len(left[0]), 1.5, 0.9, bins, listed, 0
        )
        found.append((kept, bins.tolist(), sorted(listed[:kept].tolist())))
    assert found[0] == found[1]
    assert sum(found[0][1]) == len(rows) * (len(rows) - 1) // 2


def test_plain_functions_return_python_numbers_and_divide_as_compiled():
    @jit.njit(error_model="numpy")
    def halves(x, y):
        return x / y, x < y

    assert jit.plain(halves)(1.0, 0.0) == halves(1.0, 0.0) == (np.inf, False)
    assert all(type(value) in (float, bool) for value in jit.plain(halves)(1.0, 2.0))


def test_a_first_answer_waits_for_no_compiler_and_a_later_one_uses_machine_code(tmp_path, wait_until):
    """The first process runs plain Python; the background process compiles and ends; the next process takes what it left."""
    play = PLAY.replace("(2, 4, 7, 11)", "(3,)")
    cache = {"NUMBA_CACHE_DIR": str(tmp_path), "STACKFU_COMPILE": "background"}
    first = python("-c", play, "5", **cache)
    assert "compiling" not in first.stderr
    wait_until(lambda: list(tmp_path.rglob("*judge*.nbc")), "machine code", 600.0)
    second = python("-c", play, "5", **cache)
    assert int(second.stdout.splitlines()[1]) > 0
    for one, other in zip(
        *(json.loads(done.stdout.splitlines()[0]) for done in (first, second)), strict=True
    ):
        assert [x for x in one if isinstance(x, str)] == [x for x in other if isinstance(x, str)]


def test_without_processes_functions_still_answer(monkeypatch):
    def refused(*words, **options):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(background_compiler, "_process", None)
    monkeypatch.setattr(background_compiler, "_failed", False)
    monkeypatch.setattr(background_compiler, "_requested", set())
    monkeypatch.setattr(background_compiler.subprocess, "Popen", refused)
    working = background_compiler.request(_kernels.pack_rows, ())
    assert not working()


def test_large_arguments_compile_at_once_and_a_long_compilation_is_announced(tmp_path):
    use = """
import numpy as np
from stackfu import jit
jit.SILENT = 0.0
from stackfu.model import _geometry_kernels as k
k.drifts(np.ones((9000, 2)), np.ones(2))
k.drifts(np.ones((9000, 2), dtype=np.float32), np.ones(2))
print(len(k.drifts.signatures))
"""
    done = python("-c", use, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout.strip() == "2"
    assert done.stderr.count("compiling for this machine") == 1

"""One equilibrium of a large game: against the path, and when it goes wrong."""

from __future__ import annotations

import numpy as np
import pytest
from follower_games import game_from, random_batch

import stackfu as sf
from stackfu.followers import sweeps as sweeps_module
from stackfu.followers.newton import newton_polish
from stackfu.followers.qp import bisect_total
from stackfu.model import _geometry_kernels


def federation(seed, count, dimension, cost_scale=20.0, dtype=np.float64, removed=()):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, dimension)).astype(dtype)
    sizes = rng.integers(10, 200, size=count)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(features), sizes, removed=removed, cost_scale=cost_scale
    )
    return game, game.costs * rng.uniform(0, 1, game.count)


def matches_the_path(game, payments, equilibrium):
    return any(
        abs(equilibrium.total - other.total) < 1e-9
        and np.abs(game.alpha @ (equilibrium.participation - other.participation)) < 1e-9
        for other in game.equilibria(payments)
    )


@pytest.mark.parametrize("dimension", [3, 20, 100])
@pytest.mark.parametrize("seed", range(6))
def test_sweeps_and_qp_reach_an_equilibrium_of_the_path(seed, dimension):
    game, payments = federation(seed, 60, dimension, cost_scale=4.0 * 3.0**seed)
    for method in ("sweeps", "qp"):
        found = game.equilibrium(payments, method=method)
        assert found.method == method
        assert found.status is sf.Status.CERTIFIED
        assert found.residual <= 1e-9
        assert matches_the_path(game, payments, found)


def test_large_games_are_swept_and_verified():
    game, payments = federation(1, 3000, 16, cost_scale=60.0)
    found = game.equilibrium(payments)
    assert found.method == "sweeps"
    assert found.status is sf.Status.CERTIFIED
    assert found.residual <= 1e-9
    assert found.verify(1e-9)
    assert found.uniqueness is sf.Uniqueness.UNKNOWN
    assert len(found.history) == found.iterations > 0


def test_a_sample_gives_the_start_in_very_large_games(monkeypatch):
    game, payments = federation(2, 4000, 8, cost_scale=60.0)
    plain = game.equilibrium(payments)
    monkeypatch.setattr(sweeps_module, "LARGE", 1000)
    monkeypatch.setattr(sweeps_module, "SAMPLE", 500)
    sampled = game.equilibrium(payments)
    assert sampled.history[0]["clients"] < game.count
    assert sampled.residual <= 1e-9
    np.testing.assert_allclose(sampled.total, plain.total, rtol=1e-9)


def test_screening_leaves_nobody_out(monkeypatch):
    # every accepted point satisfies the conditions at every client, whatever the sweeps skipped
    for seed in range(5):
        game, payments = federation(seed, 1500, 6, cost_scale=100.0)
        found = game.equilibrium(payments, method="sweeps")
        g = game.inclination(payments, found.participation)
        x = found.participation
        slack = 1e-9 * game.geometry.scale
        assert np.all(g[x == 0] <= slack)
        assert np.all(g[x == 1] >= -slack)
        assert np.all(np.abs(g[(x > 0) & (x < 1)]) <= slack)


def test_float32_features_and_removed_clients():
    game, payments = federation(3, 2000, 12, cost_scale=60.0, dtype=np.float32, removed=(0, 7, 1999))
    found = game.equilibrium(payments)
    assert found.residual <= 1e-9
    assert len(found.participation) == 1997


def test_equal_reluctance_is_unique_or_a_known_continuum():
    game, _ = federation(4, 500, 8, cost_scale=60.0)
    found = game.equilibrium(method="sweeps")  # costs proportional to data, no payments: all w equal
    assert found.uniqueness in (sf.Uniqueness.UNIQUE, sf.Uniqueness.CONTINUUM)
    other = game.equilibrium(method="sweeps", start=np.linspace(0.1, 1.0, 500), seed=9)
    np.testing.assert_allclose(found.total, other.total, rtol=1e-9)


def test_deterministic_for_a_seed():
    game, payments = federation(5, 800, 10, cost_scale=60.0)
    first = game.equilibrium(payments, seed=3)
    second = game.equilibrium(payments, seed=3)
    np.testing.assert_array_equal(first.participation, second.participation)
    assert [r["violation"] for r in first.history] == [r["violation"] for r in second.history]


def test_warm_start_takes_fewer_sweeps():
    game, payments = federation(6, 1200, 10, cost_scale=60.0)
    cold = game.equilibrium(payments)
    warm = game.equilibrium(payments * 1.0001, start=cold.participation)
    assert warm.residual <= 1e-9
    assert warm.iterations <= cold.iterations


def test_the_fall_to_the_origin_is_survived():
    # best responses from full participation drop out one after another in many of these games
    survived = 0
    for seed in range(60):
        rng = np.random.default_rng([1, seed])
        points, alpha, w = (a[0] for a in random_batch(rng, 1, int(rng.integers(2, 6)), 4))
        game = game_from(points, alpha, 30.0 * w)
        found = game.equilibrium(method="sweeps", start=np.ones(game.count))
        assert found.total > 0
        assert found.residual <= 1e-12
        survived += len({r["damping"] for r in found.history}) > 1
    assert survived > 0


def test_the_iteration_limit_is_reported_or_the_path_takes_over():
    game, payments = federation(7, 400, 30, cost_scale=80.0)
    rescued = game.equilibrium(payments, method="sweeps", max_iterations=1)
    assert rescued.method == "path"
    assert rescued.status is sf.Status.CERTIFIED
    large, large_payments = federation(8, 4000, 30, cost_scale=80.0)
    stopped = large.equilibrium(large_payments, max_iterations=1)
    assert stopped.status is sf.Status.MAX_ITERATIONS
    assert stopped.uniqueness is sf.Uniqueness.UNKNOWN
    with pytest.raises(sf.ConvergenceError):
        stopped.raise_for_status()


def test_callback_progress_and_interruption():
    game, payments = federation(9, 3500, 10, cost_scale=80.0)
    seen = []
    found = game.equilibrium(payments, callback=seen.append, progress=True)
    assert tuple(seen) == found.history

    def stop(record):
        raise KeyboardInterrupt

    stopped = game.equilibrium(payments, callback=stop)
    assert stopped.status is sf.Status.INTERRUPTED
    assert len(stopped.history) == 1


def test_newton_solves_for_those_inside():
    for seed in range(20):
        game, payments = federation(seed, 30, [4, 60][seed % 2], cost_scale=30.0)
        exact = game.equilibrium(payments)
        x = exact.participation
        inside = (x > 0) & (x < 1)
        wobble = np.where(inside, np.clip(x * 1.001, 0, 1), x)
        polished = newton_polish(game, game.reluctance(payments), game.alpha * wobble)
        assert polished is not None
        assert game.residual(payments, np.where(polished >= game.alpha, 1.0, polished / game.alpha)) <= 1e-13


def test_bisection_finds_full_participation():
    game, _ = federation(1, 12, 20)
    x, solved = bisect_total(game, np.array(game.costs))
    assert np.all(x == 1)
    assert solved == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_passes_over_features_agree_with_numpy(dtype):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 7)).astype(dtype)
    rows = np.flatnonzero(rng.random(500) < 0.7)
    weights = rng.random(len(rows))
    point = rng.normal(size=7)
    chosen = features[rows].astype(np.float64)
    np.testing.assert_allclose(
        _geometry_kernels.combine(features, rows, weights), weights @ chosen, rtol=1e-12
    )
    np.testing.assert_allclose(
        _geometry_kernels.squared_distances(features, rows, point),
        ((chosen - point) ** 2).sum(axis=1),
        rtol=1e-12,
    )


@pytest.mark.parametrize("form", ["gram", "features"])
def test_a_start_too_small_to_square_is_taken_for_nobody(form):
    points = np.array([[0.0, 0.0], [0.8, 0.0], [0.1, 0.9]])
    make = sf.MeanEmbeddings.from_gram if form == "gram" else sf.MeanEmbeddings.from_features
    game = sf.StackelbergGame(
        make(points @ points.T if form == "gram" else points), [1, 2, 1], cost_scale=0.1
    )
    eq = game.equilibrium(start=[1e-300, 0, 0], method="sweeps")
    assert eq.status is sf.Status.CERTIFIED

"""Verification from the definition, contraction diagnostics, faces, method choice and bad input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from follower_games import game_from, random_batch
from hypothesis import given, settings

import stackfu as sf
from stackfu import catalog, testing
from stackfu.followers.diagnostics import best_response_jacobian, sufficient_bounds
from stackfu.followers.faces import equilibrium_face

# ------------------------------------------------------------------ verification


def test_true_equilibria_pass_and_disturbed_ones_do_not():
    rng = np.random.default_rng(0)
    for _ in range(50):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        game = game_from(points, alpha, w)
        found = game.equilibrium()
        assert found.verify(1e-12)
        k = int(rng.integers(5))
        x = found.participation.copy()
        x[k] = x[k] + 0.05 if x[k] < 0.5 else x[k] - 0.05
        check = replace(found, participation=x).verify(1e-9)
        assert not check
        assert check.message


def test_a_flattering_regret_is_noticed():
    game = game_from(np.eye(3), [1, 1, 1], [2.0, 3.0, 4.0])
    found = game.equilibrium()
    x = found.participation * 0.97
    honest = replace(found, participation=x, regret=game.regret(None, x))
    assert "too small" not in honest.verify(0.5).message
    assert "too small" in replace(honest, regret=0.0).verify(0.5).message


@settings(max_examples=60, deadline=None)
@given(testing.plays())
def test_the_search_never_finds_more_than_the_closed_form(play):
    game, payments, x = play
    regret = game.regret(payments, x)
    record = sf.Equilibrium(
        game,
        payments,
        x,
        sf.Status.FAILED,
        sf.Uniqueness.UNKNOWN,
        "",
        "none",
        regret,
        game.residual(payments, x),
    )
    found = record.verify()
    unit = game.lam * max(game.geometry.scale, 1e-300) + float(np.max(np.abs(payments - game.costs)))
    assert found.regret <= regret * (1 + 1e-6) + 1e-11 * unit
    # a grid refined five times comes close to the best deviation
    assert found.regret >= regret * (1 - 1e-3) - 1e-9 * unit


def test_features_and_gram_are_verified_alike():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(20, 4))
    sizes, costs = rng.integers(1, 9, size=20), rng.uniform(0.1, 1.0, size=20)
    reports = []
    for emb in (
        sf.MeanEmbeddings.from_features(features),
        sf.MeanEmbeddings.from_gram(features @ features.T),
    ):
        game = sf.StackelbergGame(emb, sizes, costs=costs)
        x = np.full(20, 0.5)
        record = sf.Equilibrium(
            game, np.zeros(20), x, sf.Status.FAILED, sf.Uniqueness.UNKNOWN, "", "none", 1.0, 1.0
        )
        reports.append(record.verify().regret)
    assert reports[0] == pytest.approx(reports[1], rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(testing.plays())
def test_judging_in_one_pass_agrees_with_residual_and_regret(play):
    game, payments, x = play
    residual, regret = game.judge(payments, x)
    unit = 1.0 + float(np.max(np.abs(game.reluctance(payments)))) / (game.geometry.scale or 1.0)
    assert residual == pytest.approx(game.residual(payments, x), rel=1e-9, abs=1e-13 * unit)
    again = game.regret(payments, x)
    size = game.lam * game.geometry.scale * unit + float(np.max(np.abs(payments - game.costs)))
    assert regret == pytest.approx(again, rel=1e-6, abs=1e-12 * size)
    assert game.judge(payments, game.profile(x)) == (game.residual(payments, x), again)


# ------------------------------------------------------------------ diagnostics


def test_the_jacobian_is_the_derivative_of_the_best_response():
    rng = np.random.default_rng(1)
    checked = 0
    for _ in range(40):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        game = game_from(points, alpha, w)
        x = rng.uniform(0.05, 0.95, size=5)
        response = game.best_response(None, x)
        analytic = best_response_jacobian(game, np.zeros(5), x)
        settled = (np.abs(response) > 1e-6) & (np.abs(response - 1) > 1e-6) | (analytic == 0).all(axis=1)
        for j in range(5):
            step = 1e-6
            up, down = x.copy(), x.copy()
            up[j] += step
            down[j] -= step
            numeric = (game.best_response(None, up) - game.best_response(None, down)) / (2 * step)
            others = settled & (np.arange(5) != j)
            np.testing.assert_allclose(analytic[others, j], numeric[others], rtol=1e-4, atol=1e-6)
            checked += int(np.sum(np.abs(numeric[others]) > 0))
    assert checked > 50


def test_diagnostics_of_the_simplex_in_closed_form():
    for N, w in ((4, 1.5), (12, 1.1)):
        found = game_from(np.eye(N), np.ones(N), np.full(N, w)).equilibrium()
        slope = (2 / 3) / (1 - 1 / N) - 1
        d = found.diagnostics
        assert d.spectral_radius == pytest.approx(abs(slope) * (N - 1))
        assert d.norm_inf == pytest.approx(abs(slope) * (N - 1))
        assert d.contracts == (abs(slope) * (N - 1) < 1)
        assert d.sequential_radius < 1
        if d.contracts:
            assert d.observed_simultaneous == pytest.approx(d.spectral_radius, rel=0.05)
        assert d.observed_sequential == pytest.approx(d.sequential_radius, abs=0.1)
        assert ("do not settle" in str(d)) == (not d.contracts)


def test_the_papers_condition_and_what_it_implies():
    # where the condition holds nobody takes part fully and S < 0.0284
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        points, _, w = (a[0] for a in random_batch(rng, 1, 3, 4))
        game = game_from(points, np.full(3, 1 / 3), 400.0 * np.maximum(w, 0.2))
        found = game.equilibrium()
        d = found.diagnostics
        np.testing.assert_allclose(d.margins, sufficient_bounds(game, np.zeros(3)) - game.diameter)
        if d.paper_condition:
            held += 1
            assert not np.any(found.participation == 1)
            assert found.total < 0.0284
            assert "total and" in str(d)
    assert held > 20


def test_diagnostics_say_when_the_condition_does_not_apply():
    game = game_from(1e-4 * np.eye(3), [1, 1, 1], [1.0, 1.0, 1.0])
    payments = np.array([2 * game.costs[0], 0.0, 0.0])
    text = str(game.equilibrium(payments).diagnostics)
    assert "does not apply" in text


def test_large_games_are_not_diagnosed():
    rng = np.random.default_rng(0)
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rng.normal(size=(4100, 2))), np.ones(4100))
    with pytest.raises(sf.InputError, match="too large"):
        _ = game.equilibrium().diagnostics


# ------------------------------------------------------------------ faces


def test_face_of_many_identical_clients():
    points = np.vstack([np.zeros((5, 2)), [[1.0, 0.0]], [[0.0, 1.0]]])
    game = game_from(points, np.ones(7), [3.0] * 5 + [8.0, 8.0])
    found = game.equilibrium()
    assert found.face.clients == (0, 1, 2, 3, 4)
    assert found.face.dimension == 4
    together = float(game.alpha[:5] @ found.participation[:5])
    np.testing.assert_allclose(found.face.upper, min(together / game.alpha[0], 1.0), rtol=1e-9)
    np.testing.assert_allclose(found.face.lower, max(together - 4 * game.alpha[0], 0.0), atol=1e-9)
    assert "4-dimensional" in str(found.face)


def test_a_face_cut_by_caps():
    # twins with little data: together they must bring most of it
    game = game_from([[0.0], [0.0], [1.0]], [0.05, 0.05, 0.9], [2.0, 2.0, 18.0])
    found = game.equilibrium()
    assert found.uniqueness is sf.Uniqueness.CONTINUUM
    together = float(game.alpha[:2] @ found.participation[:2])
    expected = [max(together / 0.05 - 1.0, 0.0), min(together / 0.05, 1.0)]
    np.testing.assert_allclose([found.face.lower[0], found.face.upper[0]], expected, atol=1e-9)


def test_no_face_where_embeddings_are_independent():
    game = game_from(np.eye(4), np.ones(4), np.full(4, 5.0))
    assert equilibrium_face(game, np.zeros(4), game.equilibrium().participation) is None


# ------------------------------------------------------------------ choice of method, start, input


def test_a_start_chooses_among_several_equilibria():
    entry = catalog.three_equilibria()
    low, _, high = entry.equilibria
    chosen = entry.game.equilibrium(start=np.clip(low, 0.01, 1.0))
    assert chosen.total == pytest.approx(entry.totals[0])
    assert "start" in chosen.reason
    assert entry.game.equilibrium(start=high).total == pytest.approx(entry.totals[2])


@pytest.mark.parametrize(
    ("options", "argument"), [({"method": "magic"}, "method"), ({"tolerance": 0.0}, "tolerance")]
)
def test_bad_options(options, argument):
    with pytest.raises(sf.InputError, match=argument):
        catalog.two_clients().game.equilibrium(**options)


def test_an_unreachable_tolerance_is_not_called_success():
    points, alpha, w = (a[0] for a in random_batch(np.random.default_rng(4), 1, 40, 50))
    found = game_from(points, alpha, w).equilibrium(tolerance=1e-300)
    assert found.residual == 0.0 or found.status is sf.Status.FAILED


def test_importing_the_followers_does_not_load_numba():
    code = "import sys, stackfu.followers; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

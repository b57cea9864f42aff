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
from stackfu.followers.faces import equilibrium_face
from stackfu.judging.diagnostics import best_response_jacobian, diagnose, sufficient_bounds
from stackfu.judging.equilibrium_check import _largest_gain
from stackfu.results import Face

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
    assert "reported regret" not in honest.verify(0.5).message
    assert "reported regret" in replace(honest, regret=0.0).verify(0.5).message


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
    # where the condition holds no client takes part fully and S < 0.0284
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


def test_a_sole_participant_passes():
    """The others are far too reluctant; the one who is paid more than its cost takes part alone."""
    points = np.array([[0.0], [1.0], [2.0]])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(points @ points.T), [1, 1, 1], costs=[0.1, 1e3, 1e3]
    )
    eq = game.equilibrium(np.array([0.2, 0.0, 0.0]))
    np.testing.assert_array_equal(eq.participation, [1.0, 0.0, 0.0])
    check = eq.verify()
    assert check, check.message
    assert check.regret == 0.0
    features = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1, 1, 1], costs=[0.1, 1e3, 1e3])
    assert features.equilibrium(np.array([0.2, 0.0, 0.0])).verify()


def test_the_client_who_gains_is_named():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.eye(5)), [1, 1, 1, 1, 1], removed=[0], costs=np.full(4, 0.5)
    )
    eq = game.equilibrium()
    for k in range(4):
        x = eq.participation.copy()
        x[k] = 0.0
        moved = replace(eq, participation=x)
        gains = game.regrets(eq.payments, x)
        assert f"client {game.remaining[int(np.argmax(gains))]} gains" in moved.verify().message


def test_a_kink_is_counted_and_shows_its_inner_slope():
    """Two clients; the first reaches its cap exactly where it would stop anyway (all numbers are binary)."""
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(np.diag([0.5, 0.5])), [1, 3], costs=2.0 * np.array([0.25, 0.75]) * 0.5
    )
    eq = game.equilibrium()
    np.testing.assert_allclose(game.alpha * eq.participation, [0.25, 0.25])
    at_cap = replace(eq, participation=np.array([1.0, 1.0 / 3.0]))
    assert diagnose(at_cap).kinks == 1
    cheaper = game.replace(costs=game.costs * np.array([0.5, 1.0]))  # now it would go on: no kink
    settled = diagnose(cheaper.equilibrium())
    assert settled.kinks == 0
    assert not settled.jacobian[0].any()


def test_the_papers_bounds_by_hand():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.eye(2)), [1, 3], costs=[2.0, 5.0], lambda_q=0.5, loss_constant=4.0
    )
    bounds = sufficient_bounds(game, np.array([0.5, 7.0]))
    by_hand = [
        3 * 0.25 * 0.75**2 / 4 * np.sqrt(3 * 1.5 / game.lam),
        3 * 0.75 * 0.25**2 / 4 * np.sqrt(3 * 2.0 / game.lam),
    ]
    np.testing.assert_allclose(bounds, by_hand)


@pytest.mark.parametrize("form", ["gram", "features"])
def test_twins_near_their_caps_have_a_short_face(form):
    """Two clients own the same data; together they bring more than one of them has."""
    points = np.array([[0.0], [0.0], [1.0]])
    make = {
        "gram": lambda: sf.MeanEmbeddings.from_gram(points @ points.T),
        "features": lambda: sf.MeanEmbeddings.from_features(points + 5.0),
    }[form]
    alpha = np.array([0.3, 0.2, 0.5])
    w = np.array([0.3, 0.3, 0.7])
    game = sf.StackelbergGame(make(), alpha, costs=2.0 * alpha * w)
    eq = game.equilibrium()
    assert eq.uniqueness is sf.Uniqueness.CONTINUUM
    together = float(alpha[:2] @ eq.participation[:2])
    assert 0.3 < together < 0.5
    assert eq.face is not None
    assert eq.face.clients == (0, 1)
    assert eq.face.dimension == 1
    np.testing.assert_allclose(eq.face.lower, [(together - 0.2) / 0.3, (together - 0.3) / 0.2], atol=1e-7)
    np.testing.assert_allclose(eq.face.upper, [1.0, 1.0], atol=1e-7)


def test_equilibria_between_two_totals_span_both_and_their_faces(monkeypatch):
    from stackfu.followers import faces

    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(4)), [1, 1, 1, 1], costs=np.ones(4))
    first, second = np.array([0.5, 0.5, 0.2, 0.4]), np.array([0.5, 0.8, 0.6, 0.4])
    at_first = Face((1, 3), np.array([0.4, 0.3]), np.array([0.9, 0.45]), 2)

    def known(game, payments, x, caps=None):
        return at_first if np.array_equal(x, first) else None

    monkeypatch.setattr(faces, "equilibrium_face", known)
    span = faces.span_of(game, np.zeros(4), first, second)
    assert span.clients == (1, 2, 3)
    np.testing.assert_allclose(span.lower, [0.4, 0.2, 0.3])
    np.testing.assert_allclose(span.upper, [0.9, 0.6, 0.45])
    assert span.dimension == 3


def test_a_false_claim_of_uniqueness_is_noticed():
    entry = catalog.three_equilibria()
    eq = entry.game.equilibrium()
    assert eq.verify()
    boast = replace(eq, uniqueness=sf.Uniqueness.UNIQUE)
    assert "only one" in boast.verify().message


def test_a_flattering_residual_is_noticed():
    game = game_from(np.eye(3), [1, 2, 3], [2.0, 3.0, 4.0])
    eq = game.equilibrium()
    rough = replace(eq, participation=eq.participation * (1 + 1e-5), residual=0.0)
    assert "reported residual" in rough.verify(1e-7).message


@pytest.mark.parametrize("scale", [0.05, 20.0])
def test_tolerance_of_a_check_is_in_units_of_each_clients_stakes(scale):
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(scale * np.eye(3)), [1, 2, 3], costs=scale * np.ones(3), lambda_q=0.3
    )
    eq = game.equilibrium()
    x = eq.participation * (1 + 1e-3)
    rough = replace(eq, participation=x, regret=1.0, residual=1.0)
    drift = game.lam * game.profile(x).to_clients
    relative = (game.regrets(eq.payments, x) / np.maximum(np.maximum(game.costs, eq.payments), drift)).max()
    assert "gains" in rough.verify(0.9 * relative).message
    assert "gains" not in rough.verify(1.1 * relative).message


def test_the_search_finds_the_whole_gain():
    """Four refinements of the grid come as close as the closed form's own rounding."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        game = game_from(points, alpha, w)
        x = rng.uniform(size=5)
        gain, relative, client = _largest_gain(game, np.zeros(5), x, np.ones(5))
        regrets = game.regrets(np.zeros(5), x)
        shares = regrets / np.maximum(game.costs, game.lam * game.profile(x).to_clients)
        assert gain == pytest.approx(regrets.max(), rel=1e-9, abs=1e-14)
        assert relative == pytest.approx(shares.max(), rel=1e-9, abs=1e-14)
        assert shares[client] == pytest.approx(shares.max(), rel=1e-9)


def test_a_sole_participant_who_is_underpaid_gains_by_taking_part_less():
    points = np.array([[0.0], [1.0], [2.0]])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(points @ points.T), [1, 1, 1], costs=[0.1, 1e3, 1e3]
    )
    eq = game.equilibrium(np.array([0.2, 0.0, 0.0]))
    alone = replace(eq, payments=np.zeros(3), regret=1.0, residual=1.0)
    check = alone.verify()
    assert "client 0 gains" in check.message
    assert check.regret == pytest.approx(0.1, rel=1e-3)


def test_alike_clients_are_judged_by_their_costs():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(np.ones((2, 2))), [1, 1], costs=[1e-3, 1e3])
    eq = game.equilibrium(np.array([2e-3, 0.0]))
    idle = replace(eq, participation=np.array([0.5, 0.0]), regret=1.0, residual=1.0)  # gives up 0.5e-3
    assert "gains" in idle.verify(0.24).message
    assert "gains" not in idle.verify(0.26).message


def test_row_sums_of_a_lopsided_game():
    rng = np.random.default_rng(0)
    for _ in range(10):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        d = game_from(points, alpha, w).equilibrium().diagnostics
        assert d.norm_inf == pytest.approx(np.linalg.norm(d.jacobian, np.inf))
        assert d.norm_2 == pytest.approx(np.linalg.norm(d.jacobian, 2), abs=1e-12)
        assert d.spectral_radius <= min(d.norm_inf, d.norm_2) * (1 + 1e-9)


@pytest.mark.parametrize("size", [1e-3, 1e3])
@pytest.mark.parametrize("form", ["gram", "features"])
def test_faces_do_not_depend_on_the_unit_of_length(size, form):
    def made(points, w):
        points = size * np.asarray(points, dtype=float)
        alpha = np.full(len(points), 1.0 / len(points))
        emb = (
            sf.MeanEmbeddings.from_gram(points @ points.T)
            if form == "gram"
            else sf.MeanEmbeddings.from_features(points)
        )
        return sf.StackelbergGame(emb, alpha, costs=2.0 * alpha * size**2 * np.asarray(w))

    triangle = made([[0.0, 0.0], [1.0, 0.0], [0.4, 0.9]], [0.9, 1.0, 1.1])
    found = triangle.equilibrium()
    assert equilibrium_face(triangle, np.zeros(3), found.participation) is None
    twins = made([[0.0], [0.0], [1.0]], [2.0, 2.0, 8.0])
    face = equilibrium_face(twins, np.zeros(3), twins.equilibrium().participation)
    assert face is not None
    assert face.clients == (0, 1)


def test_clients_inside_may_trade_also_at_a_rough_equilibrium():
    """A large game is solved to 1e-9; its g_k are then not zero to the last digit, and its face is still there."""
    twins = game_from([[0.0], [0.0], [1.0]], [1.0, 1.0, 1.0], [2.0, 2.0, 8.0])
    x = twins.equilibrium().participation * (1 + 1e-8)
    x[:2] = x[:2].mean()  # both inside
    face = equilibrium_face(twins, np.zeros(3), x)
    assert face is not None
    assert face.clients == (0, 1)


def test_qp_counts_its_programmes():
    game = game_from(np.eye(3), [1, 2, 3], [2.0, 3.0, 4.0])
    assert 1 <= game.equilibrium(method="qp").iterations <= 60

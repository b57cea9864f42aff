"""The pieces of the sweeps' core, each against the game's own best responses and definitions."""

import numpy as np
import pytest

import stackfu as sf
from stackfu.followers import _sweep_kernels as kernels
from stackfu.followers.newton import newton_polish


def random_game(seed, count=5, dimension=7):
    """``dimension < count`` gives a game in features, otherwise one in inner products."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, dimension))
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        rng.uniform(1, 9, count),
        costs=rng.uniform(0.1, 3.0, count),
        lambda_q=0.7,
    )
    return game, game.costs * rng.uniform(0, 1.2, count), rng


@pytest.mark.parametrize(
    ("q", "w", "rest", "cap", "present", "answer"),
    [
        (8.0, 1.0, 0.5, 3.0, 0.1, 1.5),  # cube root of 8, less what the others bring
        (8.0, 1.0, 0.5, 1.0, 0.1, 1.0),  # capped
        (8.0, 1.0, 2.5, 3.0, 0.1, 0.0),  # the others bring enough
        (8.0, 1.0, 0.0, 3.0, 0.1, 0.0),  # facing nobody
        (8.0, -1.0, 0.5, 3.0, 0.1, 3.0),  # paid more than it costs
        (0.0, -1.0, 0.0, 3.0, 0.1, 3.0),
        (8.0, 0.0, 0.5, 3.0, 0.1, 3.0),  # free, and drift to avoid
        (0.0, 0.0, 0.5, 3.0, 0.1, 0.1),  # indifferent
        (8.0, 0.0, 0.0, 3.0, 0.1, 0.1),
    ],
)
def test_a_response_by_hand(q, w, rest, cap, present, answer):
    assert kernels.respond(q, w, rest, cap, present) == pytest.approx(answer)


@pytest.mark.parametrize(
    ("g", "y", "cap", "expected"),
    [(0.3, 0.0, 1.0, 0.3), (-0.3, 0.0, 1.0, 0.0), (0.3, 1.0, 1.0, 0.0), (-0.3, 1.0, 1.0, 0.3),
     (0.3, 0.5, 1.0, 0.3), (-0.3, 0.5, 1.0, 0.3)],
)  # fmt: skip
def test_a_violation_by_hand(g, y, cap, expected):
    assert kernels.violation(g, y, cap) == expected


def swept_slowly(game, payments, x, order, damping):
    """A sweep from the game's own best responses, and what it reports."""
    x = x.copy()
    worst = moved = 0.0
    for k in order:
        if x.any():
            g = game.inclination(payments, x)[k]
            worst = max(worst, max(g, 0.0) if x[k] == 0 else max(-g, 0.0) if x[k] == 1 else abs(g))
        new = x[k] + damping * (game.best_response(payments, x)[k] - x[k])
        moved = max(moved, abs(new - x[k]))
        x[k] = new
    return x, np.count_nonzero(x), worst, moved


@pytest.mark.parametrize("damping", [1.0, 0.6])
@pytest.mark.parametrize("seed", range(12))
def test_a_sweep_lets_one_client_after_another_answer(seed, damping):
    for dimension in (7, 3):
        game, payments, rng = random_game(seed, dimension=dimension)
        x = rng.uniform(size=5) * (rng.random(5) < 0.7)
        x[rng.integers(5)] = 1.0
        order = rng.permutation(5)
        expected = swept_slowly(game, payments, x, order, damping)
        alpha, w = game.alpha, game.reluctance(payments)
        y = alpha * x
        told = kernels.sweep_gram(game.geometry.gram, alpha, w, y, np.empty(5), order, damping)
        np.testing.assert_allclose(y / alpha, expected[0], atol=1e-12)
        assert told == pytest.approx(expected[1:], rel=1e-9, abs=1e-12)
        features = np.ascontiguousarray(game.embeddings.features)
        y, point = alpha * x, (alpha * x) @ features
        told = kernels.sweep_features(features, np.arange(5), alpha, w, y, point, order, damping)
        np.testing.assert_allclose(y / alpha, expected[0], atol=1e-9)
        assert told == pytest.approx(expected[1:], rel=1e-7, abs=1e-10)
        np.testing.assert_allclose(point, y @ features, atol=1e-12)


def test_the_last_participant_faces_nobody():
    """Clients who drop out one after another leave the last one without company; rounding must not hide it."""
    game, _, _ = random_game(0, 3)
    alpha, w = game.alpha, np.full(3, 1e9)
    y = alpha * np.array([0.3, 0.7, 0.2])
    active, _, _ = kernels.sweep_gram(game.geometry.gram, alpha, w, y, np.empty(3), np.arange(3), 1.0)
    features = np.ascontiguousarray(game.embeddings.features)
    z = alpha * np.array([0.3, 0.7, 0.2])
    again, _, _ = kernels.sweep_features(features, np.arange(3), alpha, w, z, z @ features, np.arange(3), 1.0)
    assert active == again == np.count_nonzero(y)
    np.testing.assert_allclose(y, z, atol=1e-12)
    assert np.count_nonzero(y) <= 1  # each in turn finds enough, or nobody


@pytest.mark.parametrize("seed", range(20))
def test_only_clients_that_cannot_change_are_screened(seed):
    """Clients left out keep their answers for every mean and total nearby; all others have a reason to stay."""
    rng = np.random.default_rng(seed)
    count = 30
    squares, w = rng.uniform(0, 2, count), rng.uniform(-0.2, 3, count)
    alpha = rng.dirichlet(np.ones(count))
    y = alpha * rng.choice([0.0, 0.5, 1.0], count)
    total, drift, shift = 0.6, 0.05, 0.03
    among = np.sort(rng.choice(count, 20, replace=False))
    out = np.empty(count, dtype=np.int64)
    found, worst = kernels.undecided(squares[among], total, w, y, alpha, among, drift, shift, out)
    g = squares - total * w
    reach = drift * (2 * np.sqrt(squares) + drift) + shift * np.abs(w)
    kept = [
        k
        for k in among
        if 0 < y[k] < alpha[k] or abs(g[k]) <= reach[k] or (g[k] > 0 if y[k] == 0 else g[k] < 0)
    ]
    assert out[:found].tolist() == kept
    violations = [
        max(g[k], 0) if y[k] == 0 else max(-g[k], 0) if y[k] == alpha[k] else abs(g[k]) for k in among
    ]
    assert worst == pytest.approx(max(violations))
    for k in set(among) - set(kept):
        for way in (-1.0, 1.0):  # as far as the mean and the total may move against the client
            d = max(np.sqrt(squares[k]) + way * drift, 0.0)
            assert np.sign(d**2 - (total - way * shift * np.sign(w[k])) * w[k]) == np.sign(g[k])


@pytest.mark.parametrize("dimension", [7, 3])
@pytest.mark.parametrize("seed", range(8))
def test_newton_converges_quadratically(seed, dimension):
    """Three steps take an error of 1e-3 to rounding, which no wrong derivative does."""
    game, payments, rng = random_game(seed, dimension=dimension)
    payments = 0.7 * np.minimum(payments, game.costs)
    eq = game.equilibrium(payments)
    w, alpha = game.reluctance(payments), game.alpha
    inside = (eq.participation > 0) & (eq.participation < 1)
    y = alpha * eq.participation
    start = y * np.where(inside, 1 + 1e-3 * rng.uniform(-1, 1, 5), 1.0)
    for point in (None, start @ game.embeddings.features if dimension == 3 else None):
        found = newton_polish(game, w, start, point, steps=4)
        assert found is not None
        np.testing.assert_allclose(found, y, rtol=1e-8, atol=1e-12)
    once = newton_polish(game, w, start, steps=2)
    if inside.any():
        assert np.abs(once - y).max() <= 2e-2 * np.abs(start - y).max()

"""Best-response dynamics: what they converge to, and that they can cycle and fall."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from follower_games import game_from, random_batch

import stackfu as sf


def play(game, rounds, **options):
    return list(islice(game.dynamics(**options), rounds))


def test_sequential_rounds_let_one_client_after_another_answer():
    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        game = game_from(points, alpha, w)
        start = np.linspace(0.2, 0.9, 5)
        _, after, second = play(game, 3, start=start)
        x = start.copy()
        for answer in (after, second):
            for k in range(5):
                x[k] = game.best_response(None, x)[k]
            np.testing.assert_allclose(answer, x, atol=1e-12)
            inside += int(((x > 0) & (x < 1)).sum())
    assert inside > 10


def test_sequential_rounds_agree_between_gram_and_features():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(9, 3))
    sizes, costs = rng.integers(1, 9, size=9), rng.uniform(0.1, 1.0, size=9)
    by_features = sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), sizes, costs=costs)
    by_gram = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(features @ features.T), sizes, costs=costs)
    for a, b in zip(play(by_features, 6), play(by_gram, 6), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_damped_rounds_move_part_of_the_way():
    game = game_from(np.eye(3), [1, 2, 3], [2.0, 3.0, 4.0])
    start = np.full(3, 0.5)
    _, after = play(game, 2, start=start, kind="damped", damping=0.25)
    np.testing.assert_allclose(after, 0.75 * start + 0.25 * game.best_response(None, start))


def test_convergence_is_to_an_equilibrium():
    reached = 0
    for seed in range(40):
        rng = np.random.default_rng([2, seed])
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 4, 5))
        game = game_from(points, alpha, w)
        *_, before, last = play(game, 400)
        if np.any(last > 0) and np.abs(before - last).max() < 1e-14:
            assert game.residual(None, last) < 1e-8
            reached += 1
    assert reached > 10


def test_simultaneous_responses_can_cycle_where_sequential_ones_converge():
    # twelve equal clients overshoot together for ever (spectral radius 3), yet settle when they take turns
    game = game_from(np.eye(12), np.ones(12), np.full(12, 1.1))
    assert game.equilibrium().diagnostics.spectral_radius == pytest.approx(3.0)
    start = np.linspace(0.8, 0.85, 12)
    rounds = play(game, 300, start=start, kind="simultaneous")
    assert np.any(rounds[-1] > 0)
    assert np.abs(rounds[-1] - rounds[-2]).max() > 1e-3
    np.testing.assert_allclose(rounds[-1], rounds[-3], atol=1e-9)
    one_by_one = play(game, 300, start=start)
    assert game.residual(None, one_by_one[-1]) < 1e-9


def test_the_fall_to_the_origin():
    game = game_from(np.eye(2), [1, 1], [80.0, 80.0])
    *_, last = game.dynamics()  # ends by itself
    np.testing.assert_array_equal(last, [0.0, 0.0])
    assert game.equilibrium().total > 0


@pytest.mark.parametrize(
    "options", [{"kind": "random"}, {"kind": "damped", "damping": 0.0}, {"start": [0.0, 0.0]}]
)
def test_bad_input(options):
    game = game_from(np.eye(2), [1, 1], [1.0, 1.0])
    with pytest.raises(sf.InputError):
        game.dynamics(**options)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.model.offers import capped_offers
from stackfu_integration.flower import Offer
from stackfu_integration.flower.board import Board, _game
from stackfu_integration.flower.terms import Terms


@given(seed=st.integers(0, 10**6), n=st.integers(2, 7), scale=st.floats(0.01, 50.0), paid=st.floats(0.0, 1.5))
def test_a_client_that_knows_only_sums_answers_as_one_that_knows_all(seed, n, scale, paid):
    """The reply from D + 1 public numbers is the game's best response, which knows every embedding."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n + 1, 12))
    rows /= np.linalg.norm(rows, axis=1)[:, None] * rng.uniform(1.0, 2.0, (n + 1, 1))
    sizes = rng.integers(5, 100, n + 1).astype(float)
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), sizes, removed=[0], cost_scale=scale)
    x = rng.uniform(0.0, 1.0, n) * (rng.random(n) < 0.8)
    if not (game.alpha * x).any():
        x[0] = 0.5
    prices = paid * game.costs * rng.random(n)
    board = Board(list(range(1, n + 1)), rows[1:], np.zeros(n), sizes[1:], game, 0.0)
    replies = [offer.best_response() for offer in board.offers(prices, x).values()]
    assert replies == pytest.approx(game.best_response(prices, x), abs=1e-6)


@given(seed=st.integers(0, 10**6))
def test_no_other_share_is_better(seed):
    """Against the utility itself, on a grid of shares."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(4, 6)) / 4
    alpha, lam = rng.dirichlet(np.ones(4)), 2.0
    y = alpha * rng.uniform(0.1, 1.0, 4)
    k, cost, price = 1, float(rng.uniform(0.01, 1.0)), float(rng.uniform(0.0, 1.0))
    offer = Offer(price, cost, alpha[k], lam, y[k] / alpha[k], y.sum(), y @ rows, rows[k])

    def utility(share):
        brought = y.copy()
        brought[k] = alpha[k] * share
        drift = brought @ rows / brought.sum() - rows[k]
        return (price - cost) * share - lam * drift @ drift

    best = utility(offer.best_response())
    assert best >= max(utility(share) for share in np.linspace(0.0, 1.0, 101)) - 1e-9


def test_facing_nobody_and_indifference():
    here = np.array([1.0, 0.0])
    alone = Offer(0.0, 1.0, 0.5, 1.0, share=0.4, total=0.2, aggregate=0.2 * here, own=here)
    assert alone.best_response() == 0.0
    indifferent = Offer(1.0, 1.0, 0.5, 1.0, share=0.4, total=0.5, aggregate=0.5 * here, own=here)
    assert indifferent.best_response() == 0.4
    paid = Offer(2.0, 1.0, 0.5, 1.0, share=0.4, total=0.5, aggregate=0.5 * here, own=here)
    assert paid.best_response() == 1.0


@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), sigma=st.floats(0.01, 0.3))
def test_what_was_certified_is_what_the_clients_answer_under_noise_too(seed, n, sigma):
    """The game is solved on the nearest matrix that vectors can have; the clients' answers are those of that game."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, 12))
    true /= np.linalg.norm(true, axis=1)[:, None] * rng.uniform(1.0, 2.0, (n, 1))
    deviations = np.full(n, sigma) * rng.uniform(0.5, 1.0, n)
    rows = true + deviations[:, None] * rng.normal(size=true.shape)
    sizes = rng.integers(5, 100, n).astype(float)
    gone, size = rng.normal(size=12) / 4, 30.0
    costs = {k: float(cost) for k, cost in enumerate(rng.uniform(0.1, 5.0, n))}
    game, clipped = _game(Terms(), costs, list(range(n)), rows, deviations, sizes, size * gone, size, 0.0)
    board = Board(list(range(n)), rows, deviations, sizes, game, clipped)
    plan = rng.uniform(0.05, 1.0, n)
    offer = capped_offers(game, game.profile(plan))
    replies = [told.best_response() for told in board.offers(offer.prices, plan, plan).values()]
    assert replies == pytest.approx(plan, abs=1e-6)
    x, prices = rng.uniform(0.0, 1.0, n), rng.uniform(0.0, 1.0, n) * game.costs
    replies = [told.best_response() for told in board.offers(prices, x).values()]
    assert replies == pytest.approx(game.best_response(prices, x), abs=1e-5)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu_integration.flower import Offer
from stackfu_integration.flower.board import Board


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


def test_the_noise_is_taken_out_of_the_reply():
    """Averaged over noise, the squared gap that a client computes is the true one."""
    rng = np.random.default_rng(0)
    rows, sigma = rng.normal(size=(5, 30)) / 8, np.array([0.05, 0.02, 0.1, 0.0, 0.07])
    y = np.array([0.1, 0.2, 0.35, 0.15, 0.1])
    k, alpha, features = 2, 0.4, 30
    found = []
    for _ in range(4000):
        seen = rows + sigma[:, None] * rng.normal(size=rows.shape)
        offer = Offer(
            price=0.0,
            cost=1.0,
            alpha=alpha,
            lam=1.0,
            share=y[k] / alpha,
            total=y.sum(),
            aggregate=y @ seen,
            own=seen[k],
            noise=features * float(y**2 @ sigma**2),
            own_noise=features * sigma[k] ** 2,
        )
        found.append(offer.squared_gap)
    true = y @ rows - y.sum() * rows[k]
    assert np.mean(found) == pytest.approx(true @ true, rel=0.05)

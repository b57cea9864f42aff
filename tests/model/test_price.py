"""The price of a profile: it induces the profile, and nothing cheaper does."""

import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf


@pytest.mark.parametrize("seed", range(40))
def test_payments_make_the_profile_an_equilibrium(seed):
    game, _ = random_game(seed, 4)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        x = np.where(rng.uniform(size=4) < 0.3, rng.integers(0, 2, 4), rng.uniform(size=4))
        if not x.any():
            continue
        try:
            p = game.payments_for(x)
        except sf.NotInducibleError as error:
            g = game.inclination(None, x)
            stuck = {int(k) for k in game.remaining[(x < 1) & (g > 0)]}
            assert set(error.clients) <= stuck
            assert error.clients
            continue
        assert game.residual(p, x) <= 1e-9
        for k in np.flatnonzero((p > 1e-9) & (x > 0)):
            cheaper = p.copy()
            cheaper[k] *= 1 - 1e-6
            assert game.regret(cheaper, x) > 0


def test_total_without_volunteers_is_cost_minus_variance():
    game, _ = random_game(0, 5, loss_constant=0.01)
    x = np.full(5, 0.8)
    spend = float(game.payments_for(x) @ x)
    assert spend == pytest.approx(game.costs @ x - 2 * game.lam * game.profile(x).variance, rel=1e-12)


def test_error_names_the_clients_who_cannot_be_kept_out():
    points = np.array([[0.0], [0.0], [0.1], [10.0]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1, 1, 1, 1], (0,), cost_scale=1.0)
    with pytest.raises(sf.NotInducibleError, match="client 3 would take") as caught:
        game.payments_for([1.0, 1.0, 0.0])
    assert caught.value.clients == (3,)


def test_error_explains_itself_by_the_client_that_gains_most_for_its_cost():
    points = np.array([[0.0], [3.0], [10.0]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1, 1, 1], costs=[1.0, 1.0, 20.0])
    # brackets -17 and -180: 17 times and 9 times the cost
    with pytest.raises(sf.NotInducibleError, match="client 1 at 0 gains 17 per unit") as caught:
        game.payments_for([1.0, 0.0, 0.0])
    assert caught.value.clients == (1, 2)


def test_price_is_the_enclosing_ball_gap_for_equal_costs():
    """At the smallest admissible S, without caps: 2 lam (max_k d_k^2 - Var(z)), zero at the unpaid equilibrium."""
    points = np.random.default_rng(3).normal(size=(6, 2))
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1] * 6, cost_scale=1000.0)
    z = np.random.default_rng(4).dirichlet(np.ones(6))
    d2 = game.profile(z).to_clients  # equal sizes: any multiple of z is the same mixture
    total = 2 * game.lam * d2.max() / game.kappa[0]
    x = total * z / game.alpha
    assert x.max() < 1
    spend = float(game.payments_for(x) @ x)
    assert spend == pytest.approx(2 * game.lam * (d2.max() - z @ d2), rel=1e-9)
    unpaid = game.equilibrium()
    assert float(game.payments_for(unpaid.participation) @ unpaid.participation) == pytest.approx(0, abs=1e-9)

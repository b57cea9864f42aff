"""Simple payment rules: each does what its name says, keeps its budget, and is truthful where it claims to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu.demo import digits_game
from stackfu.errors import InfeasibleError
from stackfu.model.offers import capped_offers
from stackfu_integration.lab.mechanisms import mechanism
from stackfu_integration.lab.rivals import RULES
from stackfu_integration.lab.rivals.plans import auction

POSTED = ("same-share", "random-clients", "cheapest-first", "reverse-auction", "reward-pool")


@pytest.fixture(scope="module")
def game():
    return digits_game(sampling_constant=30.0)


def unequal(seed, clients=6):
    """A game with clients that differ in data, size and cost per sample."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 200, clients + 2)
    points = sf.MeanEmbeddings.from_features(rng.normal(size=(clients + 2, 4)))
    costs = sizes[2:] * rng.lognormal(sigma=1.0, size=clients) / sizes.sum()
    return sf.StackelbergGame(points, sizes, removed=[0, 1], costs=costs, sampling_constant=5.0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_budgets_are_kept_and_clients_answer_with_an_equilibrium(rule, seed):
    game = unequal(seed)
    budget = 0.6 * float(game.costs.sum())
    assert mechanism(rule).method == rule
    found = game.solve(budget, rule)
    assert found.spend <= budget * (1 + 1e-9)
    assert game.regret(found.payments, found.participation, caps=found.caps) < 1e-6
    if rule in POSTED:
        np.testing.assert_array_equal(found.participation, found.caps)
        assert found.offers.most <= budget * (1 + 1e-9)


def test_nobody_is_paid_by_unpaid(game):
    found = game.solve(0.1, "unpaid")
    assert found.spend == 0.0
    np.testing.assert_allclose(found.participation, game.equilibrium().participation, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_share_is_the_largest_that_the_budget_affords(seed):
    game = unequal(seed)
    budget = 0.4 * float(game.costs.sum())
    (share,) = set(game.solve(budget, "same-share").participation.tolist())
    prices = [
        (t, capped_offers(game, game.profile(np.full(game.count, t))).most)
        for t in np.linspace(0.001, 1, 2000)
    ]
    best = max(t for t, price in prices if price <= budget)
    assert best - 1e-3 <= share <= best + 1e-3


def test_cheapest_first_takes_clients_in_the_order_of_cost_per_sample():
    game = unequal(7)
    x = game.solve(0.3 * float(game.costs.sum()), "cheapest-first").participation
    ordered = x[np.argsort(game.costs / game.sizes)]
    assert (np.diff(ordered) <= 0).all()
    assert sum(0 < value < 1 for value in ordered) <= 1


def test_random_clients_follow_the_seed_and_the_federation():
    game = unequal(1)
    budget = 0.3 * float(game.costs.sum())
    first = game.solve(budget, "random-clients").participation
    np.testing.assert_array_equal(first, game.solve(budget, "random-clients").participation)
    others = [game.solve(budget, "random-clients", seed=seed).participation for seed in range(1, 6)]
    assert any((other != first).any() for other in others)


def test_a_sample_has_one_price_whoever_holds_it(game):
    found = game.solve(0.1, "price-per-sample")
    rates = found.payments / game.sizes
    assert np.ptp(rates) < 1e-12 * rates.max()


@given(
    bids=st.lists(st.floats(0.05, 20.0), min_size=2, max_size=7),
    amounts=st.lists(st.integers(1, 50), min_size=7, max_size=7),
    budget=st.floats(0.1, 60.0),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_no_bid_beats_the_true_cost_in_the_auction(bids, amounts, budget, data):
    costs, sizes = np.array(bids), np.array(amounts[: len(bids)], dtype=float)
    rates = costs / sizes
    assume(len(np.unique(rates)) == len(rates))  # ties are broken by position: a lie could change the order
    k = data.draw(st.integers(0, len(bids) - 1))
    lie = data.draw(st.floats(0.01, 40.0))
    assume(lie / sizes[k] not in np.delete(rates, k))
    won, paid = auction(costs, sizes, budget)
    assert paid.sum() <= budget * (1 + 1e-12)
    assert (paid[won] >= costs[won] * (1 - 1e-12)).all()
    other = costs.copy()
    other[k] = lie
    lied, received = auction(other, sizes, budget)
    honest = (paid[k] - costs[k]) if won[k] else 0.0
    dishonest = (received[k] - costs[k]) if lied[k] else 0.0
    assert dishonest <= honest + 1e-9 * (1 + abs(honest))


def test_an_auction_that_buys_nothing_says_so():
    game = unequal(0)
    with pytest.raises(InfeasibleError, match="reverse-auction"):
        game.solve(1e-6, "reverse-auction")


@pytest.mark.parametrize("part", [0.2, 0.7, 3.0])
def test_the_reward_pool_rests_where_nobody_gains_by_changing(part):
    """Replicator dynamics: a client's part of the pool is above its cost where it brings all, and below where nothing."""
    game = unequal(5)
    budget = part * float(game.costs.sum())
    found = game.solve(budget, "reward-pool")
    x = found.participation
    assert found.spend == pytest.approx(budget)
    price = budget / float(game.sizes @ x)
    gains = price * game.sizes - game.costs
    assert (gains[x == 1.0] >= -1e-9).all()
    assert (gains[x == 0.0] <= 1e-9).all()
    np.testing.assert_allclose(gains[(x > 0) & (x < 1)], 0.0, atol=1e-9)


def test_the_reward_pool_is_where_the_published_dynamics_end():
    """Euler steps of dx_k/dt = x_k (1 - x_k) (B n_k / sum n x - c_k), from half of everything."""
    game = unequal(5)
    budget = 0.5 * float(game.costs.sum())
    x = np.full(game.count, 0.5)
    for _ in range(200_000):
        gain = budget * game.sizes / (game.sizes @ x) - game.costs
        x = np.clip(x + 0.05 * x * (1.0 - x) * gain, 1e-12, 1 - 1e-12)
    rested = game.solve(budget, "reward-pool").participation
    assert game.sizes @ x == pytest.approx(game.sizes @ rested, rel=2e-2)
    np.testing.assert_allclose(x, rested, atol=5e-2)

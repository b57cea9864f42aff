"""The theorems about offers, on thousands of random plans with and without a sampling term."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import as_capped, as_contract, capped_equilibria, random_plan, responses_below, utility

import stackfu as sf
from stackfu.leader.contract import worst_equilibrium
from stackfu.model.offers import (
    capped_prices,
    contract_transfers,
    plan_price,
    stakes,
    utilities_of,
)

SEEDS = st.integers(0, 10**6)


@given(SEEDS)
def test_prices_are_slopes_of_utility(seed):
    game, x = random_plan(seed)
    k = int(np.argmax(x))
    step = 1e-6
    profile = game.profile(x)
    bracket = game.costs - 2 * game.lam * game.alpha * stakes(game, profile) / profile.total
    up, down = (np.where(np.arange(game.count) == k, np.clip(x + s, 0, 1), x) for s in (0.0, -step))
    slope = (utility(game, 0 * x, up)[k] - utility(game, 0 * x, down)[k]) / step
    assert slope == pytest.approx(
        -bracket[k], abs=1e-4 * max(game.costs[k], abs(bracket[k]), game.lam * game.geometry.scale)
    )


@given(SEEDS)
def test_the_best_response_below_a_cap_beats_a_grid(seed):
    game, x = random_plan(seed)
    profile = game.profile(x)
    prices, _ = capped_prices(game, profile)
    paid = 0.7 * prices
    w = (game.costs - paid) / (2 * game.lam * game.alpha)
    caps = np.random.default_rng(seed).uniform(0.1, 1.0, game.count)
    best = responses_below(game, w, profile, game.alpha * caps) / game.alpha
    for k in range(game.count):
        others = np.delete(x, k)
        if not others.any():
            continue

        def at(share, k=k):
            y = np.array(x)
            y[k] = share
            return utility(game, paid * y, y)[k]

        top = at(best[k])
        unit = game.lam * (game.geometry.scale + game.sampling) + game.costs[k]
        assert all(at(share) <= top + 1e-9 * unit for share in np.linspace(0, caps[k], 41))
        assert 0 <= best[k] <= caps[k] * (1 + 1e-12)


@settings(max_examples=40)
@given(SEEDS)
def test_a_plan_is_the_only_equilibrium_of_its_capped_offers(seed):
    game, x = random_plan(seed, most=4)
    prices, _ = capped_prices(game, game.profile(x))
    prices = prices * (1 + 1e-6) + 1e-7 * game.costs * (x > 0)  # off the edge of the conditions
    found = capped_equilibria(game, prices, x)
    assert len(found) == 1
    assert found[0] == pytest.approx(x, abs=1e-6)


@given(SEEDS)
def test_best_responses_end_at_the_plan(seed):
    game, x = random_plan(seed)
    prices, _ = capped_prices(game, game.profile(x))
    w = (game.costs - 1.001 * prices - 1e-6 * game.costs) / (2 * game.lam * game.alpha)
    at = x * np.random.default_rng(seed).uniform(0.05, 1.0, game.count)
    for _ in range(300):
        before = at
        for k in range(game.count):
            at = np.array(at)
            at[k] = responses_below(game, w, game.profile(at), game.alpha * x)[k] / game.alpha[k]
            if not at.any():  # facing nobody without a sampling term there is no best response
                return
        if np.abs(at - before).max() == 0:
            break
    assert at == pytest.approx(x, abs=1e-6)


def test_who_sits_at_the_mixture_may_hold_back_unless_paid_more_than_its_cost():
    emb = sf.MeanEmbeddings.from_features([[0.0], [-1.0], [1.0]])
    game = sf.StackelbergGame(emb, [1, 1, 1], costs=[0.3, 0.1, 0.1])
    x = np.array([0.9, 0.5, 0.5])
    prices, _ = capped_prices(game, game.profile(x))
    assert prices[0] == game.costs[0]  # it sits at the mixture: nothing but money moves it
    other = np.array([0.2, 0.5, 0.5])

    def content(paid, at):
        w = (game.costs - paid) / (2 * game.lam * game.alpha)
        return responses_below(game, w, game.profile(at), game.alpha * x) / game.alpha == pytest.approx(at)

    assert content(prices, x)
    assert content(prices, other)
    generous = prices + np.array([1e-6, 0, 0])
    assert content(generous, x)
    assert not content(generous, other)


@given(SEEDS)
def test_no_lower_cost_changes_the_plan_or_its_spend(seed):
    game, x = random_plan(seed, sampling=0.05)
    offers = as_capped(game, x)
    rng = np.random.default_rng(seed + 1)
    for _ in range(20):
        true = game.replace(costs=game.costs * rng.uniform(0.01, 1.0, game.count))
        w = (true.costs - offers.prices) / (2 * true.lam * true.alpha)
        answer = responses_below(true, w, true.profile(x), true.alpha * x) / true.alpha
        assert answer == pytest.approx(x, rel=1e-9)
        at = x * rng.uniform(0.1, 1.0, game.count)
        for _ in range(200):
            before = at
            for k in range(game.count):
                at = np.array(at)
                at[k] = responses_below(true, w, true.profile(at), true.alpha * x)[k] / true.alpha[k]
            if np.abs(at - before).max() == 0:
                break
        assert at == pytest.approx(x, abs=1e-6)
        assert offers.payouts(at).sum() <= offers.most * (1 + 1e-12)


def test_linear_payments_overspend_when_costs_were_guessed_too_high():
    game = sf.catalog.seven_clients().game
    budget = 0.1 * game.full_participation_price
    linear = game.solve(budget, progress=False)
    spends = []
    for lower in (0.9, 0.8, 0.6):
        true = game.replace(costs=lower * game.costs)
        spends.append(true.equilibrium(linear.payments).spend)
    assert max(spends) > 1.3 * budget
    plan = as_capped(game, linear.participation)
    assert plan.most <= budget * (1 + 1e-9)


@given(SEEDS)
def test_a_profile_that_linear_payments_induce_costs_capped_offers_the_same(seed):
    game, _ = random_plan(seed, sampling=0.0)
    x = game.equilibrium(
        0.5 * game.costs * np.random.default_rng(seed).uniform(size=game.count)
    ).participation
    linear = game.payments_for(x)
    assert plan_price(game, game.profile(x)) == pytest.approx(float(linear @ x), abs=1e-12 * game.costs.sum())


# -------------------------------------------------------------------- contracts


@given(SEEDS)
def test_contract_transfers_are_the_least_that_keep_everybody_in(seed):
    game, x = random_plan(seed)
    transfers = contract_transfers(game, game.profile(x))
    prices, _ = capped_prices(game, game.profile(x))
    unit = game.lam * (game.geometry.scale + game.sampling / (game.alpha @ x)) + game.costs.max()
    assert (transfers <= prices * x + 1e-12 * unit).all()
    assert (transfers >= 0).all()
    for k in np.flatnonzero(x):
        alone = not np.delete(x, k).any()
        accept = utility(game, transfers, x)[k]
        offers = []
        for share in np.linspace(0 if not alone else 1e-9, 1, 200) * x[k]:
            y = np.array(x)
            y[k] = share
            offers.append(utility(game, 0 * x, y)[k])
        assert max(offers) <= accept + 1e-9 * unit
        if transfers[k] > 1e-6 * unit and not alone:
            assert max(offers) > accept - 1e-3 * unit


def other_equilibria(premium, seeds):
    count = 0
    for seed in seeds:
        game, x = random_plan(seed)
        count += worst_equilibrium(game, x, premium=premium)[0] is not None
    return count


def test_contracts_have_other_equilibria():
    assert other_equilibria(0.0, range(25)) >= 1


def test_contracts_that_pay_the_capped_payout_have_one_equilibrium():
    # slightly beyond indifference on both sides: the starts include rejection by all
    for seed in range(25):
        game, x = random_plan(seed)
        other, _ = worst_equilibrium(game, x, premium=1.0)
        if other is None:
            continue
        at = game.profile(other)
        holding_back = other < x * (1 - 1e-9)
        assert game.sampling == 0.0
        assert np.all(at.to_clients[holding_back] <= 1e-9 * game.geometry.scale)


def test_the_fraction_in_the_proof_has_positive_coefficients():
    # numerator and denominator of 1/rho_1 - 1 + x c kappa / (c + kappa R), with x = R + h, evaluated exactly on a grid of fractions
    from fractions import Fraction

    for i in range(12):
        for j in range(1, 12):
            for scale in (Fraction(1, 50), Fraction(1), Fraction(50)):
                R, h = i * scale, j * scale
                x = R + h
                X = x + R
                rho = 2 * (1 + x) ** 2 / ((1 + X) * (2 + x))
                c = (1 + X) * (2 + R) / (2 * (1 + R) ** 2) - 1
                kappa = (X + 2) / (1 + X) ** 2
                assert c > 0
                assert 1 / rho - 1 + x * c * kappa / (c + kappa * R) > 0


@given(SEEDS, st.sampled_from([1.0, 0.7, 0.3]))
def test_contracts_cost_at_least_the_capped_price_with_a_larger_lambda(seed, share):
    game, x = random_plan(seed)
    profile = game.profile(x)
    top = share * float(profile.mixture.max())
    if top >= 0.99:
        return
    larger = (2 - top) / (2 * (1 - top) ** 2)
    eager = game.replace(lambda_q=game.lambda_q * larger)
    transfers = contract_transfers(game, profile)
    prices, _ = capped_prices(eager, eager.profile(x))
    assert (transfers >= share * prices * x - 1e-10 * game.costs).all()


# -------------------------------------------------------------------- retention


@given(SEEDS)
def test_nobody_gains_by_leaving(seed):
    game, x = random_plan(seed)
    rng = np.random.default_rng(seed)
    profile = game.profile(x)
    bare = utilities_of(game, as_capped(game, x).payouts(x), profile)
    outside = np.where(
        rng.uniform(size=game.count) < 0.3, -np.inf, bare + rng.normal(size=game.count) * game.costs
    )
    for make in (as_capped, as_contract):
        offers = make(game, x, outside)
        got = utility(game, offers.payouts(x), x)
        unit = game.costs + game.lam * (game.geometry.scale + game.sampling / profile.total)
        assert (got >= outside - 1e-9 * (unit + np.abs(np.where(np.isfinite(outside), outside, 0)))).all()
    formula = np.maximum(
        as_capped(game, x).payouts(x),
        game.costs * x + game.lam * (profile.to_clients + game.sampling / profile.total) + outside,
    )
    assert as_capped(game, x, outside).most == pytest.approx(formula.sum(), rel=1e-9, abs=1e-12)

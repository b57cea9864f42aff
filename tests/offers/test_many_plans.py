"""Capped offers for many clients: the local search's formulas, and what is promised at sizes that a bound does not close."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import random_plan

import stackfu as sf
from stackfu.leader.capped.descent import _gradients, _point, descend
from stackfu.leader.capped.problem import SMALL, PlanProblem
from stackfu.model import Objective

SEEDS = st.integers(0, 10**6)


def crowd(clients, seed=0, sampling=0.002):
    rng = np.random.default_rng([seed, clients])
    points = (
        rng.normal(size=(5, 8))[rng.integers(0, 5, clients + 3)] + rng.normal(size=(clients + 3, 8))
    ) * 0.1
    sizes = rng.pareto(2.0, size=clients + 3) + 1
    alpha = sizes[3:] / sizes[3:].sum()
    kappa = np.exp(rng.normal(size=clients))
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), sizes, range(3), costs=alpha * kappa / (alpha @ kappa)
    )
    game = game.replace(sampling_constant=sampling * game.geometry.scale * float(game.sizes.sum()))
    return game, 0.1 * game.full_participation_price


@settings(max_examples=60)
@given(SEEDS)
def test_slopes_of_loss_and_spend_are_those_of_the_plan(seed):
    game, x = random_plan(seed)
    p = PlanProblem.of(game, Objective(budget=1.0))
    x = np.clip(x, 0.05, 0.95)
    at = _point(p, x)
    assert at.loss == pytest.approx(p.loss(at.z, at.total), rel=1e-9)
    assert at.spend == pytest.approx(p.spend(at.z, at.total), rel=1e-6, abs=1e-9)
    price = p.theta * at.total - p.stakes(at.z, at.total)
    if np.abs(price).min() < 1e-3 * (1 + np.abs(price).max()):
        return  # somebody is about to be paid: the spend has a kink here
    of_loss, of_spend = _gradients(p, at)
    step = 1e-6
    for k in range(game.count):
        aside = step * (np.arange(game.count) == k)
        above, below = _point(p, x + aside), _point(p, x - aside)
        size = 1e-5 * (1 + abs(at.loss) / min(at.total, 1) ** 2 + p.theta.max())
        assert of_loss[k] == pytest.approx((above.loss - below.loss) / (2 * step), rel=1e-4, abs=size)
        assert of_spend[k] == pytest.approx((above.spend - below.spend) / (2 * step), rel=1e-4, abs=size)


@given(SEEDS, st.floats(0, 1))
def test_prices_between_two_mixtures_are_prices_of_the_mixture_between(seed, share):
    game, x = random_plan(seed)
    rng = np.random.default_rng(seed)
    p = PlanProblem.of(game, Objective(budget=1.0))
    total = float(game.alpha @ x)
    start, end = rng.dirichlet(np.ones(p.count)), rng.dirichlet(np.ones(p.count))
    direct = p.spend(start + share * (end - start), total)
    assert p.spend_between(start, end, total)(share) == pytest.approx(direct, rel=1e-9, abs=1e-12)


def test_local_search_offers_plans_that_improve_and_stops_when_late():
    game, budget = crowd(150)
    p = PlanProblem.of(game, Objective(budget=budget, min_total=0.1))
    assert p.large
    offered = []

    def offer(x):
        at = _point(p, np.clip(x, 1e-12, 1.0))
        if at.spend <= p.budget * (1 + 1e-9) and at.total >= 0.1 * (1 - 1e-9):
            offered.append(at.loss)
        return True

    start = game.equilibrium().participation
    descend(p, start, offer, lambda: False)
    assert min(offered) < 0.9 * _point(p, start).loss
    offered.clear()
    descend(p, start, offer, lambda: True)
    assert not offered


@pytest.mark.parametrize("clients", [SMALL + 20, 400])
def test_many_clients_never_do_worse_than_with_linear_payments(clients):
    game, budget = crowd(clients)
    linear = game.solve(budget, min_total=0.1, progress=False, gap=1e-3)
    plan = game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=0.1, time_limit=6)
    assert plan.objective <= linear.objective * (1 + 1e-9)
    assert plan.lower_bound <= plan.objective
    assert plan.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert plan.offers.most <= budget * (1 + 1e-9)
    assert plan.verify(), plan.verify().message


def test_a_limit_of_time_is_kept_and_what_was_found_stands():
    game, budget = crowd(400, seed=1)
    game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=0.3)
    plan = game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=1e-9, time_limit=1.0)
    assert plan.status is sf.Status.TIME_LIMIT
    assert plan.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert np.isfinite(plan.lower_bound)
    assert plan.verify(), plan.verify().message

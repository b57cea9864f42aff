"""Capped offers for many clients: the local search's formulas, and what is promised at sizes that a bound does not close."""

from dataclasses import replace

import numpy as np
import pytest

import stackfu as sf
from stackfu.leader.capped import plan_problem as problem_module
from stackfu.leader.capped import plans as plans_module
from stackfu.leader.capped.capped_bound import at_best_level, margin, restricted, root_region
from stackfu.leader.capped.columns import relaxed_columns
from stackfu.leader.capped.plan_problem import SMALL, PlanProblem
from stackfu.leader.local_search import LocalSearch
from stackfu.model import Objective


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


@pytest.mark.parametrize("clients", [SMALL + 20, 400, 2000])
def test_many_clients_never_do_worse_than_with_linear_payments(clients):
    game, budget = crowd(clients)
    linear = game.solve(budget, min_total=0.1, progress=False, gap=1e-3)
    plan = game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=0.1, max_nodes=200)
    assert plan.objective <= linear.objective * (1 + 1e-9)
    assert plan.lower_bound <= plan.objective
    assert plan.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert plan.offers.most <= budget * (1 + 1e-9)
    assert plan.verify(), plan.verify().message


def test_a_sample_stands_for_everybody(monkeypatch):
    """Few of many, the largest for certain: they own as much, their mean lies near, and what they propose serves all."""
    monkeypatch.setattr(problem_module, "SAMPLED_CLIENTS", 300)
    game, budget = crowd(3000, seed=2)
    p = PlanProblem.of(game, Objective(budget=budget, min_total=0.1))
    rows, few = p.sampled
    assert abs(len(rows) - 300) <= 1
    large = np.flatnonzero(300 * p.alpha >= 1.0)
    assert len(large) > 0
    assert set(large) <= set(rows)
    assert few.alpha.sum() == pytest.approx(1.0)
    assert float(few.alpha @ few.theta) == pytest.approx(float(p.alpha @ p.theta), rel=0.2)
    assert np.linalg.norm(few.alpha @ few.points - p.alpha @ p.points) < 0.1
    ideal = p.ideal @ p.points
    assert float((p.points @ ideal).min()) >= float(ideal @ ideal) - 1e-9  # the nearest of all mixtures

    region = root_region(p, 0.5, 0.52)
    bounds = []
    for answer in (
        relaxed_columns(few, restricted(region, rows), 0.51, np.inf),
        relaxed_columns(p, region, 0.51, np.inf),
    ):
        multipliers = replace(answer.multipliers, rows=np.zeros(p.count))
        bounds.append(margin(p, region, at_best_level(p, region, multipliers), 0.0)[0])
    assert 0.8 * bounds[1] <= bounds[0] <= 1.01 * bounds[1]


class Bought:
    """Loss and price of plans from the embeddings, without the library: what no plan that is said to be best may lose to."""

    def __init__(self, game):
        rows, sizes = np.asarray(game.embeddings.features), np.asarray(game.all_sizes)
        self.game, self.rows = game, rows[game.remaining]
        self.targets = game.alpha @ self.rows, sizes @ rows / sizes.sum()

    def __call__(self, x):
        game, y = self.game, self.game.alpha * x
        total, used = y.sum(), float(game.sizes @ x)
        m = y @ self.rows / total
        loss = sum(float((m - t) @ (m - t)) + game.sampling_constant / used for t in self.targets)
        d2 = ((self.rows - m) ** 2).sum(axis=1) + 0.5 * game.sampling_constant / used
        return loss, float(np.maximum(game.costs - 2 * game.alpha * d2 / total, 0) @ x), total

    def within(self, x, budget, floor):
        """The largest part of a participation that the budget pays for, with its loss; None below the floor."""
        low, high = 0.0, 1.0
        for _ in range(30):
            share = 0.5 * (low + high)
            low, high = (share, high) if self(share * x)[1] <= budget else (low, share)
        return self(low * x)[0] if low > 0 and self(low * x)[2] >= floor else np.inf

    def best_of_many(self, budget, floor, starts):
        """Clients on one side of a plane, weighed by cost, or near a point; then steps that help, one at a time."""
        rng = np.random.default_rng(0)
        best, kept = min(
            ((self.within(x, budget, floor), i) for i, x in enumerate(starts)), default=(np.inf, 0)
        )
        x = starts[kept]
        for _ in range(300):
            toward = self.rows @ rng.normal(size=self.rows.shape[1])
            score = toward / np.ptp(toward) + rng.uniform(0, 2) * self.game.kappa / self.game.kappa.max()
            trial = (score <= np.quantile(score, rng.uniform(0.05, 1))) * 1.0
            for other in (trial, x + rng.uniform(0, 0.3) * (trial - x)):
                value = self.within(other, budget, floor)
                if value < best:
                    best, x = value, other
        return best


def test_plans_for_very_many_are_found_from_samples_and_judged_for_everybody(monkeypatch):
    """With the sizes at which samples begin made small: the same steps as with a hundred thousand clients."""
    monkeypatch.setattr(problem_module, "SAMPLED_CLIENTS", 300)
    monkeypatch.setattr(plans_module, "SAMPLED_FIRST", 200)
    explored, by_sample = [], LocalSearch.explore_sample

    def exploring(self, x, chosen, few):
        by_sample(self, x, chosen, few)
        explored.append((len(chosen) // 10, few.count))

    monkeypatch.setattr(LocalSearch, "explore_sample", exploring)
    game, budget = crowd(1200, seed=4)
    unpaid = game.equilibrium()
    linear = game.solve(budget, min_total=0.1, progress=False, gap=1e-3)
    plan = game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=0.06, max_nodes=200)
    assert explored == [(20, 200)]
    bought = Bought(game)
    loss, spend, total = bought(plan.participation)
    assert loss == pytest.approx(plan.objective)
    assert spend <= budget * (1 + 1e-9)
    assert spend == pytest.approx(plan.offers.most, rel=1e-4)
    assert total >= 0.1 * (1 - 1e-9)
    assert plan.offers.most <= budget * (1 + 1e-9)
    assert plan.caps == pytest.approx(plan.participation, abs=0)
    assert plan.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert plan.objective <= linear.objective + 0.06 * unpaid.server_loss  # the gap that was asked for
    found = bought.best_of_many(
        budget, 0.1, [linear.participation, unpaid.participation, np.ones(game.count)]
    )
    assert found < 0.9 * unpaid.server_loss
    assert 0.5 * unpaid.server_loss < plan.lower_bound <= min(plan.objective, found)
    assert plan.objective <= found + 0.06 * unpaid.server_loss
    assert plan.certificate is not None
    assert plan.verify(), plan.verify().message


@pytest.mark.parametrize(
    "asked",
    [
        {"payment_weight": 0.5},
        {"payment_weight": 1.0, "loss_weight": 0.0, "max_loss": 0.009},
        {"payment_weight": 0.5, "outside": np.append(np.full(20, -0.01), np.full(380, -np.inf))},
    ],
    ids=["priced", "cheapest", "kept"],
)
def test_samples_serve_whatever_is_asked(asked, monkeypatch):
    monkeypatch.setattr(problem_module, "SAMPLED_CLIENTS", 150)
    monkeypatch.setattr(plans_module, "SAMPLED_FIRST", 120)
    game, _ = crowd(400, seed=5)
    plan = game.solve(None, offers="capped", progress=False, gap=0.2, max_nodes=200, **asked)
    loss, spend, _ = Bought(game)(plan.participation)
    assert plan.lower_bound <= plan.objective
    assert loss <= asked.get("max_loss", np.inf) * (1 + 1e-9)
    assert plan.verify(), plan.verify().message
    if "outside" not in asked:
        linear = game.solve(None, progress=False, gap=1e-3, **asked)
        assert plan.objective <= linear.objective * (1 + 1e-9)
        assert spend == pytest.approx(plan.spend, rel=1e-4)
    else:
        assert game.cascade(offers=plan.offers, outside=asked["outside"]).stable


def test_a_limit_of_time_is_kept_and_what_was_found_stands(counted_clock):
    game, budget = crowd(400, seed=1)
    game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=0.3)
    plan = game.solve(budget, min_total=0.1, offers="capped", progress=False, gap=1e-9, time_limit=1.0)
    assert plan.status is sf.Status.TIME_LIMIT
    assert plan.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert np.isfinite(plan.lower_bound)
    assert plan.verify(), plan.verify().message

"""Local search: feasible plans by an independent reference, never worse than the obvious first attempts, better with time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu.leader.bound import Problem
from stackfu.leader.certified import large
from stackfu.leader.certified.points import ArrayPoints
from stackfu.leader.haipo import best_iterate
from stackfu.leader.local_search import Descent, Landscape, LocalSearch
from stackfu.leader.uniform import best_price


def drawn(seed, clients=25, width=4, capped=False, outside=False):
    """A problem of random clients with every term of loss and spend, and the plan that takes part by half."""
    rng = np.random.default_rng(seed)
    alpha = rng.lognormal(size=clients)
    alpha /= alpha.sum()
    points = 0.3 * rng.normal(size=(clients, width))
    points -= alpha @ points
    theta = rng.uniform(0.2, 2.0, clients) * float(alpha @ (points**2).sum(axis=1))
    return Problem(
        alpha, theta, ArrayPoints(points), budget=float(rng.uniform(0.01, 0.3)) * float(theta @ alpha),
        constant=0.01, pull=0.1 * points @ rng.normal(size=width), noise=0.01 * rng.uniform(size=clients),
        loss_sampling=0.002, client_sampling=0.003, payment_weight=0.1, capped=capped,
        outside=-0.05 * rng.uniform(size=clients) if outside else None,
    )  # fmt: skip


def reference(problem, x):
    """Loss, spend and eagerness of a plan, term by term."""
    y = problem.alpha * x
    total = y.sum()
    z, rows = y / total, problem.points.array
    m = sum(share * row for share, row in zip(z, rows, strict=True))
    stake = np.array([float((m - row) @ (m - row)) for row in rows]) + 0.5 * problem.client_sampling / total
    loss = problem.square * float(m @ m) - 2.0 * float(problem.pull @ z) + problem.constant
    loss += (float(problem.noise @ z) + problem.loss_sampling) / total
    prices = np.maximum(problem.theta * total - stake, 0.0)
    spends = z * prices
    if problem.outside is not None:
        keep = problem.theta * total * z + 0.5 * stake + 0.25 * problem.client_sampling / total
        spends = np.maximum(spends, keep + problem.outside)
    return loss, float(spends.sum()), stake - problem.theta * total


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_loss_and_spend_are_those_of_the_reference(seed, outside):
    problem = drawn(seed, outside=outside)
    x = np.random.default_rng(seed).uniform(0.01, 1.0, problem.count)
    loss, spend, eager = reference(problem, x)
    at = Landscape(problem).look(problem.alpha * x)
    assert at.loss == pytest.approx(loss, rel=1e-10)
    assert at.spend == pytest.approx(spend, rel=1e-10)
    assert at.eager == pytest.approx(eager, abs=1e-12)


@given(st.integers(0, 10**6), st.sampled_from(["linear", "fixed", "capped", "outside"]))
@settings(max_examples=40, deadline=None)
def test_the_gradient_is_that_of_finite_differences(seed, kind):
    problem = drawn(seed, capped=kind in ("capped", "outside"), outside=kind == "outside")
    rng = np.random.default_rng(seed)
    volunteers = rng.uniform(size=problem.count) < 0.2 if kind == "fixed" else None
    land = Landscape(problem)
    descent = Descent(land, 0.5, problem.budget, problem.budget, volunteers, 1e-3)
    state = descent.start(rng.uniform(0.2, 0.9, problem.count))
    rows = rng.uniform(size=problem.count)
    state = type(state)(state.y, np.array([0.3, 0.0, 0.0]), rows, state.paid, (3.0, 2.0), state.sharpness)

    def value(y):
        return descent.partials(land.look(y), state, 0.2).value

    d = descent.partials(land.look(state.y), state, 0.2)
    slope = land.slope(land.look(state.y), d.of_loss, d.by_z, d.by_eager, d.by_total) + d.direct
    step = 1e-7 * problem.alpha
    found = np.array(
        [(value(state.y + h * e) - value(state.y - h * e)) / (2.0 * h) for h, e in zip(step, np.eye(problem.count), strict=True)]
    )  # fmt: skip
    # a kink between two of the points is rare and moves a few entries alone
    assert np.quantile(np.abs(found - slope), 0.8) <= 1e-3 * np.abs(slope).max()


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_every_plan_at_the_end_is_feasible_and_later_searches_are_no_worse(seed, capped):
    problem = drawn(seed, capped=capped)
    values = []

    def offer(x):
        loss, spend, eager = reference(problem, x)
        feasible = spend <= problem.budget * (1.0 + 1e-12)
        if not capped:
            feasible = feasible and bool((eager[x < 1.0 - 1e-9] <= 1e-9).all())
        if feasible:
            values.append(problem.loss_weight * loss + problem.payment_weight * spend)
        return feasible

    search = LocalSearch(problem, offer, lambda: False, 0.1)
    for x in (np.ones(problem.count), np.full(problem.count, 0.5)):
        search.explore(x)
    assert values
    assert min(values) < max(reference(problem, np.ones(problem.count))[0], values[0] * (1.0 + 1e-12))


def federation(seed, clients):
    """A game with clients that hold mixtures of ten kinds of data, costs and sizes uneven, and a budget."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(10, 0.4), clients + clients // 10)
    sizes = rng.lognormal(4.0, 1.0, len(rows)).round() + 1.0
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), sizes, range(clients // 10))
    scale = float(np.exp(rng.uniform(np.log(0.5), np.log(20.0))))
    spread = float(
        game.alpha @ ((rows[clients // 10 :] - game.alpha @ rows[clients // 10 :]) ** 2).sum(axis=1)
    )
    per_sample = rng.lognormal(0.0, 0.7, clients)
    game = game.replace(
        costs=4.0 * game.lam * spread * scale * game.alpha * per_sample / (game.alpha @ per_sample)
    )
    return game, float(np.exp(rng.uniform(np.log(1e-3), np.log(0.3)))) * game.full_participation_price


def same_share(game, budget):
    """The largest share that all clients can bring alike within the budget, or None."""
    for share in np.linspace(1.0, 0.02, 50):
        x = np.full(game.count, share)
        try:
            if game.payments_for(x) @ x <= budget:
                return x
        except sf.errors.NotInducibleError:
            return None
    return None


@given(st.integers(0, 10**6), st.integers(101, 140))
@settings(max_examples=12, deadline=None)
def test_the_incumbent_is_feasible_and_never_worse_than_what_one_would_try_first(seed, clients):
    game, budget = federation(seed, clients)
    seen = []
    found = game.solve(budget, gap=1e-3, max_nodes=1, callback=lambda r: seen.append(r["upper"]))
    assert seen == sorted(seen, reverse=True)
    x, embeddings = found.participation, np.asarray(game.embeddings.features)[clients // 10 :]
    total = float(game.alpha @ x)
    apart = ((game.alpha * x) @ embeddings / total - embeddings) ** 2
    price = game.costs - 2.0 * game.lam * game.alpha * apart.sum(axis=1) / total
    assert (price[x < 1.0] >= -1e-9 * game.costs[x < 1.0]).all()
    assert np.maximum(price, 0.0) @ x <= budget * (1.0 + 1e-9)
    others = [
        game.equilibrium().participation,
        best_iterate(game, budget)[1].x,
        best_price(game, budget)[1].x,
    ]
    others.append(best_price(game, budget, shape=game.alpha)[1].x)
    others += [x for x in [same_share(game, budget)] if x is not None]
    for other in others:
        assert found.server_loss <= game.server_loss(other) * (1.0 + 1e-9)


def test_a_sample_of_the_clients_leads_to_payments_for_all(monkeypatch):
    """With the size at which samples begin made small: the same steps as with very many clients."""
    monkeypatch.setattr(large, "SAMPLED_BEYOND", 100)
    game, budget = federation(3, 3000)
    unpaid = game.equilibrium().server_loss
    found = game.solve(budget, gap=1e-3, max_nodes=1, progress=False)
    assert found.spend <= budget * (1.0 + 1e-9)
    assert found.server_loss < 0.98 * unpaid

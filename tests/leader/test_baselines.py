"""HAIPO and the uniform price, faithful and honest."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leader_games import random_game
from scipy.optimize import brentq, minimize_scalar

import stackfu as sf
from stackfu.judging.stakes import check_stakes
from stackfu.leader.haipo import LevelBisection, budget_prices, least_ratio, prices_of, responses
from stackfu.leader.playing import play, same_play


@pytest.mark.parametrize("seed", range(20))
def test_least_ratio_agrees_with_the_published_bisection_and_with_corners(seed):
    rng = np.random.default_rng(seed)
    g, low = rng.normal(size=5), rng.uniform(0, 0.1, 5)
    high = low + rng.uniform(0, 0.3, 5)
    if seed % 3 == 0:  # some clients cannot be moved, some stay out unpaid
        low[:2], high[3] = 0.0, low[3]
    _, level, _ = LevelBisection(5).solve(g, low, high, 1e-9)
    y, exact = least_ratio(g, low, high)
    assert np.all((y == low) | (y == high))
    assert g @ y / y.sum() == pytest.approx(exact, abs=1e-14)
    corners = np.array(np.meshgrid(*np.stack([low, high], axis=1))).reshape(5, -1).T
    best = (corners @ g / corners.sum(axis=1)).min()
    assert exact == pytest.approx(best, abs=1e-12)
    assert level == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_budget_price_is_the_root_and_lies_above_the_share(seed):
    game, budget = random_game(seed, 4)
    profile = game.profile(np.ones(4))
    prices = budget_prices(game, budget * game.alpha, profile)
    for k in range(4):
        share, price = budget * game.alpha[k], prices[k]
        assert share <= price <= max(share, game.costs[k]) * (1 + 1e-12)
        p = np.zeros(4)
        p[k] = price
        x = game.best_response(p, np.ones(4))[k]
        p[k] = price * (1 - 1e-9)
        below = game.best_response(p, np.ones(4))[k]
        assert price * x >= share * (1 - 1e-6) or x == 1
        assert p[k] * below <= share * (1 + 1e-6)


def test_price_of_an_answer_is_answered_by_it():
    inside = 0
    for seed in range(10):
        game = random_game(seed, 4)[0].replace(loss_constant=0.7)
        profile = game.profile(np.linspace(0.3, 1.0, 4))
        for share in (0.0, 0.3, 0.6, 1.0):
            prices = prices_of(game, share * game.alpha, profile, np.full(4, 1e9))
            for price, answer, owned in zip(
                prices, responses(game, prices, profile), game.alpha, strict=True
            ):
                if price > 0:
                    assert answer == pytest.approx(share * owned, rel=1e-6)
                    inside += share < 1
                else:  # it takes part at least that much unpaid
                    assert answer >= share * owned * (1 - 1e-9)
        assert prices_of(game, game.alpha, profile, np.full(4, 1e-6)).max() <= 1e-6
    assert inside > 10


def _first(game, price, profile):
    """Return client 0's answer to a price."""
    return responses(game, np.full(game.count, price), profile)[0]


def test_a_client_paid_more_than_its_cost_takes_part_fully_even_alone():
    game, _ = random_game(0, 3)
    alone = game.profile(np.array([0.5, 0.0, 0.0]))
    assert _first(game, 2.0 * game.costs[0], alone) == game.alpha[0]
    assert _first(game, float(game.costs[0]), alone) == pytest.approx(0.5 * game.alpha[0])
    assert _first(game, 0.5 * game.costs[0], alone) == 0.0
    together = game.profile(np.array([0.5, 0.4, 0.3]))  # drift to avoid, and nothing to lose by it
    assert _first(game, float(game.costs[0]), together) == game.alpha[0]


def test_haipo_keeps_its_history_and_its_budget():
    statuses = set()
    for seed in range(12):
        game, budget = random_game(seed, 4)
        for others in ("equilibrium", "full"):
            solution = game.solve(budget, method="haipo", others=others)
            statuses.add(solution.status)
            assert solution.spend <= budget * (1 + 1e-9)
            assert solution.history
            feasible = [h["server_loss"] for h in solution.history if h["feasible"]]
            assert solution.server_loss <= min([*feasible, game.equilibrium().server_loss]) * (1 + 1e-12)
    assert sf.Status.CYCLED in statuses
    assert sf.Status.CONVERGED in statuses


def test_haipo_calls_a_cycle_only_what_is_one():
    """Without its memory the algorithm goes on for ever; a reported cycle must be the first repetition there."""
    tolerance, cycles = 1e-6, 0
    for seed in range(6):
        game, budget = random_game(seed, 4)
        told = game.solve(budget, method="haipo", tolerance=tolerance)
        end = len(told.history)
        longer = game.solve(budget, method="haipo", tolerance=0.0, max_iterations=end + 1)
        endless = [h["payments"] for h in longer.history]
        if told.status is sf.Status.CONVERGED:
            assert np.abs(endless[end] - endless[end - 1]).max() < tolerance
            continue
        distances = [np.abs(a - b).max() for i, a in enumerate(endless[:end]) for b in endless[1:i]]
        assert min(distances, default=1.0) >= tolerance
        if told.status is sf.Status.CYCLED:
            cycles += 1
            back = np.flatnonzero([np.abs(endless[end] - old).max() < tolerance for old in endless[1:end]])
            assert len(back) == 1
            assert end - 1 - back[0] >= 2  # coming back to where one is would be convergence
            assert (
                f"came back to iteration {back[0] + 1}: a cycle of length {end - 1 - back[0]}" in told.message
            )
    assert cycles >= 3


def test_published_bisection_and_closed_form_find_the_same_minimum():
    for seed in range(6):
        game, budget = random_game(seed, 4)
        closed = game.solve(budget, method="haipo")
        published = game.solve(budget, method="haipo", solver="cvxpy")
        history = published.history
        assert max(record["bisection_steps"] for record in history) > 0
        caps = budget_prices(game, budget * game.alpha, game.equilibrium().profile)
        np.testing.assert_allclose(history[0]["payments"], 0.5 * caps)
        first = closed.history[0]
        np.testing.assert_array_equal(first["payments"], history[0]["payments"])
        assert first["linearised_loss"] == pytest.approx(history[0]["linearised_loss"], rel=1e-9)
        for record in history:
            assert abs(record["cross_check"]) <= 1e-5 * (game.lam_v + game.lam_s) * game.geometry.scale


@pytest.mark.parametrize("seed", range(4))
def test_haipo_minimises_the_linearised_loss(seed):
    """Against all corners of the box of answers, from the definition of u~ in coordinates."""
    rng = np.random.default_rng(seed)
    points, sizes = rng.normal(size=(5, 3)), rng.integers(1, 9, size=5)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        sizes,
        (0,),
        cost_scale=3.0,
        lambda_v=0.7,
        lambda_s=1.6,
        loss_constant=0.8,
    )
    first = game.solve(0.4 * game.costs.sum(), method="haipo").history[0]
    x = game.equilibrium(first["payments"]).participation
    cap = 2 * first["payments"]  # the first payments are half of what the budget shares allow
    answers = []
    for k in range(4):
        paid = [np.where(np.arange(4) == k, price, 0.0) for price in (0.0, cap[k])]
        answers.append([game.alpha[k] * game.best_response(p, x)[k] for p in paid])
    rows, mu_o = points[1:], sizes @ points / sizes.sum()
    mu_n, mu_0 = game.alpha @ rows, game.profile(x).mixture @ rows
    slope = 2 * (game.lam_v * (mu_0 - mu_n) + game.lam_s * (mu_0 - mu_o))
    least = min(slope @ (np.array(y) @ rows / sum(y) - mu_0) for y in product(*answers) if sum(y) > 0)
    assert first["linearised_loss"] == pytest.approx(game.server_loss(x) + least, rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_uniform_price_is_one_price_that_just_meets_the_budget(seed):
    game, budget = random_game(seed, 4)
    solution = game.solve(budget, method="uniform")
    assert np.ptp(solution.payments) == 0
    assert solution.spend <= budget * (1 + 1e-9)
    full = np.all(solution.participation == 1)
    meets = solution.spend >= budget * (1 - 1e-6)
    assert ("jumps" in solution.message) == (not full and not meets)
    if not full:  # the price is the largest: a little more breaks the budget
        enough = game.payments_for(np.ones(4)).max()
        assert game.equilibrium(solution.payments + 1e-6 * enough).spend > budget


def test_unknown_behaviour_of_others_is_refused():
    game, budget = random_game(0, 3)
    with pytest.raises(sf.InputError, match="others"):
        game.solve(budget, method="haipo", others="nobody")


@pytest.mark.parametrize("seed", [7, 13, 14, 15])
def test_haipo_settles_where_its_payments_reproduce_themselves(seed):
    game, budget = random_game(seed, 3)
    solution = game.solve(budget, method="haipo")
    assert solution.status is sf.Status.CONVERGED
    last = solution.history[-1]["payments"]
    assert last.max() > 1e-3
    again = game.solve(budget, method="haipo", tolerance=0.0, max_iterations=len(solution.history) + 1)
    np.testing.assert_allclose(again.history[-1]["payments"], last, atol=1e-6)


def test_haipo_and_uniform_count_samples_where_they_matter():
    """With a sampling constant, answers and prices are those of the game, and thin data counts in the linearised loss."""
    rng = np.random.default_rng(3)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(0.4 * rng.normal(size=(6, 3))),
        rng.uniform(50, 200, 6),
        removed=[0],
        cost_scale=2.0,
        sampling_constant=20.0,
    )
    profile = game.profile(rng.uniform(0.2, 0.9, 5))
    prices = 0.7 * game.costs
    np.testing.assert_allclose(
        responses(game, prices, profile) / game.alpha, game.best_response(prices, profile.x)
    )
    for share in (0.2, 0.8):
        asked = prices_of(game, share * game.alpha, profile, np.full(5, 1e9))
        answered = responses(game, asked, profile)
        np.testing.assert_allclose(answered[asked > 0], (share * game.alpha)[asked > 0], rtol=1e-9)
    g, low, high = rng.normal(size=5), 0.1 * rng.random(5), 0.5 + rng.random(5)
    corners = np.array([[h if bit else v for v, h, bit in zip(low, high, bits, strict=True)]
                        for bits in np.ndindex(*(2,) * 5)])  # fmt: skip
    y, level = least_ratio(g, low, high, 0.7)
    assert level == pytest.approx(((corners @ g + 0.7) / corners.sum(axis=1)).min(), rel=1e-12)
    assert (g @ y + 0.7) / y.sum() == pytest.approx(level, rel=1e-12)
    assert LevelBisection(5).solve(g, low, high, 1e-9, 0.7)[1] == pytest.approx(level, abs=1e-7)
    unpaid = game.equilibrium().server_loss
    for method in ("haipo", "uniform"):
        found = game.solve(0.2, method)
        assert found.spend <= 0.2 * (1 + 1e-9)
        assert found.server_loss < unpaid
        assert found.equilibrium.status is sf.Status.CERTIFIED
        assert found.verify()


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 9), share=st.floats(0.0, 1.2))
def test_payments_that_are_tried_lead_where_the_proofs_say(seed, count, share):
    game, _ = random_game(seed, count)
    payments = share * game.costs
    tried, proved = play(game, payments), game.equilibrium(payments)
    assert same_play(game, payments, tried, proved.profile)
    assert check_stakes(game, payments, tried.x).max() <= 1e-9


def haipo_from_the_paper(points, alpha, costs, targets, weights, budget, rounds):
    """The published iteration written out with general-purpose tools: payments of every round, nothing shared with the library."""
    count = len(alpha)

    def utility(k, y, paid, own):
        y = np.array(y)
        y[k] = own
        drift = points[k] - y @ points / y.sum()
        return (paid - costs[k]) * own / alpha[k] - drift @ drift

    def answer(k, y, paid):
        if y.sum() - y[k] <= 0:
            return y[k]
        found = minimize_scalar(
            lambda own: -utility(k, y, paid, own),
            bounds=(0.0, alpha[k]),
            method="bounded",
            options={"xatol": 1e-12},
        )
        ends = [0.0, alpha[k], float(found.x)]
        return max(ends, key=lambda own: utility(k, y, paid, own))

    def equilibrium(payments):
        y = np.array(alpha)
        for _ in range(400):
            before = y.copy()
            for k in range(count):
                y[k] = answer(k, y, payments[k])
            if np.abs(y - before).max() < 1e-12:
                break
        return y

    unpaid = equilibrium(np.zeros(count))
    caps = np.empty(count)
    for k in range(count):
        share = budget * alpha[k]
        caps[k] = brentq(
            lambda p, k=k, share=share: p * answer(k, unpaid, p) / alpha[k] - share,
            0.0,
            max(share, costs[k]) * 1.001,
        )
    seen = [0.5 * caps]
    for _ in range(rounds):
        y = equilibrium(seen[-1])
        m = y @ points / y.sum()
        slope = 2.0 * sum(w * (m - t) for w, t in zip(weights, targets, strict=True))
        low = np.array([answer(k, y, 0.0) for k in range(count)])
        high = np.array([answer(k, y, caps[k]) for k in range(count)])
        corners = np.array(list(product([False, True], repeat=count)))
        choices = np.where(corners, high, low)  # a ratio of linear functions is least at a corner of the box
        totals = choices.sum(axis=1)
        values = np.where(
            totals > 0, (choices @ (points @ slope)) / np.where(totals > 0, totals, 1.0), np.inf
        )
        best = corners[int(np.argmin(values))]
        seen.append(np.where(best & (high > low), caps, 0.0))
    return seen


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_cycle_is_the_published_algorithms_own(symmetric):
    """Its inner problem pays each client all or nothing, so that symmetric clients are paid in turn for ever."""
    turns = 2.0 * np.pi * np.arange(3) / 3.0
    points = np.vstack([[0.3, 0.2], np.column_stack([np.cos(turns), np.sin(turns)])])
    sizes, costs = np.ones(4), np.ones(3)
    if not symmetric:
        points = points + 0.1 * np.random.default_rng(0).normal(size=points.shape)
        sizes, costs = np.array([1.0, 1.3, 0.8, 1.1]), np.array([1.0, 1.2, 0.9])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, (0,), costs=costs)
    budget = 0.4 * game.full_participation_price
    told = game.solve(budget, method="haipo")
    alpha = sizes[1:] / sizes[1:].sum()
    targets = [alpha @ points[1:], sizes / sizes.sum() @ points]
    rounds = len(told.history)
    paper = haipo_from_the_paper(points[1:], alpha, costs, targets, (1.0, 1.0), budget, rounds)
    for ours, theirs in zip(told.history, paper, strict=False):
        assert ours["payments"] == pytest.approx(theirs, abs=1e-5)
    assert told.status is sf.Status.CYCLED
    again = [i for i, old in enumerate(paper[1:rounds]) if np.abs(old - paper[rounds]).max() < 1e-5]
    assert again  # the paper's own iteration is back where it was

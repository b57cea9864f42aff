"""The judge of lower bounds: it accepts what the solver proved, refuses what is forged, and its two arithmetics agree."""

from dataclasses import replace

import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf
from stackfu.judging import bound_check
from stackfu.judging.bound_check import check_bound
from stackfu.results.certificate import Decide, LeaderCertificate, Leaf, Split

OUTLIER = sf.StackelbergGame(
    sf.MeanEmbeddings.from_features(
        np.array([[18.6, 13.3], [0.0044, 0.0159], [0.0022, -0.0183], [0.0033, 0.0166], [-0.0063, -0.007]])
    ),
    [1.14, 1.13, 1.18, 1.5, 1.01],
    [0],
    costs=[0.0026, 0.0006, 0.00004, 0.00074],
)
CLOSE = sf.StackelbergGame(
    sf.MeanEmbeddings.from_features(np.array([[0.3, 0.4], [0.5, 0.5], [0.51, 0.5], [0.5, 0.52]])),
    [1, 1, 1, 1],
    [0],
    costs=[1e-3] * 3,
)


def both(game, goal, certificate):
    return [check_bound(game, goal, certificate, arithmetic) for arithmetic in ("balls", "intervals")]


def test_a_far_target_does_not_raise_the_bound_above_a_feasible_value():
    x = np.array([0.68, 0.54, 1.0, 0.0])
    assert OUTLIER.payments_for(x) @ x < 0.00176
    for floor in (0.0, 0.3):
        solution = OUTLIER.solve(0.00176, min_total=floor)
        assert solution.status is sf.Status.CERTIFIED
        assert solution.lower_bound <= solution.objective < OUTLIER.server_loss(x)
        assert all(both(OUTLIER, solution.goal, solution.certificate))


def test_few_samples_do_not_raise_the_bound_above_a_feasible_value():
    budget = 0.02 * CLOSE.full_participation_price
    solution = CLOSE.solve(budget, finite_sample=True)
    x = np.array([0.0048, 0.1444, 0.156])
    assert CLOSE.payments_for(x) @ x <= budget
    assert solution.lower_bound <= solution.objective <= CLOSE.server_loss(x) + CLOSE.finite_sample_penalty(x)
    assert all(both(CLOSE, solution.goal, solution.certificate))


def test_the_price_of_everybody_buys_everybody():
    game, _ = random_game(2, 5)
    solution = game.solve(game.full_participation_price, min_total=1.0)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.equilibrium.total == pytest.approx(1.0)


@pytest.mark.parametrize("closeness", [1.03, 1.001, 1.0001])
def test_a_cap_near_the_optimum_is_met(closeness):
    game, budget = random_game(3, 4)
    best = game.solve(budget)
    bill = game.solve(budget, max_loss=best.objective * closeness, payment_weight=1.0, loss_weight=0.0)
    assert bill.server_loss <= best.objective * closeness * (1 + 1e-12)
    assert bill.spend <= best.spend * (1 + 1e-9)
    assert all(both(game, bill.goal, bill.certificate))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"payment_weight": 0.3},
        {"min_total": 0.02},
        {"finite_sample": True},
        {"max_loss": 10.0, "payment_weight": 1.0, "loss_weight": 0.0},
    ],
    ids=str,
)
def test_balls_and_intervals_agree_and_a_higher_claim_is_refused(options):
    game, budget = random_game(2, 5)
    solution = game.solve(budget, gap=1e-5, **options)
    held = solution.certificate
    verdicts = both(game, solution.goal, held)
    assert all(v.passed for v in verdicts)
    assert verdicts[0].margin == pytest.approx(verdicts[1].margin, abs=1e-9 * (1 + abs(solution.objective)))
    above = replace(held, lower=solution.objective * (1 + 1e-6))
    assert not any(v.passed for v in both(game, solution.goal, above))
    below = replace(held, lower=held.lower - 1e-3 * abs(held.lower))
    assert all(v.passed for v in both(game, solution.goal, below))


@pytest.mark.parametrize("arithmetic", ["balls", "intervals"])
def test_leaves_are_judged_alike_one_by_one_and_together(solved, arithmetic, monkeypatch):
    game, solution = solved
    together = check_bound(game, solution.goal, solution.certificate, arithmetic)
    monkeypatch.setattr(bound_check, "TOGETHER", 1)
    alone = check_bound(game, solution.goal, solution.certificate, arithmetic)
    assert alone.passed
    assert together.passed
    assert alone.leaves == together.leaves > 1
    assert alone.margin == pytest.approx(together.margin, abs=1e-14 * abs(solution.objective))


def test_balls_are_asked_where_intervals_are_too_coarse(solved):
    """A claim between what intervals and what balls can see: refused by the ones, proved by the others, and so accepted."""
    game, solution = solved
    held = solution.certificate
    low, high = held.lower, held.lower + 1e-3 * abs(held.lower)
    for _ in range(50):  # the highest claim that balls accept
        middle = 0.5 * (low + high)
        passed = check_bound(game, solution.goal, replace(held, lower=middle), "balls").passed
        low, high = (middle, high) if passed else (low, middle)
    sharp = replace(held, lower=low)
    assert not check_bound(game, solution.goal, sharp, "intervals")
    assert check_bound(game, solution.goal, sharp)
    assert not check_bound(game, solution.goal, replace(held, lower=high + 1e-9 * abs(high)))


def test_clients_who_own_more_than_the_total_do_not_magnify_rounding():
    """Costs of 1e10 leave totals of 1e-10: the rounding of psi_k counts once, not alpha_k / S times."""
    points = np.array([[0, 0.6], [0, 0], [0.8, 0], [0.1, 0.9]])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), [100, 100, 200, 100], [0], cost_scale=1e10
    )
    solution = game.solve(0.05)
    assert solution.equilibrium.total < 1e-9
    for verdict in both(game, solution.goal, solution.certificate):
        assert verdict.passed
        above = replace(solution.certificate, lower=solution.objective * (1 + 1e-6))
    assert not any(both(game, solution.goal, above))


@pytest.fixture(scope="module")
def solved():
    game, budget = random_game(5, 5)
    return game, game.solve(budget, gap=1e-4)


def test_moved_multipliers_prove_less_or_the_same_but_never_more(solved):
    game, solution = solved
    held, rng = solution.certificate, np.random.default_rng(0)
    objective = solution.objective * (1 + 1e-9)
    for _ in range(40):
        k = int(rng.integers(len(held.knots)))
        knot = held.knots[k]
        size = 10 ** rng.uniform(-6, 0)
        moved = replace(
            knot,
            budget=knot.budget * (1 + size * rng.uniform()),
            level=knot.level + size * rng.normal() * (abs(knot.level) + 1e-6),
            rows=knot.rows * (1 + size * rng.uniform(size=len(knot.rows))),
            centre=knot.centre * (1 + size * rng.normal(size=len(knot.centre))),
        )
        other = replace(held, knots=(*held.knots[:k], moved, *held.knots[k + 1 :]))
        assert not check_bound(game, solution.goal, replace(other, lower=objective), "intervals")


def test_a_tree_with_a_hole_is_refused(solved):
    game, solution = solved
    held = solution.certificate
    for tree in (
        held.tree[:-1],
        (*held.tree, held.tree[-1]),
        (Split(2.0), *held.tree, Leaf(((0, 0),))),
        (Decide(99), *held.tree, *held.tree),
        (),
    ):
        verdict = check_bound(game, solution.goal, LeaderCertificate(held.lower, held.knots, tuple(tree)))
        assert not verdict
        assert verdict.message


@pytest.mark.parametrize(
    "change",
    [
        {"budget": -1.0},
        {"budget": np.nan},
        {"objective": -1.0},
        {"level": np.inf},
        {"loss_cap": 1.0},
        {"clients": np.array([99]), "rows": np.array([1.0])},
        {"support": np.array([0, 0]), "centre": np.array([1.0, 0.0])},
    ],
    ids=str,
)
def test_knots_that_make_no_sense_are_refused(solved, change):
    game, solution = solved
    held = solution.certificate
    knots = tuple(replace(knot, **change) for knot in held.knots)
    assert not check_bound(game, solution.goal, replace(held, knots=knots))


def test_a_certificate_for_another_question_is_refused(solved):
    game, solution = solved
    held = solution.certificate
    assert (
        not check_bound(game, replace(solution.goal, budget=2 * solution.budget), held)
        or solution.shadow_price == 0
    )
    assert check_bound(game, replace(solution.goal, budget=0.5 * solution.budget), held)


def test_certificates_survive_a_file(solved, tmp_path):
    game, solution = solved
    np.savez(tmp_path / "held.npz", **solution.certificate.to_record())
    with np.load(tmp_path / "held.npz") as record:
        again = LeaderCertificate.from_record(record)
    assert again.tree == solution.certificate.tree
    assert check_bound(game, solution.goal, again)

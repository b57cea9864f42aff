"""Games on which a confident answer was once wrong; each must come out right, or say that it does not know."""

import json
from dataclasses import replace

import numpy as np
import pytest
from forging import read_unclaimed
from typer.testing import CliRunner

import stackfu as sf
from stackfu.cli.commands import app


def game_of(features, sizes, removed=(), **options):
    features = np.asarray(features, float)
    if features.ndim == 1:
        features = features[:, None]
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), sizes, removed, **options)


def outlier():
    rows = [[18.6, 13.3], [0.0044, 0.0159], [0.0022, -0.0183], [0.0033, 0.0166], [-0.0063, -0.007]]
    return game_of(rows, [1.14, 1.13, 1.18, 1.5, 1.01], (0,), costs=[0.0026, 0.0006, 0.00004, 0.00074])


# ---------------------------------------------------------------- bounds above a feasible value


def test_a_loss_far_above_the_distances_between_clients():
    game, x = outlier(), np.array([0.68, 0.54, 1.0, 0.0])
    assert game.payments_for(x) @ x <= 0.00176
    solution = game.solve(0.00176)
    assert solution.lower_bound <= game.server_loss(x)
    assert solution.server_loss <= game.server_loss(x) * (1 + 1e-6)


@pytest.mark.parametrize("count", [1, 4])
def test_the_sampling_term_beside_nearly_equal_clients(count):
    rows = np.array([[0.3, 0.4], [0.5, 0.5], [0.51, 0.5], [0.5, 0.52]])
    game = game_of(rows, np.full(4, count), (0,), costs=[1e-3] * 3)
    budget, x = 0.02 * game.full_participation_price, np.array([0.0048, 0.1444, 0.156])
    assert game.payments_for(x) @ x <= budget
    solution = game.solve(budget, finite_sample=True)
    # of one sample nothing is known but the largest variance that there is
    variances = np.ones(3) if count == 1 else 4 / 3 * (1 - np.sum(rows[1:] ** 2, axis=1))
    reached = game.server_loss(x) + 2 * (x @ variances / x.sum()) / (count * x.sum())
    assert solution.lower_bound <= reached * (1 + 1e-6)
    assert solution.objective <= reached * (1 + 1e-6)


@pytest.mark.parametrize("floor", [0.3, 0.6])
def test_floors_beside_an_outlier_are_not_called_out_of_reach(floor):
    game = outlier()
    x = np.ones(game.count)
    budget = float(game.payments_for(x) @ x) * 1.01
    assert game.solve(budget, min_total=floor).equilibrium.total >= floor * (1 - 1e-9)


# ---------------------------------------------------------------- equilibria that are none


def test_a_client_a_million_times_larger_is_judged_by_its_own_stakes():
    e = 1 / (1e7 + 1)
    eq = game_of([0.0, 1.0], [1e7, 1.0], costs=[16 * e**2, 0.5 * e]).equilibrium()
    assert eq.participation[0] == pytest.approx(0.5, abs=1e-6)
    assert eq.verify()


@pytest.mark.parametrize("far", [1e1, 1e3, 1e5, 1e6, 1e9, 1e12])
def test_an_outlier_changes_nothing_between_two_clients(far):
    game = game_of([0.0, 1.0, far], [1.0, 1.0, 1.0], costs=[0.3, 0.2, 30 * far**2])
    every = game.equilibria()
    assert every.uniqueness in (sf.Uniqueness.UNIQUE, sf.Uniqueness.UNKNOWN)
    assert [eq.participation[0] for eq in every] == [pytest.approx(0.88207, abs=1e-5)]
    assert every.uniqueness is sf.Uniqueness.UNIQUE


# ---------------------------------------------------------------- a face with different spends


def test_robust_payments_keep_the_budget_at_every_equilibrium():
    game = game_of(
        [-0.19, 0.33, -0.33, -0.61, 0.86],
        [0.74, 0.65, 0.78, 0.84, 0.73],
        (0,),
        costs=[1.84, 2.84, 0.815, 1.54],
    )
    solution = game.solve(0.1, robust=True)
    for eq in game.equilibria(solution.payments):
        assert eq.spend_range[1] <= 0.1 * (1 + 1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        *_, x = zip(
            range(400), game.dynamics(solution.payments, rng.uniform(0.01, 1, game.count)), strict=False
        )
        assert float(solution.payments @ x[1]) <= 0.1 * (1 + 1e-6)


def test_payments_at_cost_of_clients_all_alike_are_not_called_robust():
    """All clients are indifferent: full participation is another equilibrium, and spends more than the budget."""
    game = homogeneous()
    solution = game.solve(0.35, robust=True)
    assert solution.status is not sf.Status.CERTIFIED
    assert "not robust" in solution.message
    assert not replace(solution, status=sf.Status.CERTIFIED).verify()
    assert solution.verify()


def test_clients_all_alike_who_gain_by_more_data_are_not_paid_their_cost():
    """With a sampling constant no client is indifferent at its cost: that was called certified, and a client gained."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        sizes = rng.uniform(50, 500, 5)
        game = sf.StackelbergGame(
            sf.MeanEmbeddings.from_features(np.full((5, 2), 0.4)),
            sizes,
            (0,),
            costs=rng.lognormal(0, 1, 4),
            sampling_constant=float(sizes[1:].sum() * 10 ** rng.uniform(-2, 0.5)),
        )
        budget = 0.3 * game.full_participation_price
        solution = game.solve(budget)
        assert solution.verify(), solution.verify().message
        assert game.regret(solution.payments, solution.participation) <= 1e-9
        assert solution.spend == pytest.approx(budget)
        # no other profile within the budget leaves more data
        x = rng.uniform(size=(2000, 4)) ** rng.choice([0.2, 1.0, 5.0], size=(2000, 1))
        x[rng.random(x.shape) < 0.3] = 1.0
        total = x @ game.alpha
        bracket = game.costs - game.lam * game.alpha * game.sampling / total[:, None] ** 2
        possible = ((x == 1) | (bracket >= 0)).all(axis=1)
        affordable = possible & ((np.maximum(bracket, 0) * x).sum(axis=1) <= budget)
        assert affordable.any()
        assert total[affordable].max() <= solution.equilibrium.total + 1e-9


def test_a_face_whose_points_spend_differently_says_so():
    game = game_of([0.0, 0.0, 1.0], [1.0, 1.0, 1.0], costs=[0.3, 0.4, 0.3])
    payments = np.array([0.0, 0.1, 0.0])  # twins, equally reluctant, differently paid
    (eq,) = game.equilibria(payments)
    assert eq.uniqueness is sf.Uniqueness.CONTINUUM
    low, high = eq.spend_range
    assert high > low + 1e-3


# ---------------------------------------------------------------- what verify accepted


def homogeneous():
    return game_of(np.zeros((3, 1)), [1.0, 2.0, 3.0], costs=[0.1, 0.2, 0.3])


def test_no_bound_of_a_homogeneous_game_can_be_invented():
    solution = homogeneous().solve(0.5)
    assert solution.verify()
    assert not replace(solution, lower_bound=solution.lower_bound + 1.0).verify()


def test_robust_is_no_free_pass(tmp_path):
    solution = outlier().solve(0.00176)
    solution.save(tmp_path / "true.json")
    record = read_unclaimed(tmp_path / "true.json")
    for forge in (
        lambda r: r.update(lower_bound=r["objective"] * 1.5),
        lambda r: r.update(objective=r["objective"] * 0.5),
    ):
        forged = json.loads(json.dumps(record))
        text = json.dumps(forged).replace('"robust": false', '"robust": true')
        forged = json.loads(text)
        forge(forged)
        (tmp_path / "forged.json").write_text(json.dumps(forged))
        try:
            loaded = sf.load(tmp_path / "forged.json")
        except sf.StackfuError:
            continue
        assert not loaded.verify()


@pytest.mark.parametrize("field", ["regret", "residual"])
@pytest.mark.parametrize("value", [np.nan, -1.0, 1.0, np.inf])
def test_no_number_of_an_equilibrium_can_be_invented(field, value):
    eq = outlier().equilibrium()
    assert eq.verify()
    assert not replace(eq, **{field: value}).verify()


@pytest.mark.parametrize("word", [sf.Uniqueness.MULTIPLE, sf.Uniqueness.CONTINUUM])
def test_no_word_for_the_number_of_equilibria_can_be_invented(word):
    eq = outlier().equilibrium()
    assert eq.uniqueness is sf.Uniqueness.UNIQUE
    assert not replace(eq, uniqueness=word).verify()


def test_a_point_that_failed_cannot_be_called_certified():
    eq = outlier().equilibrium()
    elsewhere = replace(eq, participation=np.full(4, 0.5))
    assert not elsewhere.verify()


# ---------------------------------------------------------------- unique where clients are paid their cost


@pytest.mark.parametrize("method", ["path", "sweeps", "qp"])
def test_payments_that_equal_costs_leave_many_equilibria(method):
    game = game_of([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], np.ones(3), costs=np.ones(3))
    eq = game.equilibrium(np.ones(3), method=method)
    assert eq.uniqueness is not sf.Uniqueness.UNIQUE


# ---------------------------------------------------------------- words


def test_the_bound_of_the_objective_is_not_called_a_bound_of_the_loss(tmp_path):
    game = outlier()
    game.solve(0.00176, finite_sample=True).save(tmp_path / "solution.json")
    said = CliRunner().invoke(app, ["verify", str(tmp_path / "solution.json")])
    assert said.exit_code == 0, said.output
    words = " ".join(said.output.split())
    assert "server loss below" not in words
    assert "objective" in words

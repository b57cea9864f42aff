"""One compiled call says of a game what the steps one by one say of it, and its checkers refuse what is wrong."""

import ast
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu import catalog
from stackfu.followers import _at_once, at_once, solve
from stackfu.judging import _segment_kernels, _stake_kernels
from stackfu.results import Status, Uniqueness


def random_game(rng):
    """A game of features or inner products, payments for it, and caps or none."""
    count = int(rng.integers(2, 12))
    points = rng.normal(size=(count + 1, int(rng.integers(1, 6))))
    if rng.random() < 0.4:
        embeddings = sf.MeanEmbeddings.from_gram(np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=2)))
    else:
        embeddings = sf.MeanEmbeddings.from_features(points.astype(rng.choice([np.float32, np.float64])))
    game = sf.StackelbergGame(
        embeddings,
        rng.integers(1, 300, count + 1),
        removed=[0],
        cost_scale=float(10.0 ** rng.uniform(-1.0, 1.0)),
        sampling_constant=float(rng.choice([0.0, 0.0, 5.0])),
    )
    payments = game.costs * rng.uniform(0.0, 1.4, count) * (rng.random() < 0.8)
    caps = rng.uniform(0.05, 1.0, count) if rng.random() < 0.4 else None
    return game, payments, caps


@given(st.integers(0, 2**32 - 1))
def test_one_call_says_what_the_steps_say(seed):
    game, payments, caps = random_game(np.random.default_rng(seed))
    found = game.equilibrium(payments, caps=caps)
    checked = game.check_payments(payments)
    slow = solve._by_path(
        game, checked, None, 1e-9, 0.0, None if caps is None or caps.min() >= 1 else game.check_caps(caps)
    )
    assert (found.status, found.uniqueness) == (slow.status, slow.uniqueness)
    np.testing.assert_allclose(found.participation, slow.participation, rtol=1e-9, atol=1e-11)
    assert found.iterations == slow.iterations
    assert found.reason == slow.reason or found.uniqueness is Uniqueness.CONTINUUM
    assert found.verify().passed


def test_most_games_are_settled_at_once():
    settled = 0
    for seed in range(60):
        game, payments, caps = random_game(np.random.default_rng(seed))
        found = at_once.settle_at_once(game, payments[None, :], caps)
        settled += bool(found is not None and found.accepted[0])
    assert settled >= 55


def test_of_several_equilibria_the_largest_is_returned_and_all_are_counted():
    entry = catalog.three_equilibria()
    found = at_once.settle_at_once(entry.game, entry.game.check_payments(entry.payments)[None, :])
    assert found.accepted.tolist() == [True]
    assert found.columns[0, _at_once.EQUILIBRIA] == 3
    every = entry.game.equilibria(entry.payments)
    np.testing.assert_allclose(found.profiles[0], every[-1].participation, rtol=1e-10)
    assert entry.game.equilibrium(entry.payments).uniqueness is Uniqueness.MULTIPLE


@pytest.mark.parametrize("step", ["follow", "smallest_total"])
@pytest.mark.parametrize("seed", range(8))
def test_what_a_broken_solver_leaves_is_not_accepted(seed, step, monkeypatch):
    """The same source as plain Python, with a solver that returns something else than it found."""
    game, payments, caps = random_game(np.random.default_rng(seed))
    numbers = at_once._numbers_of(game)
    core = _at_once.settle_rows.py_func
    honest = core.__globals__[step]

    def broken(*args):
        answer = honest(*args)
        if step == "smallest_total":
            return 40.0 * answer  # the chain ends too early
        args[6][:, 0] *= 0.99  # the profile is not where t is zero
        return answer

    monkeypatch.setitem(core.__globals__, step, broken)
    profiles, columns = np.empty((1, game.count)), np.empty((1, 6))
    limits = np.ones((1, game.count)) if caps is None else caps[None, :].copy()
    core(payments[None, :].copy(), limits, 1e-9, 1e-9, *numbers, profiles, columns)
    best = game.equilibrium(payments, caps=caps)
    inside = 0.0 < best.participation[0] < limits[0, 0]
    if inside or step == "smallest_total":
        assert columns[0, 0] == 0.0


def test_the_checkers_call_nothing_of_the_solver():
    for module in (_segment_kernels, _stake_kernels):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom):
                assert "followers" not in (node.module or "")


def test_clients_alike_and_very_many_clients_are_left_to_others():
    alike = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.ones((3, 1))), [1, 1, 1], costs=[1.0, 1.0, 1.0]
    )
    assert at_once.settle_at_once(alike, np.zeros((1, 3))) is None
    rng = np.random.default_rng(0)
    count = at_once.LARGEST_AT_ONCE + 1
    many = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(count, 2))), np.ones(count), cost_scale=1.0
    )
    assert at_once.settle_at_once(many, np.zeros((1, count))) is None


def test_a_tolerance_below_rounding_is_not_called_reached():
    game, payments, _ = random_game(np.random.default_rng(1))
    found = at_once.settle_at_once(game, payments[None, :], None, 1e-9, 0.0)
    single = game.equilibrium(payments, tolerance=1e-18)
    assert not found.accepted[0] or found.columns[0, _at_once.RESIDUAL] == 0.0
    assert single.status in (Status.CERTIFIED, Status.FAILED)

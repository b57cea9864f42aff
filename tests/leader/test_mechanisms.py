"""Mechanisms by name: one registry for solve, command line and everybody else."""

import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf
from stackfu.leader import mechanisms


@pytest.fixture
def at_cost():
    def mechanism(game, budget, *, share=1.0):
        """Pay everybody a share of its cost, as far as the budget goes."""
        return game.costs * min(share, budget / game.costs.sum())

    sf.register_mechanism("at-cost", mechanism)
    yield mechanism
    mechanisms.forget("at-cost")


def test_own_mechanism_is_played_and_checked(at_cost):
    game, budget = random_game(1, 5)
    solution = game.solve(budget, method="at-cost", share=0.3)
    assert solution.method == "at-cost"
    np.testing.assert_array_equal(solution.payments, game.costs * min(0.3, budget / game.costs.sum()))
    assert solution.status is sf.Status.CONVERGED
    assert solution.options["share"] == 0.3
    assert solution.verify(), solution.verify().message
    assert "at-cost" in sf.mechanism_names()
    assert mechanisms.mechanism("at-cost").summary.startswith("Pay everybody")
    assert [s.method for s in game.frontier([0.1, 0.2], method="at-cost")] == ["at-cost"] * 2


def test_a_mechanism_that_overspends_is_told_so():
    sf.register_mechanism("lavish", lambda game, budget: 10.0 * game.costs)
    try:
        game, budget = random_game(1, 5)
        solution = game.solve(budget, method="lavish")
        assert solution.status is sf.Status.FAILED
        assert "more than the budget" in solution.message
    finally:
        mechanisms.forget("lavish")


@pytest.fixture
def known():
    """Registers mechanisms as long as a test takes."""
    names = []

    def register(name, mechanism):
        sf.register_mechanism(name, mechanism)
        names.append(name)

    yield register
    for name in names:
        mechanisms.forget(name)


def test_a_mechanism_is_certified_only_if_the_judges_agree(known):
    game, budget = random_game(1, 5)

    def invented(game, budget):
        found = game.solve(budget, method="uniform")
        return replace(found, status=sf.Status.CERTIFIED, lower_bound=found.objective, method="certified")

    known("invented", invented)
    solution = game.solve(budget, method="invented")
    assert solution.status is sf.Status.FAILED
    assert "judges refuse" in solution.message
    assert solution.lower_bound == -np.inf
    known("delegated", lambda game, budget: game.solve(budget))
    assert game.solve(budget, method="delegated").status is sf.Status.CERTIFIED
    # what was proved of linear payments is not proved of the offers made of them
    assert game.solve(budget, method="delegated", offers="capped").status is sf.Status.CONVERGED
    known("half", lambda game, budget: game.solve(budget / 2))
    assert game.solve(budget, method="half").status is not sf.Status.CERTIFIED
    known("rich", lambda game, budget: game.solve(1e3 * game.costs.sum(), method="uniform"))
    small = 1e-3 * game.solve(1e3 * game.costs.sum(), method="uniform").spend
    assert game.solve(small, method="rich").status is sf.Status.FAILED
    with pytest.raises(sf.InputError, match="without a proof"):
        mechanisms.Proposal(game.equilibrium(), status=sf.Status.CERTIFIED)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (lambda game, budget: random_game(2, 5)[0].solve(1.0, method="uniform"), "of another game"),
        (lambda game, budget: None, "returned no payments"),
        (lambda game, budget: [1.0], "payments: needs 5 numbers"),
        (lambda game: game.costs, "must be a function of a game and a budget"),
        (lambda game, budget, share: game.costs, "must be a function of a game and a budget"),
    ],
)
def test_what_is_no_answer_to_the_game_is_refused(known, mechanism, message):
    game, budget = random_game(1, 5)

    def register_and_solve():
        known("odd", mechanism)
        game.solve(budget, method="odd")

    with pytest.raises(sf.InputError, match=message):
        register_and_solve()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda g: g.equilibrium(method="qp", start=np.ones(g.count)),
            'start.* not an option of method "qp"',
        ),
        (lambda g: g.equilibrium(method="path", seed=3), 'seed.* not an option of method "path"'),
        (lambda g: g.equilibrium(method="path", callback=print), 'callback.* not an option of method "path"'),
        (
            lambda g: g.solve(1.0, method="haipo", min_total=0.5),
            'min_total: is not an option of method "haipo"',
        ),
        (lambda g: g.solve(1.0, method="certified", others="full"), "others: is not an option"),
        (lambda g: g.solve(1.0, method="uniform", gap=1e-3), "gap: is not an option"),
        (lambda g: g.solve(1.0, method="best"), "must be one of"),
        (lambda g: g.solve(1.0, method=3), "must be the name"),
        (lambda g: g.solve(method="haipo"), "needs a budget"),
        (lambda g: g.solve("0.05"), "must be a number or None"),
        (lambda g: g.frontier([1.0], method="haipo", robust=True), "robust: is not an option"),
        (lambda g: sf.register_mechanism("certified", print), "is taken"),
        (lambda g: sf.register_mechanism("two words", print), "must be a word"),
        (lambda g: sf.register_mechanism("nothing", None), "must be a function"),
    ],
)
def test_what_is_not_known_is_refused_by_name(call, message):
    game, _ = random_game(0, 4)
    with pytest.raises(sf.InputError, match=message):
        call(game)


def test_every_option_of_the_library_is_a_named_argument_of_solve():
    named = set(inspect.signature(sf.StackelbergGame.solve).parameters)
    documented = sf.StackelbergGame.solve.__doc__
    for name in ("certified", "haipo", "uniform", "grouped"):
        for option in mechanisms.mechanism(name).options:
            assert option in named
            assert f"\n        {option}\n" in inspect.cleandoc(documented).replace("\n", "\n        ")


def test_solutions_carry_and_save_what_was_asked_for(tmp_path):
    game, budget = random_game(2, 5)
    solution = game.solve(budget, min_total=0.1, payment_weight=0.2, gap=1e-4)
    assert solution.goal == sf.Objective(budget=budget, min_total=0.1, payment_weight=0.2)
    assert solution.limits == sf.Limits(gap=1e-4)
    assert solution.proves == "objective"
    solution.save(tmp_path / "s.json")
    back = sf.load(tmp_path / "s.json")
    assert (back.goal, back.limits, back.robust) == (solution.goal, solution.limits, solution.robust)
    assert back.verify(), back.verify().message


def test_the_command_line_knows_mechanisms_of_other_modules(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import stackfu as sf\n"
        "sf.register_mechanism('half', lambda game, budget: game.costs * min(0.5, budget / game.costs.sum()))\n"
    )
    game, _ = random_game(3, 4)
    game.save(tmp_path / "game.json")
    command = [sys.executable, "-m", "stackfu", "solve", "game.json", "-b", "0.5", "-m", "half", "--json"]
    import os

    env = {
        **os.environ,
        "STACKFU_MECHANISMS": "mine",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["method"] == "half"


def test_frontier_of_a_baseline_has_no_start_and_no_saturation():
    game, budget = random_game(4, 4)
    traced = game.frontier([0.5 * budget, budget], method="uniform")
    assert len(traced) == 2
    with pytest.raises(sf.InputError, match="only certified"):
        _ = traced.saturation_budget


def test_saturation_is_that_of_the_frontiers_own_objective():
    game, budget = random_game(5, 4)
    plain = game.frontier([budget]).saturation_budget
    thrifty = game.frontier([budget], payment_weight=0.05, gap=1e-4).saturation_budget
    assert thrifty <= plain
    unlimited = game.solve(None, payment_weight=0.05, gap=1e-4)
    assert thrifty <= unlimited.spend * (1 + 1e-9)

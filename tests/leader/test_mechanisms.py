"""Mechanisms by name: one registry for solve, command line and all other callers."""

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
from stackfu.model.losses import Target

WEIGHTLESS = sf.ServerLoss((Target("original"),), (0.0,))


@pytest.fixture
def at_cost():
    def mechanism(game, budget, *, share=1.0):
        """Pay all clients a share of their costs, as far as the budget goes."""
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
    assert mechanisms.mechanism("at-cost").summary.startswith("Pay all clients")
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
    with pytest.raises(sf.InputError, match="status = 'CERTIFIED': must be a Status"):
        mechanisms.Proposal(game.equilibrium(), status="CERTIFIED")
    with pytest.raises(sf.InputError, match="equilibrium = ndarray: must be an Equilibrium"):
        mechanisms.Proposal(np.ones(5))


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (lambda game, budget: random_game(2, 5)[0].solve(1.0, method="uniform"), "of another game"),
        (lambda game, budget: None, "returned no payments"),
        (lambda game, budget: [1.0], "payments: needs 5 numbers"),
        (lambda game: game.costs, "must be a function of a game and a budget"),
        (lambda game, budget, share: game.costs, "must be a function of a game and a budget"),
        (
            lambda game, budget: mechanisms.Proposal(game.replace(costs=2.0 * game.costs).equilibrium()),
            "returned an equilibrium of another game",
        ),
        (lambda game, budget, **options: game.costs, r"has the parameter \*\*options, .* keyword-only"),
        (lambda game, budget, share=0.5: game.costs, "has the parameter share=0.5, .* keyword-only"),
        (lambda game, budget, *, outside=None: game.costs, "cannot have an option outside"),
        (lambda game, budget, *, costs_between=None: game.costs, "cannot have an option costs_between"),
        (lambda game, budget, *, offers=None: game.costs, "cannot have an option offers"),
    ],
)
def test_what_is_no_answer_to_the_game_is_refused(known, mechanism, message):
    game, budget = random_game(1, 5)

    def register_and_solve():
        known("odd", mechanism)
        game.solve(budget, method="odd")

    with pytest.raises(sf.InputError, match=message):
        register_and_solve()


def test_a_proposal_for_an_equal_game_is_one_for_this_one(known):
    game, budget = random_game(1, 5)
    known("twin", lambda game, budget: mechanisms.Proposal(game.replace().equilibrium()))
    solution = game.solve(budget, method="twin")
    assert solution.equilibrium.game is game
    assert solution.verify(), solution.verify().message


def test_a_module_that_cannot_be_imported_is_named_every_time(monkeypatch):
    monkeypatch.setenv("STACKFU_MECHANISMS", "no_such_module")
    monkeypatch.setattr(mechanisms, "_looked_around", False)
    for _ in range(2):
        with pytest.raises(sf.InputError, match="STACKFU_MECHANISMS = no_such_module: cannot be imported"):
            sf.mechanism_names()


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
        (lambda g: g.equilibrium(method="path", progress=True), 'progress.* not an option of method "path"'),
        (lambda g: g.equilibrium(method="qp", progress=True), 'progress.* not an option of method "qp"'),
        (lambda g: g.equilibrium(method="sweeps", progress="no"), "progress = 'no': must be True or False"),
        (
            lambda g: g.equilibrium(method="sweeps", max_iterations="a"),
            "max_iterations = 'a': must be a whole",
        ),
        (lambda g: g.equilibrium(method="sweeps", max_iterations=-3), "max_iterations = -3: must be a whole"),
        (lambda g: g.equilibrium(method="sweeps", seed=1.5), "seed = 1.5: must be a whole"),
        (lambda g: g.equilibrium(tolerance="small"), "tolerance = 'small': must be a number"),
        (lambda g: g.dynamics(kind="sequential", damping=0.1), 'damping = 0.1: is for kind "damped"'),
        (lambda g: g.dynamics(kind="damped", damping="x"), "damping = 'x': must be a number"),
        (lambda g: g.solve(1.0, robust="no"), "robust = 'no': must be True or False"),
        (lambda g: g.solve(1.0, finite_sample="no"), "finite_sample = 'no': must be True or False"),
        (lambda g: g.solve(1.0, progress="no"), "progress = 'no': must be True or False"),
        (lambda g: g.solve(1.0, max_nodes=2.7), "max_nodes = 2.7: must be a whole number"),
        (
            lambda g: g.solve(1.0, gap=np.inf),
            "gap = inf: must be less than 1: a gap of 1 is closed by a bound of 0",
        ),
        (lambda g: g.solve(1.0, offers="capped", min_total=0.1, gap=1), "gap = 1.0: must be less than 1"),
        (lambda g: g.solve(1.0, "haipo", max_iterations=-2), "max_iterations = -2: must be a whole number"),
        (lambda g: g.solve(1.0, "haipo", max_iterations=2.7), "max_iterations = 2.7: must be a whole number"),
        (lambda g: g.solve(1.0, "haipo", tolerance=-2), "tolerance = -2.0: must not be negative or NaN"),
        (lambda g: g.solve(1.0, "uniform", tolerance=np.nan), "tolerance = nan: must not be negative or NaN"),
        (lambda g: g.solve(1.0, "grouped", groups=[0, 0, 1, 1], gap=-1), "gap = -1.0: must not be negative"),
        (lambda g: g.frontier(["0.05"]), r"budgets = \['0.05'\]: must be a non-empty list of numbers"),
        (lambda g: g.frontier([1.0], bogus=1), "bogus: is not an option"),
        (
            lambda g: g.cheapest(0.1, budget=1.0),
            "budget = 1.0: is not an option of cheapest; those are min_total",
        ),
        (lambda g: g.cheapest(0.1, payment_weight=1.0), "payment_weight = 1.0: is not an option of cheapest"),
        (lambda g: g.cheapest(0.1, method="haipo"), "method = 'haipo': is not an option of cheapest"),
        (lambda g: g.cheapest(None), "max_loss = None: must be a number"),
        (
            lambda g: g.manipulation(g.solve(0.1, "uniform"), bogus=1),
            "bogus = 1: is not an option of manipulation; those are kinds, clients, factors",
        ),
        (lambda g: g.solve(1.0, loss_weight=0.0), "loss_weight: and payment_weight are both 0"),
        (lambda g: g.solve(1.0, offers="contract"), "offers = contract: contracts need a sampling term"),
        (lambda g: g.solve(1.0, offers="capped"), "offers = capped: capped offers need a sampling term"),
        (
            lambda g: g.solve(1.0, "posted", offers="capped", costs_between=(g.costs, g.costs)),
            'costs_between: only method "certified" makes plans .* not "posted"',
        ),
        (
            lambda g: g.replace(lambda_v=0.0, lambda_s=0.0).solve(1.0),
            "lambda_v: and lambda_s are both 0",
        ),
        (
            lambda g: g.replace(server_loss=WEIGHTLESS, lambda_v=1.0, lambda_s=1.0).solve(1.0),
            "server_loss = .*: has no weight and neither has the spend",
        ),
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
    own = [name for name in sf.mechanism_names() if mechanisms.mechanism(name).is_own]
    assert {"certified", "haipo", "uniform", "grouped", "posted"} <= set(own)
    for name in own:
        assert f'"{name}"' in documented
        for option in mechanisms.mechanism(name).options:
            assert option in named
            assert f"\n        {option}\n" in inspect.cleandoc(documented).replace("\n", "\n        ")


def options_of(method):
    return {
        name: (parameter.annotation, parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def test_frontier_and_cheapest_have_the_options_of_solve_by_name():
    asked = options_of(sf.StackelbergGame.solve)
    assert options_of(sf.StackelbergGame.frontier) == asked
    certified = mechanisms.mechanism("certified").options | {
        "offers",
        "outside",
        "costs_between",
        "warn_below",
    }
    given = {"payment_weight", "loss_weight", "max_loss"}
    assert options_of(sf.StackelbergGame.cheapest) == {
        name: asked[name] for name in asked if name in certified - given
    }


def test_every_named_option_reaches_the_mechanism():
    """None is lost on the way: with a mechanism that has none, each is refused by its own name."""
    game, _ = random_game(0, 4)
    sf.register_mechanism("bare", lambda game, budget: game.no_payments)
    try:
        for name in options_of(sf.StackelbergGame.solve).keys() - {"offers"}:
            value = (
                -1 if name == "warn_below" else 1
            )  # any number of samples is understood, whatever the mechanism
            for call in (
                lambda **k: game.solve(1.0, "bare", **k),
                lambda **k: game.frontier([1.0], "bare", **k),
            ):
                with pytest.raises(sf.InputError, match=name):
                    call(**{name: value})
    finally:
        mechanisms.forget("bare")


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
    assert done.returncode == 1, done.stderr
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

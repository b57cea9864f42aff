from __future__ import annotations

import pytest

import stackfu as sf
from stackfu.errors import InputError
from stackfu.leader import mechanisms
from stackfu_integration.flower import Terms
from stackfu_integration.lab.mechanisms import MECHANISMS, known_options, mechanism
from stackfu_integration.lab.payments import build_game, penultimate_features, plan_payments


@pytest.fixture
def at_cost():
    """A mechanism of one's own, known as long as a test takes."""

    def pay(game, budget, *, time_limit=1.0):
        return game.costs * min(1.0, budget / game.costs.sum())

    sf.register_mechanism("at-cost", pay)
    yield "at-cost"
    mechanisms.forget("at-cost")


def test_every_mechanism_of_the_lab_is_one_that_stackfu_has_with_its_options():
    for known in MECHANISMS.values():
        if known.method is not None:
            assert known.options.keys() - {"offers"} <= known_options(known.method)


def test_a_mechanism_of_ones_own_is_known_by_its_name(at_cost, federation, trained):
    game = build_game(penultimate_features(federation, trained.final), (0, 1))
    plan = plan_payments(game, at_cost, 0.3)
    assert plan.mechanism == mechanism(at_cost).label == at_cost
    assert 0 < plan.spend <= 0.3 * (1 + 1e-9)
    assert known_options(at_cost) == {"time_limit"}
    assert Terms(method=at_cost).method == at_cost


def test_names_that_nobody_registered_are_refused(at_cost):
    with pytest.raises(InputError, match=r"mechanism = bribery.*full, uniform, haipo.*at-cost"):
        mechanism("bribery")
    with pytest.raises(InputError, match="method"):
        Terms(method="bribery")

"""A seed makes the same game every time, and a row holds incumbent and bound over time."""

import doctest

import numpy as np
import pytest

from stackfu_bench import regimes
from stackfu_bench.regimes import __main__ as runner


@pytest.mark.parametrize("seed", range(8))
def test_a_seed_makes_the_same_game_and_the_same_request_every_time(seed):
    regime = regimes.draw(seed, 20)
    game, arguments = regime.build()
    again, same = regime.build()
    assert regime == regimes.draw(seed, 20)
    assert game == again
    assert {k: v for k, v in arguments.items() if v is not None} == {
        k: v for k, v in same.items() if v is not None
    }
    assert game.count == 20


def test_the_regimes_span_what_they_promise():
    drawn = [regimes.draw(seed, 100) for seed in range(2000)]
    assert {r.embedding for r in drawn} == set(regimes.EMBEDDINGS)
    assert {r.width for r in drawn} == set(regimes.WIDTHS)
    assert {r.option for r in drawn} == set(regimes.OPTIONS)
    assert {r.sizes for r in drawn} == set(regimes.SIZES)
    assert {r.gram for r in drawn} == {False, True}
    for name, (low, high) in {
        "cost": regimes.COSTS,
        "share": regimes.SHARES,
        "removed": regimes.REMOVED,
        "spread": regimes.SPREADS,
    }.items():
        values = np.array([getattr(r, name) for r in drawn])
        assert low <= values.min() <= 1.1 * low + 0.01
        assert 0.9 * high <= values.max() <= high


def test_few_or_nearly_all_data_take_part_unpaid_by_cost():
    def total(cost):
        game, _ = regimes.Regime(3, 200, cost=cost).build()
        return game.equilibrium().total

    assert total(50.0) < 0.1
    assert total(0.3) > 0.6


@pytest.mark.parametrize("option", regimes.OPTIONS)
def test_every_option_can_be_asked_for(option):
    game, arguments = regimes.Regime(1, 8, width=4, option=option, share=0.3).build()
    found = game.solve(**arguments, gap=0.05, progress=False)
    assert found.verify()


def test_a_row_keeps_incumbent_and_bound_over_time():
    row = runner.solve_one(0, 12, 1e-2, 20.0)
    assert row["status"] == "CERTIFIED"
    assert row["objective"] - row["lower"] <= 1.01e-2
    bounds = [record[1] for record in row["history"]]
    assert bounds == sorted(bounds)
    incumbents = [record[2] for record in row["history"]]
    assert incumbents == sorted(incumbents, reverse=True)


def test_examples():
    for module in (regimes, runner):
        assert doctest.testmod(module).failed == 0

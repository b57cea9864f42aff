"""Who may reject its contract: enumeration of all sets against best responses, and the premium that leaves acceptance only."""

import numpy as np
import pytest
from plans import random_plan, utility

import stackfu as sf
from stackfu.leader.acceptance import acceptance
from stackfu.leader.contract import worst_equilibrium

#: Plans whose contracts have another equilibrium, and some that have none.
SEVERAL, ALONE = (4, 19, 21), (0, 1, 5, 11)


@pytest.mark.parametrize("seed", SEVERAL + ALONE)
def test_all_sets_find_what_best_responses_find(seed):
    game, x = random_plan(seed, most=5)
    found = acceptance(game, x)
    assert found.complete
    other, loss = worst_equilibrium(game, x)
    if seed in ALONE:
        assert other is None
        assert not found.at()
        assert found.premium == 0.0
        return
    assert found.at()[0].server_loss >= loss * (1 - 1e-9)
    assert any(np.abs(r.participation - other).max() < 1e-6 for r in found.at())
    assert 0.0 < found.premium < 1.0


@pytest.mark.parametrize("seed", SEVERAL)
def test_a_premium_above_the_least_one_leaves_acceptance_only(seed):
    game, x = random_plan(seed, most=5)
    found = acceptance(game, x)
    assert worst_equilibrium(game, x, premium=min(1.0, found.premium + 1e-6))[0] is None
    below = 0.999 * found.premium
    last = max(found.rejections, key=lambda r: r.most)
    transfers = found.transfers(below)
    who = [int(np.flatnonzero(game.remaining == k)[0]) for k in last.clients]
    for k in who:  # from the definition: each of them would rather go on rejecting
        accepting = np.array(last.participation)
        accepting[k] = x[k]
        assert utility(game, transfers, accepting)[k] < utility(game, 0.0 * transfers, last.participation)[k]


def test_every_rejection_is_an_equilibrium_by_the_definition():
    for seed in SEVERAL:
        game, x = random_plan(seed, most=5)
        found = acceptance(game, x)
        for other in found.at():
            paid = np.where(other.participation >= x * (1 - 1e-9), found.least, 0.0)
            for k in np.flatnonzero(x):
                here = utility(game, paid, other.participation)[k]
                trials = []
                for share in np.linspace(0.0, 1.0, 201):
                    y = np.array(other.participation)
                    y[k] = share * x[k]
                    full = np.where(np.arange(game.count) == k, found.least * (share == 1.0), paid)
                    trials.append(utility(game, full, y)[k])
                assert max(trials) <= here + 1e-8 * (game.costs[k] + abs(here))


def test_too_many_contracts_and_premiums_out_of_range_are_refused():
    game, x = random_plan(0, most=3)
    with pytest.raises(sf.InputError, match="premium"):
        acceptance(game, x).transfers(1.5)
    rng = np.random.default_rng(0)
    large = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rng.normal(size=(12, 2))), np.ones(12))
    with pytest.raises(sf.InputError, match="at most 10 contracts"):
        acceptance(large, np.ones(12))


def test_contracts_are_found_where_capped_offers_cost_too_much():
    game, _ = random_plan(3, sampling=0.05)
    full = game.profile(np.ones(game.count))
    least = sf.model.offers.contract_offers(game, full).most
    dear = sf.model.offers.plan_price(game, full)
    assert least < dear
    budget = 0.5 * (least + dear)
    with pytest.raises(sf.InfeasibleError):
        game.solve(budget, offers="capped", min_total=1.0, progress=False)
    sol = game.solve(budget, offers="contract", min_total=1.0, progress=False, time_limit=5)
    assert sol.spend <= budget
    assert sol.verify(), sol.verify().message

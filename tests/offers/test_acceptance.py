"""Who may reject its contract: enumeration of all sets against best responses, and the premium that leaves acceptance only."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from plans import as_contract, capped_equilibria, random_plan, utility

import stackfu as sf
from stackfu.judging.rejections import other_outcome
from stackfu.leader.acceptance import acceptance
from stackfu.leader.contract import worst_equilibrium

#: Plans with and without another equilibrium of their contracts.
SEVERAL, ALONE = (4, 19, 21), (0, 1, 5, 11)
#: Plans with another equilibrium where some transfers are raised.
RAISED = (23, 106, 190, 233, 242)


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
            paid = np.where(other.participation >= x * (1 - 1e-9), found.posted, 0.0)
            for k in np.flatnonzero(x):
                here = utility(game, paid, other.participation)[k]
                trials = []
                for share in np.linspace(0.0, 1.0, 201):
                    y = np.array(other.participation)
                    y[k] = share * x[k]
                    full = np.where(np.arange(game.count) == k, found.posted * (share == 1.0), paid)
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
    sol = game.solve(budget, offers="contract", min_total=1.0, max_nodes=5, progress=False)
    assert sol.spend <= budget
    assert sol.verify(), sol.verify().message


def outcomes(game, plan, transfers):
    """Every equilibrium of contracts but the plan: all sets that might reject, patterns solved by Newton steps, the definition."""
    asked, found = np.flatnonzero(plan), []
    for size in range(1, len(asked) + 1):
        for who in combinations(asked, size):
            rejects = np.isin(np.arange(game.count), who)
            for x in capped_equilibria(game, np.where(rejects, 0.0, 2.0 * game.costs), plan):
                if np.all(x[rejects] < plan[rejects] * (1 - 1e-6)) and stands(game, plan, transfers, x):
                    found.append(x)
    return found


def stands(game, plan, transfers, x):
    accepts = x >= plan * (1 - 1e-6)
    paid = np.where(accepts, transfers, 0.0)
    here = utility(game, paid, x)
    for k in np.flatnonzero(plan):
        for share in [1.0] if not accepts[k] else np.linspace(0.0, 1.0, 401):
            y = np.array(x)
            y[k] = share * plan[k]
            if not y.any():
                continue
            payout = np.where(np.arange(game.count) == k, transfers * (not accepts[k]), paid)
            margin = 1e-8 * game.costs[k] if not accepts[k] else -1e-12 * game.costs[k]
            if share * plan[k] != x[k] and utility(game, payout, y)[k] + margin > here[k]:
                return False
    return True


@pytest.mark.parametrize("seed", [*RAISED, 0, 1, 2, 3])
def test_what_is_posted_beyond_the_least_transfers_counts(seed):
    rng = np.random.default_rng(seed)
    game, x = random_plan(int(rng.integers(10_000)), most=4)
    offers = as_contract(game, x)
    more = rng.choice([0.0, 0.0, 0.1, 10.0], size=game.count) * game.costs * (x > 0)
    transfers = offers.prices * offers.caps + more
    found = acceptance(game, x, transfers)
    other, complete = other_outcome(game, x, transfers)
    assert found.complete
    assert complete
    expected = outcomes(game, x, transfers)
    assert len(found.at()) == len(expected)
    for y in expected:
        assert any(np.abs(r.participation - y).max() < 1e-5 for r in found.at())
    assert (other is not None) == bool(expected)
    met, _ = worst_equilibrium(game, x, transfers)
    assert met is None or any(np.abs(met - y).max() < 1e-5 for y in expected)


#: Keeping client 2, who has much outside, is what lets the other two reject together.
POINTS = [[-0.1424764310974326], [0.3472633831362555], [0.16210480219092607]]
SIZES = [0.2615872865483076, 0.3902160609162543, 0.9541273124583487]
COSTS = np.array([7.770589287014137, 0.48280128249943816, 4.960005864022881])
IDEAL = [0.14306275942802726, 0.18927550164246243, 0.6676617389295102]


@pytest.fixture(scope="module")
def kept():
    loss = sf.ServerLoss.to_mixtures([IDEAL], [1.0])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(POINTS), SIZES, costs=COSTS, server_loss=loss)
    return game.solve(
        float(3 * COSTS.sum()),
        offers="contract",
        outside=[-np.inf, -np.inf, float(COSTS[2])],
        min_total=0.721064507439677,
        payment_weight=1e-4,
        gap=0.5,
        max_nodes=5,
        progress=False,
    )


def test_keeping_somebody_can_let_others_reject(kept):
    game, x, paid = kept.game, np.array([0.0, 0.0, 1.0]), kept.payouts
    assert stands(game, kept.caps, paid, x)  # by the definition
    assert not acceptance(game, kept.caps).at()  # at the least transfers nobody could
    assert np.abs(acceptance(game, kept.caps, paid).at()[0].participation - x).max() < 1e-9
    assert "one of 2 equilibria" in kept.message
    assert kept.equilibrium.uniqueness is sf.Uniqueness.UNKNOWN
    assert kept.verify(), kept.verify().message


def test_acceptance_said_to_be_the_only_equilibrium_is_contested_where_it_is_not(kept):
    word = replace(kept, equilibrium=replace(kept.equilibrium, uniqueness=sf.Uniqueness.UNIQUE))
    only = (
        "everybody accepting is the only equilibrium of the contracts: every set that might reject was tried"
    )
    for claim in (word, replace(kept, message=only)):
        assert "there is one in which 0, 1 rejects" in claim.verify().message
        assert not claim.verify()


def test_acceptance_that_is_the_only_equilibrium_is_said_to_be_and_found_again():
    points = sf.MeanEmbeddings.from_features([[0.0], [1.0], [-1.0]])
    game = sf.StackelbergGame(points, [1, 1, 1], costs=[0.2, 0.4, 0.4], sampling_constant=0.1)
    sol = game.solve(0.2, offers="contract", gap=0.1, max_nodes=5, progress=False)
    assert sol.message.startswith("everybody accepting is the only equilibrium")
    assert sol.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert sol.verify(), sol.verify().message


def test_the_worst_loss_that_is_stated_counts_what_was_asked_for():
    points = [[0.440114, -0.462428], [0.509126, 0.083394], [-0.454141, 0.306561], [0.768681, 0.558284]]
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        [4.429617, 1.134342, 3.918622, 1.702622],
        removed=[0],
        costs=[1.74004, 1.128776, 0.669453],
    )
    sol = game.solve(0.849925, offers="contract", finite_sample=True, gap=0.1, max_nodes=5, progress=False)
    worst = acceptance(game, sol.caps, sol.payouts, finite_sample=True).at()[0]
    counted = game.loss_of(game.profile(worst.participation), True)
    assert counted > 1.01 * game.loss_of(game.profile(worst.participation), False)
    assert worst.server_loss == counted
    assert f"the loss is {counted:.6g};" in sol.message
    met, loss = worst_equilibrium(game, sol.caps, sol.payouts, finite_sample=True)
    assert loss == pytest.approx(game.loss_of(game.profile(met), True))

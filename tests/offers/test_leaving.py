"""Departures, retention, manipulation and several requests."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import as_capped, as_contract, random_plan, utility

import stackfu as sf
from stackfu import testing
from stackfu.demo import digits_game
from stackfu.followers.below_caps import settle
from stackfu.leader.misreports import manipulation
from stackfu.leader.truthful import posted_offers
from stackfu.requests import without

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.sampled_from(["sequential", "simultaneous"]))
def test_a_cascade_ends_where_nobody_gains_by_leaving(seed, order):
    game, x = random_plan(seed, sampling=0.02)
    offers = as_capped(game, x)
    rng = np.random.default_rng(seed)
    bare = utility(game, offers.payouts(x), x)
    outside = bare + rng.normal(size=game.count) * 0.3 * (game.costs + np.abs(bare))
    try:
        found = game.cascade(offers.prices, offers.caps, outside=outside, order=order)
    except sf.ConvergenceError:
        return
    assert len(set(found.departed)) == len(found.departed)
    assert set(found.departed) | set(found.stayed) == {int(k) for k in game.remaining} or not found.stayed
    for here, then in pairwise(found):
        assert set(then.clients) == set(here.clients) - set(here.leaving)
    if order == "sequential":
        assert all(len(r.leaving) <= 1 for r in found if np.isfinite(r.server_loss))
    last = found[-1]
    if found.stayed:
        places = [int(np.flatnonzero(game.remaining == k)[0]) for k in last.clients]
        slack = 1e-6 * (game.costs + np.abs(outside))[places]
        assert not last.leaving
        assert (last.utilities >= outside[places] - slack).all()


def test_costs_are_anchored_when_the_federation_shrinks():
    game = digits_game()
    one = int(game.remaining[0])
    outside = np.full(7, -np.inf)
    outside[0] = 10.0
    found = game.cascade(0.8 * game.costs, outside=outside)
    assert found.departed == found.left == (one,)
    assert len(found) == 2
    smaller = game.replace(removed=(*game.removed, one), costs=game.costs[1:])
    assert found[1].participation == pytest.approx(smaller.equilibrium(0.8 * game.costs[1:]).participation)
    assert found.to_pandas()["departed_in_round"].notna().sum() == 1


def test_a_contract_is_paid_whole_or_not_at_all_in_a_cascade():
    """By hand: three clients at 0, 3 and -3 with a third of the data each, C = 1/9, no sampling term.

    All accept: the mixture is 0, so the two outer ones lose 9/9 to drift and have 0.1 - 1 - 1 = -1.9; by the unit they would
    hold back. When the third has left, the second rejects: with y of its share 1/2 it has -2 y - (1/4) / R^2, R = 1/2 + y, best
    at R^3 = 1/4, more than the 0.1 - 1 - 1/4 of accepting, and it is paid nothing for what it brings.
    """
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features([[0.0], [3.0], [-3.0]]),
        [1, 1, 1],
        costs=[0.2, 1.0, 1.0],
        loss_constant=1 / 9,
    )
    offers = sf.Offers("contract", np.array([0.3, 0.1, 0.1]), np.ones(3), np.array([0.0, 0.0, 0.05]))
    found = game.cascade(offers=offers, outside=[-10.0, -10.0, -1.8])
    assert found.departed == (2,)
    assert found[0].participation == pytest.approx([1, 1, 1])
    assert found[0].utilities == pytest.approx([0.3 - 0.2, 0.1 - 1 - 1, 0.1 - 1 - 1 + 0.05])
    used = 0.25 ** (1 / 3)
    assert found[1].participation == pytest.approx([1, 2 * (used - 0.5)])
    drift = np.array([(used - 0.5) / used, 0.5 / used]) ** 2
    assert found[1].utilities == pytest.approx([0.3 - 0.2 - drift[0], -2 * (used - 0.5) - drift[1]])
    assert repr(found) == "Cascade(sequential: 1 of 3 clients departs (2), 2 stay)"

    by_the_unit = game.cascade(offers.prices, offers.caps, retainers=offers.retainers, outside=-np.inf)
    assert by_the_unit[0].participation[1] < 0.9
    with pytest.raises(sf.InputError, match="caps: are part of the offers"):
        game.cascade(caps=np.ones(3), offers=offers, outside=0.0)


def test_contracts_that_are_accepted_lead_to_no_cascade():
    game = digits_game(sampling_constant=30.0)
    plan = game.solve(0.06, offers="contract", gap=0.1, max_nodes=5, progress=False)
    bare = utility_of(game, plan)
    assert game.cascade(offers=plan.offers, outside=bare - 1e-6).stable
    found = game.cascade(offers=plan.offers, outside=np.where(np.arange(7) == 3, bare + 1e-3, -np.inf))
    assert found.departed == (int(game.remaining[3]),)


def test_a_cascade_says_who_departs_and_how_many_stay():
    game = digits_game()
    nobody = game.cascade(outside=-np.inf)
    assert repr(nobody) == "Cascade(sequential: nobody departs, 7 stay)"
    outside = np.full(7, -np.inf)
    outside[[0, 1]] = 10.0
    two = game.cascade(outside=outside)
    first, second = map(str, two.departed)
    assert repr(two) == f"Cascade(sequential: 2 of 7 clients depart ({first}, {second}), 5 stay)"
    assert two.summary()["departed"] == [first, second]
    assert len(two.summary()["stayed"]) == 5
    everybody = game.cascade(outside=10.0, order="simultaneous")
    assert repr(everybody).endswith("7 of 7 clients depart (3, 4, 5, 6, 7, 8, 9), 0 stay)")


def test_retention_stops_the_cascade():
    game = digits_game(sampling_constant=30.0)
    plan = game.solve(0.1, offers="capped", gap=1e-2, progress=False)
    bare = utility_of(game, plan)
    outside = bare + 0.02 * game.costs
    assert not game.cascade(plan.payments, plan.caps, outside=outside).stable
    kept = game.solve(None, offers="capped", outside=outside, payment_weight=1.0, gap=1e-2)
    assert kept.status is sf.Status.CERTIFIED
    assert (
        kept.nodes < 500
    )  # regions of clients who can leave were never closed while their stakes were only bounded below
    after = game.cascade(kept.payments, kept.caps, retainers=kept.offers.retainers, outside=outside)
    assert after.stable
    assert len(after.stayed) == 7


def utility_of(game, sol):
    profile = sol.equilibrium.profile
    return (
        sol.payouts - game.costs * profile.x - game.lam * (profile.to_clients + game.sampling / profile.total)
    )


def test_bad_departures_are_refused():
    game = digits_game()
    with pytest.raises(sf.InputError, match="caps"):
        game.cascade(caps=[0.5] * 6 + [1.5], outside=0.0)
    with pytest.raises(sf.InputError, match=r"retainers\[client 4\] = nan"):
        game.cascade(outside=0.0, retainers=[0, np.nan, 0, 0, 0, 0, 0])
    with pytest.raises(sf.InputError, match="order"):
        game.cascade(outside=-1.0, order="random")
    with pytest.raises(sf.InputError, match="outside"):
        game.cascade(outside=[0.0])


# -------------------------------------------------------------------- manipulation


@given(SEEDS, st.sampled_from([0.3, 0.9, 2.0, 10.0]))
def test_posted_prices_do_not_depend_on_ones_own_report(seed, factor):
    game, _ = random_plan(seed, sampling=0.05)
    budget = 0.3 * float(game.costs.sum())
    honest = posted_offers(game, budget)
    assert honest.most <= budget * (1 + 1e-9)
    for k in range(game.count):
        costs = np.array(game.costs)
        costs[k] *= factor
        other = posted_offers(game.replace(costs=costs), budget)
        assert other.prices[k] == pytest.approx(honest.prices[k], rel=1e-12)
        assert other.caps[k] == pytest.approx(honest.caps[k], rel=1e-12)


def test_who_reports_the_largest_cost_may_gain_through_what_the_others_are_offered():
    """Not to depend on one's own report is not enough: the others' offers do, and they change the mixture."""
    game, _ = random_plan(5, sampling=0.05)
    budget = 0.3 * float(game.costs.sum())

    def mechanism(reported):
        return posted_offers(reported, budget)

    found = manipulation(game, mechanism, "posted", kinds=("cost",), factors=(0.5, 2.0))
    assert found.worst > 0.1
    largest = int(np.argmax(game.kappa))
    for misreport in found.misreports:
        if misreport.gain > 0 and misreport.report.startswith("0.5"):
            assert misreport.client == int(game.remaining[largest])


@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0.3, 1.0, 5.0]))
def test_with_a_public_cost_no_report_of_costs_gains_anything(seed, guess):
    game, _ = random_plan(seed, sampling=0.05)
    budget = 0.3 * float(game.costs.sum())
    public = guess * float(game.costs.sum())
    try:
        posted = game.solve(budget, "posted", public_cost=public)
    except (sf.NoEquilibriumError, sf.ConvergenceError):
        return
    assert posted.offers.most <= budget * (1 + 1e-9)
    assert posted.verify(), posted.verify().message
    assert posted.manipulation(kinds=("cost",), factors=(0.3, 3.0)).worst == 0.0


@pytest.mark.parametrize("public", [0.0, -1.0, np.nan, np.inf, "much", [1.0]])
def test_a_public_cost_is_a_positive_number(public):
    with pytest.raises(sf.InputError, match="public_cost = "):
        digits_game(sampling_constant=30.0).solve(0.1, "posted", public_cost=public)


def test_mechanisms_side_by_side():
    """Posted prices do not listen to costs and pay for that in loss; the optimum with known costs does."""
    game, _ = random_plan(3, sampling=0.05)
    budget = 0.3 * float(game.costs.sum())
    solutions = game.solve(budget, offers="capped", gap=1e-2), game.solve(budget, "posted")
    table = game.manipulations(*solutions, kinds=("cost",), clients=[int(game.remaining[0])], factors=(2.0,))
    certified, posted = table.summary()
    assert posted["cost: largest gain"] == 0.0
    assert certified["server loss"] <= posted["server loss"] * 1.01  # what truthfulness costs
    assert list(table.to_pandas().index) == [certified["mechanism"], posted["mechanism"]]
    assert "posted" in str(table)
    assert "posted" in table._repr_html_()
    with pytest.raises(sf.InputError, match="another game"):
        game.replace(lambda_q=2.0).manipulations(*solutions)
    with pytest.raises(sf.InputError, match="at least one"):
        game.manipulations()


def test_overstating_ones_cost_pays_except_under_posted_prices():
    game = digits_game(sampling_constant=30.0)
    budget = 0.1 * game.full_participation_price
    posted = game.solve(budget, "posted")
    assert posted.verify(), posted.verify().message
    found = posted.manipulation(kinds=("cost",))
    assert found.worst <= 1e-9
    assert len(found.misreports) == 7
    plan = game.solve(budget, offers="capped", gap=1e-2, progress=False)
    some = [int(k) for k in game.remaining[:2]]
    lies = plan.manipulation(kinds=("cost",), clients=some, factors=(2.0, 3.0))
    assert lies.worst > 0.05
    assert plan.objective < posted.objective  # what truthfulness costs
    assert set(lies.to_pandas()["kind"]) == {"cost"}
    assert lies.gains("cost").shape == (7,)


def test_who_has_a_contract_brings_all_or_nothing_when_it_lies_too():
    """Under contracts a client that brings a part is paid nothing, so it accepts; by the unit it would have held back."""
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features([[0.0], [1.0], [-1.0]]),
        [1, 1, 1],
        costs=[0.2, 0.4, 0.4],
        sampling_constant=0.1,
    )
    offers = as_contract(game, [1.0, 1.0, 1.0])
    assert settle(game, offers.prices, offers.caps)[0] < 0.9

    def mechanism(reported):
        """Contracts for everything, at the reported costs."""
        return as_contract(reported, [1.0, 1.0, 1.0])

    found = manipulation(game, mechanism, "contracts", kinds=("cost",), factors=(3.0,))
    for misreport in found.misreports:
        k = misreport.client
        costs = np.where(np.arange(3) == k, 3.0, 1.0) * game.costs
        lied = as_contract(game.replace(costs=costs), [1.0, 1.0, 1.0])
        truth = utility(game, offers.payouts(np.ones(3)), np.ones(3))[k]
        gain = utility(game, lied.payouts(np.ones(3)), np.ones(3))[k] - truth
        assert misreport.gain == pytest.approx(max(gain, 0.0), abs=1e-9)
        assert lied.prices[k] >= offers.prices[k]


def test_sizes_and_embeddings_can_be_misreported_too():
    game = digits_game(sampling_constant=30.0)
    posted = game.solve(0.05, "posted")
    found = posted.manipulation(clients=[int(game.remaining[0])], factors=(3.0,))
    assert {m.kind for m in found.misreports} == {"cost", "size", "embedding"}
    assert all(m.gain >= 0 for m in found.misreports)
    for clients in ([np.nan], [1.5], ["nobody"], [True]):
        with pytest.raises(sf.InputError, match="clients"):
            posted.manipulation(clients=clients)
    with pytest.raises(sf.InputError, match="factors = nan"):
        posted.manipulation(factors=[float("nan")])
    with pytest.raises(sf.InputError, match="kinds"):
        posted.manipulation(kinds=("age",))
    with pytest.raises(sf.InputError, match="clients"):
        posted.manipulation(clients=[0])


@given(testing.misreports())
def test_the_property_for_mechanisms_of_ones_own(case):
    budget = 0.2 * float(case.game.costs.sum())
    testing.assert_own_report_does_not_matter(lambda game: posted_offers(game, budget), case)


def test_the_property_fails_for_offers_that_follow_the_report():
    game, _ = random_plan(1)
    case = testing.Report(
        game, 0, game.replace(costs=np.where(np.arange(game.count) == 0, 2.0, 1.0) * game.costs)
    )
    with pytest.raises(AssertionError, match="client"):
        testing.assert_own_report_does_not_matter(lambda g: as_capped(g, np.full(g.count, 0.9)), case)


# -------------------------------------------------------------------- several requests


def test_requests_share_a_budget_and_keep_costs():
    game = digits_game(sampling_constant=30.0).replace(removed=[])
    requests = sf.Requests(game, budget=0.2)
    first = requests.remove([0, 1], share=0.5, offers="capped", gap=1e-2, progress=False)
    assert first.spend <= 0.1 * (1 + 1e-9)
    assert requests.left == pytest.approx(0.2 - first.spend)
    second = requests.remove(["2"], offers="capped", gap=1e-2, progress=False)
    assert requests.spent <= 0.2 * (1 + 1e-9)
    assert len(requests) == 2
    assert requests.game.removed == (0, 1, 2)
    assert second.game is requests.game
    assert requests.game.costs == pytest.approx(game.costs[3:])
    assert [r["removed"] for r in requests.summary()["requests"]] == [["0", "1"], ["2"]]
    with pytest.raises(sf.InputError, match="no such remaining client"):
        requests.remove([0])
    with pytest.raises(sf.InputError, match="share"):
        requests.remove([3], share=0.0)
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("budget", "clients", "options", "words"),
    [
        ("much", [0], {}, "budget.*must be a number"),
        (None, [0], {}, "budget.*must be a number"),
        (np.nan, [0], {}, "budget"),
        (0.1, [], {}, "at least one client"),
        (0.1, [1.5], {}, "removed = 1.5"),
        (0.1, [True], {}, "removed = True"),
        (0.1, [[1]], {}, "removed"),
        (0.1, [1, 1], {}, "twice"),
        (0.1, [1], {"budget": 3.0}, "budget = 3.0: is that of all requests"),
        (0.1, [1], {"share": np.nan}, "share"),
    ],
)
def test_bad_requests_for_removal_are_refused(budget, clients, options, words):
    game = digits_game(sampling_constant=30.0).replace(removed=[])
    with pytest.raises(sf.InputError, match=words):
        sf.Requests(game, budget).remove(clients, offers="capped", **options)


def test_offers_that_cost_more_than_their_share_are_no_answer():
    """A baseline that keeps all clients at any price fails; the rest of the budget is for other requests."""
    game = digits_game(sampling_constant=30.0).replace(removed=[])
    requests = sf.Requests(game, budget=100.0)
    alone = without(game, [0]).solve(1.0, "uniform", offers="capped", outside=0.5)
    assert alone.status is sf.Status.FAILED
    assert 1.0 < alone.spend < 100.0
    with pytest.raises(sf.InfeasibleError, match="more than the budget 1"):
        requests.remove([0], share=0.01, method="uniform", offers="capped", outside=0.5)
    assert len(requests) == 0
    assert requests.game is game


def test_a_request_that_fails_changes_nothing():
    game = digits_game().replace(removed=[])
    requests = sf.Requests(game, budget=1e-6)
    with pytest.raises(sf.InfeasibleError):
        requests.remove([0], offers="capped", min_total=0.99, progress=False)
    assert len(requests) == 0
    assert requests.game is game
    assert without(game, 0).costs == pytest.approx(game.costs[1:])

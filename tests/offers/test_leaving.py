"""Departures, retention, manipulation and several requests."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import as_capped, random_plan, utility

import stackfu as sf
from stackfu import testing
from stackfu.demo import digits_game
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
    assert len(set(found.left)) == len(found.left)
    assert set(found.left) | set(found.stayed) == {int(k) for k in game.remaining} or not found.stayed
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
    assert found.left == (one,)
    assert len(found) == 2
    smaller = game.replace(removed=(*game.removed, one), costs=game.costs[1:])
    assert found[1].participation == pytest.approx(smaller.equilibrium(0.8 * game.costs[1:]).participation)
    assert found.to_pandas()["left_in_round"].notna().sum() == 1


def test_retention_stops_the_cascade():
    game = digits_game(sampling_constant=30.0)
    plan = game.solve(0.1, offers="capped", gap=1e-2, progress=False)
    bare = utility_of(game, plan)
    outside = bare + 0.02 * game.costs
    assert not game.cascade(plan.payments, plan.caps, outside=outside).stable
    kept = game.solve(None, offers="capped", outside=outside, payment_weight=1.0, gap=1e-2, progress=False)
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


def test_a_request_that_fails_changes_nothing():
    game = digits_game().replace(removed=[])
    requests = sf.Requests(game, budget=1e-6)
    with pytest.raises(sf.InfeasibleError):
        requests.remove([0], offers="capped", min_total=0.99, progress=False)
    assert len(requests) == 0
    assert requests.game is game
    assert without(game, 0).costs == pytest.approx(game.costs[1:])

"""Unknown costs: intervals from answers, plans for a box of costs, prices that learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import as_capped, random_plan, responses_below

import stackfu as sf
from stackfu.demo import digits_game
from stackfu.followers.below_caps import settle
from stackfu.leader.posted_prices import PostedPrices, regret_curve
from stackfu.model.revealed import AGREE

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.booleans())
def test_costs_are_recovered_from_answers(seed, capped):
    game, _x = random_plan(seed, sampling=0.02)
    rng = np.random.default_rng(seed)
    caps = rng.uniform(0.2, 1.0, game.count) if capped else np.ones(game.count)
    prices = game.costs * rng.uniform(0, 1.2, game.count)
    try:
        done = settle(game, prices, caps)
    except (sf.ConvergenceError, sf.NoEquilibriumError):
        return
    told = game.replace(costs=game.costs * 7.0).costs_from(
        prices, done, caps
    )  # the game's own costs play no part
    unit = game.costs * 1e-6 + 1e-9 * game.lam * game.alpha * game.geometry.scale / (game.alpha @ done)
    assert (told.low <= game.costs + unit).all()
    assert (told.high >= game.costs - unit).all()
    inside = (done > 1e-9) & (done < caps * (1 - 1e-9))
    assert told.low[inside] == pytest.approx(told.high[inside])
    assert (told.high[(done == 0) & (caps > 0)] == np.inf).all()
    assert (told.low[done == caps] == 0).all()


def test_answers_intersect():
    game = digits_game()
    payments = np.array([0.3 * game.costs, 0.6 * game.costs, 0.9 * game.costs])
    answers = np.array([game.equilibrium(p).participation for p in payments])
    told = game.costs_from(payments, answers)
    one = game.costs_from(payments[0], answers[0])
    assert (told.low >= one.low * (1 - 1e-9)).all()
    assert (told.high <= one.high).all()
    assert told.known.sum() >= one.known.sum()
    assert told.known.any()
    with pytest.raises(sf.InputError, match="one per vector"):
        game.costs_from(payments, answers[:2])


def test_contradicting_answers_are_named():
    game = digits_game().replace(names=[f"clinic-{i}" for i in range(10)])
    first = game.equilibrium(0.5 * game.costs)
    dearer = game.replace(costs=2.0 * game.costs).equilibrium(0.5 * game.costs)
    with pytest.raises(sf.InputError, match="clinic-.*contradicts|contradicts.*clinic-"):
        game.costs_from([first.payments, dearer.payments], [first.participation, dearer.participation])


def test_a_plan_for_the_upper_ends_is_safe_for_the_whole_box():
    game = digits_game(sampling_constant=30.0)
    low, high = 0.2 * game.costs, 1.3 * game.costs
    budget = 0.1 * game.full_participation_price
    sol = game.solve(budget, offers="capped", costs_between=(low, high), gap=1e-2, progress=False)
    rng = np.random.default_rng(0)
    w_scale = 2 * game.lam * game.alpha

    for _ in range(3000):
        true = rng.uniform(low, high)
        answer = responses_below(
            game, (true - sol.payments) / w_scale, sol.equilibrium.profile, game.alpha * sol.caps
        )
        assert answer == pytest.approx(game.alpha * sol.caps, rel=1e-9)
    for _ in range(20):
        true = game.replace(costs=rng.uniform(low, high))
        x = settle(true, sol.payments, sol.caps, sol.caps * rng.uniform(0.1, 1, game.count))
        assert x == pytest.approx(sol.participation, abs=1e-6)
        assert sol.offers.payouts(x).sum() <= budget * (1 + 1e-9)


def test_linear_payments_beside_it_overspend():
    game = digits_game()
    budget = 0.1 * game.full_participation_price
    linear = game.solve(budget, progress=False)
    spends = [
        game.replace(costs=f * game.costs).equilibrium(linear.payments).spend / budget
        for f in (0.9, 0.8, 0.6)
    ]
    assert spends[0] > 1.1
    assert spends[-1] > 2
    assert spends == sorted(spends)
    plan = as_capped(game, linear.participation)
    for f in (0.9, 0.8, 0.6):
        x = settle(game.replace(costs=f * game.costs), plan.prices, plan.caps)
        assert plan.payouts(x).sum() == pytest.approx(plan.most)


def test_posted_prices_close_in_on_knowing_the_costs():
    game = digits_game(sampling_constant=30.0)
    budget = 0.1 * game.full_participation_price
    curve = regret_curve(
        game, 0.5 * game.costs, 2.0 * game.costs, budget, requests=5, linear_guesses=(), gap=1e-2
    )
    assert curve.regrets[-1] <= 0.1 * curve.regrets[0]
    assert curve.regrets[-1] <= 0.02 * curve.informed
    assert (curve.spends <= budget * (1 + 1e-9)).all()


@settings(max_examples=5)
@given(st.integers(0, 100))
def test_intervals_only_narrow_and_hold_the_truth(seed):
    game, _ = random_plan(seed, most=4, sampling=0.05)
    loop = PostedPrices(game, 0.3 * game.costs, 3.0 * game.costs, 0.2 * float(game.costs.sum()))
    before = loop.intervals
    for _ in range(3):
        loop.post(gap=1e-2)
        try:
            answer = loop.answer(game.costs)
        except (sf.ConvergenceError, sf.NoEquilibriumError):
            return
        now = loop.observe(answer)
        assert (now.low >= before.low * (1 - AGREE)).all()  # two exact answers agree up to that
        assert (now.high <= before.high).all()
        assert (now.low <= game.costs * (1 + 1e-6)).all()
        assert (now.high >= game.costs * (1 - 1e-6)).all()
        before = now


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(2.0, 1.0, "smaller to a larger"), (-1.0, 1.0, "smaller to a larger"), (np.nan, 1.0, "finite")],
)
def test_intervals_upside_down_are_refused_by_client(low, high, words):
    game = digits_game(sampling_constant=30.0)
    lows, highs = np.full(7, 0.5) * game.costs, np.array(game.costs)
    lows[3], highs[3] = low, high
    with pytest.raises(sf.InputError, match=words) as error:
        game.solve(0.1, offers="capped", costs_between=(lows, highs))
    if np.isfinite(low):
        assert str(game.label(3)) in str(error.value)
    with pytest.raises(sf.InputError):
        PostedPrices(game, lows, highs, 0.1)


def test_answers_beyond_a_cap_and_unknown_options_are_refused():
    game = digits_game(sampling_constant=30.0)
    with pytest.raises(sf.InputError, match=r"participation\[client 5\] = 0.5: is more than the cap 0.4"):
        game.costs_from(np.zeros(7), np.full(7, 0.5), caps=[0.5, 0.5, 0.4, 1, 1, 1, 1])
    loop = sf.PostedPrices(game, 0.5 * game.costs, 2 * game.costs, 0.1)
    with pytest.raises(sf.InputError, match="colour"):
        loop.post(colour=3)
    with pytest.raises(sf.InputError, match="probe"):
        sf.PostedPrices(game, 0.5 * game.costs, 2 * game.costs, 0.1, probe="half")


def test_nothing_is_learned_before_something_is_posted():
    game = digits_game(sampling_constant=30.0)
    loop = PostedPrices(game, 0.5 * game.costs, game.costs, 0.1)
    with pytest.raises(sf.InputError, match="nothing has been posted"):
        loop.observe(np.ones(7))
    with pytest.raises(sf.InputError, match="probe"):
        PostedPrices(game, 0.5 * game.costs, game.costs, 0.1, probe=1.5)


def small_game():
    points = sf.MeanEmbeddings.from_features([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.7]])
    return sf.StackelbergGame(
        points, [10, 20, 30, 15], removed=[0], costs=[0.3, 0.2, 0.4], sampling_constant=0.5
    )


def test_every_request_may_have_caps_of_its_own():
    game = small_game()
    caps = np.array([[0.5, 1.0, 0.8], [1.0, 0.4, 0.6]])
    prices = np.array([0.4 * game.costs, 0.7 * game.costs])
    answers = np.array([settle(game, p, c) for p, c in zip(prices, caps, strict=True)])
    both = game.costs_from(prices, answers, caps=caps)
    each = [game.costs_from(p, x, c) for p, x, c in zip(prices, answers, caps, strict=True)]
    assert both.low == pytest.approx(np.maximum(each[0].low, each[1].low))
    assert both.high == pytest.approx(np.minimum(each[0].high, each[1].high))
    assert (both.low <= game.costs * (1 + 1e-6)).all()
    assert (both.high >= game.costs * (1 - 1e-6)).all()
    assert game.costs_from(prices, answers, caps=caps.tolist()).low == pytest.approx(both.low)
    with pytest.raises(sf.InputError, match="caps = 3: needs one row, or 2"):
        game.costs_from(prices, answers, caps=np.ones((3, 3)))
    with pytest.raises(sf.InputError, match=r"caps\[client 2\] = 1.5"):
        game.costs_from(prices, answers, caps=[[0.5, 1.0, 0.8], [1.0, 1.5, 0.6]])


@pytest.mark.parametrize(
    "asked", [{"loss_weight": 10.0}, {"min_total": 0.6}, {"finite_sample": True}, {"payment_weight": 0.05}]
)
def test_regret_is_in_losses_and_everybody_is_asked_for_the_same(asked):
    game = small_game()
    curve = regret_curve(
        game, 0.5 * game.costs, 2 * game.costs, 0.1, requests=2, linear_guesses=(1.0, 1.1), gap=1e-2, **asked
    )
    known = game.solve(0.1, offers="capped", gap=1e-2, progress=False, **asked)
    counted = asked.get("finite_sample", False)
    assert curve.informed == pytest.approx(game.loss_of(known.equilibrium.profile, counted))
    assert curve.informed_spend == pytest.approx(known.spend)
    assert curve.regrets == pytest.approx(curve.losses - curve.informed)
    assert curve.spend_regrets == pytest.approx(curve.spends - known.spend)
    linear = game.solve(0.1, gap=1e-2, progress=False, **asked)
    assert curve.linear_losses[0] == pytest.approx(
        game.loss_of(linear.equilibrium.profile, counted), rel=1e-4
    )
    assert curve.linear_spends[0] == pytest.approx(linear.spend, rel=1e-4)


def test_linear_payments_that_cannot_do_it_are_not_a_number():
    game = small_game()
    least = game.solve(0.1, offers="capped", gap=1e-2, progress=False).server_loss
    curve = regret_curve(
        game, game.costs, game.costs, 0.1, requests=1, linear_guesses=3.0, gap=1e-2, max_loss=1.01 * least
    )
    assert np.isnan(
        curve.linear_losses
    ).all()  # at three times their costs clients cannot be paid for such a loss
    assert np.isnan(curve.linear_spends).all()
    assert np.isfinite(curve.regrets).all()


def test_results_of_another_game_are_refused():
    game = small_game()
    other = game.replace(costs=10.0 * game.costs)
    results = [
        game.solve(0.1, offers=kind, gap=0.1, max_nodes=20, progress=False)
        for kind in ("linear", "capped", "contract")
    ]
    cheaper = game.replace(costs=0.5 * game.costs)
    for result in (*results, results[0].equilibrium):
        assert game.verify(result)
        assert game.replace().verify(result)  # an equal game is this game
        with pytest.raises(sf.InputError, match="result .*belongs to another game"):
            other.verify(result)
        if getattr(getattr(result, "offers", None), "kind", "linear") != "capped":
            with pytest.raises(sf.InputError, match="belongs to another game"):
                cheaper.verify(result)
    for ask in (other.prove, other.diagnose):
        with pytest.raises(sf.InputError, match="belongs to another game"):
            ask(game.equilibrium())
    with pytest.raises(sf.InputError, match="belongs to another game"):
        game.verify("a solution")


def test_a_plan_for_the_upper_ends_is_verified_by_the_game_it_was_asked_of():
    game = small_game()
    safe = game.solve(
        0.1, offers="capped", costs_between=(0.5 * game.costs, 1.2 * game.costs), gap=0.1, progress=False
    )
    assert safe.game.costs == pytest.approx(1.2 * game.costs)
    assert safe.verify()
    check = game.verify(safe)
    assert check, check.message
    assert "made for larger costs" in check.message
    with pytest.raises(sf.InputError, match="belongs to another game"):
        game.replace(lambda_v=2.0).verify(safe)
    with pytest.raises(sf.InputError, match="belongs to another game"):
        game.replace(costs=1.3 * game.costs).verify(safe)

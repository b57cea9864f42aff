"""Certified capped offers: the bound, the checker, the search, and what is promised about the plan."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leader_games import random_game
from plans import random_plan

import stackfu as sf
from stackfu.cli import main
from stackfu.judging import plan_bound
from stackfu.judging.numbers import IntervalArithmetic
from stackfu.judging.plan_bound import check_plan_bound
from stackfu.leader.capped.capped_bound import Multipliers, Region, at_best_level, ball, eagerness, margin
from stackfu.leader.capped.plan_problem import PlanProblem
from stackfu.leader.capped.plan_programme import BUDGET_PENALTY, relaxed
from stackfu.leader.capped.plan_search import search
from stackfu.leader.capped.plans import Plans
from stackfu.model import Objective
from stackfu.model.offers import plan_price
from stackfu.results.plan_certificate import Cut, PlanCertificate, PlanKnot, PlanNode

SEEDS = st.integers(0, 10**6)


def game_with_budget(seed, count, sampled):
    game, _ = random_game(seed, count)
    if sampled:
        game = game.replace(sampling_constant=0.02 * game.geometry.scale * game.sizes.sum())
    return game, [0.05, 0.15, 0.4][seed % 3] * game.full_participation_price


@given(SEEDS, st.booleans(), st.booleans())
def test_problem_and_game_agree(seed, finite, leaving):
    game, x = random_plan(seed)
    rng = np.random.default_rng(seed)
    if finite and (game.embeddings.squared_norms > 1).any():
        finite = False
    outside = (
        np.where(rng.uniform(size=game.count) < 0.5, -np.inf, rng.normal(size=game.count))
        if leaving
        else None
    )
    goal = Objective(budget=1.0, finite_sample=finite)
    p = PlanProblem.of(game, goal, outside)
    profile = game.profile(x)
    z, total = profile.mixture, profile.total
    assert p.loss(z, total) * p.unit_loss == pytest.approx(game.loss_of(profile, finite), rel=1e-9)
    price = plan_price(game, profile, outside)
    assert p.spend(z, total) * p.unit_spend == pytest.approx(price, rel=1e-8, abs=1e-9 * game.costs.sum())


def random_region(p, rng, z, total):
    """A region around a plan, and whether the plan's own numbers are inside."""
    n = p.count
    low, high = total * rng.uniform(0.6, 1.0), min(1.0, total * rng.uniform(1.0, 1.5))
    stakes = p.stakes(z, total)
    d2 = stakes - 0.5 * p.client_sampling / total
    raw = stakes - p.theta * total
    wide = rng.uniform(0, 1, size=n) ** 2
    return Region(
        low,
        high,
        z * rng.uniform(0, 1, n),
        np.minimum(z + rng.uniform(0, 1, n) * (1 - z), 1.0),
        d2 * rng.uniform(0, 1, n),
        d2 + wide * p.reach,
        np.where(rng.uniform(size=n) < 0.5, -np.inf, raw - wide),
        np.where(rng.uniform(size=n) < 0.5, np.inf, raw + wide),
    )


def outside_options(game, rng):
    """Outside utilities of some clients; the others have no outside option."""
    return np.where(rng.uniform(size=game.count) < 0.5, -np.inf, rng.normal(size=game.count))


@settings(max_examples=200)
@given(SEEDS, st.booleans(), st.booleans())
def test_any_multipliers_bound_every_plan_of_a_region(seed, leaving, paying):
    game, x = random_plan(seed)
    rng = np.random.default_rng(seed)
    outside = outside_options(game, rng) if leaving else None
    profile = game.profile(x)
    goal = Objective(
        budget=plan_price(game, profile, outside) * 1.0000001 + 1e-12,
        max_loss=game.loss_of(profile) * 1.0000001,
        payment_weight=rng.uniform() if paying else 0.0,
    )
    p = PlanProblem.of(game, goal, outside)
    z, total = profile.mixture, profile.total
    region = random_region(p, rng, z, total)
    low, high = eagerness(p, region)
    raw = p.stakes(z, total) - p.theta * total
    assert (raw >= low - 1e-9).all()
    assert (raw <= high + 1e-9).all()
    price = rng.exponential()
    y = Multipliers(
        total=total,
        objective=1.0,
        budget=price * rng.integers(0, 2),
        loss_cap=rng.exponential() * rng.integers(0, 2),
        level=rng.normal(),
        direct=price * rng.uniform(0, 1.2) * rng.integers(0, 2),
        rows=rng.normal(size=p.count) * rng.uniform(0, 1) * rng.integers(0, 2),
        keep=rng.uniform(size=p.count) * price if leaving else None,
        mixture=rng.dirichlet(np.ones(p.count)) + rng.normal(size=p.count) * 0.1,
    )
    lower = p.value(z, total) + 1e-9 * (1 + abs(p.value(z, total)))
    least, weight, centre = margin(p, region, y, lower)
    if not np.isfinite(least):
        return
    away = float(((z @ p.points - centre) ** 2).sum())
    assert least + weight * away <= 1e-6 * (1 + abs(least) + weight * away)
    inside = ball(p, region, least, weight, centre)
    d2 = p.stakes(z, total) - 0.5 * p.client_sampling / total
    assert (d2 >= inside.near - 1e-6).all()
    assert (d2 <= inside.far + 1e-6).all()


@settings(max_examples=200)
@given(SEEDS, st.booleans())
def test_the_judge_counts_no_more_than_any_plan_of_a_region_has(seed, paying):
    """The same of the judge's own formula, where clients can leave and have to be kept."""
    game, x = random_plan(seed)
    rng = np.random.default_rng(seed)
    outside = np.where(rng.uniform(size=game.count) < 0.3, -np.inf, rng.normal(size=game.count))
    profile = game.profile(x)
    spend, loss = plan_price(game, profile, outside), game.loss_of(profile)
    weight = rng.uniform() if paying else 0.0
    goal = Objective(budget=spend * 1.0000001 + 1e-12, max_loss=loss * 1.0000001, payment_weight=weight)
    p = PlanProblem.of(game, goal, outside)
    z, total = profile.mixture, profile.total
    region = random_region(p, rng, z, total)
    price = rng.exponential()
    mixture = rng.dirichlet(np.ones(p.count)) + rng.normal(size=p.count) * 0.1
    knot = PlanKnot(
        objective=1.0,
        budget=price,
        loss_cap=rng.exponential() * rng.integers(0, 2),
        level=rng.normal() * p.unit_loss,
        direct=price * p.unit_spend / p.unit_square * rng.uniform(0, 1.2) * rng.integers(0, 2),
        rows=(
            np.arange(p.count),
            rng.normal(size=p.count) * rng.integers(0, 2) * p.unit_loss / p.unit_square,
        ),
        keep=(np.arange(p.count), rng.uniform(size=p.count) * price * p.unit_spend / p.unit_square),
        centre=(np.arange(p.count), mixture),
    )
    lower = loss + weight * spend
    certificate = PlanCertificate(lower + 1e-9 * (1 + lower), total, (knot, knot), ())
    arithmetic = IntervalArithmetic()
    with arithmetic.context():
        checker = plan_bound._Checker(game, goal, certificate, outside, (0.0, 1.0), arithmetic)
        products = checker._knot(1)
        square = p.unit_square
        judged = plan_bound._Region(
            region.low, region.high, region.least, region.most, region.near * square, region.far * square,
            region.cut_low * square, region.cut_high * square,
        )  # fmt: skip
        least = checker._margin(judged, products)
    if not np.isfinite(least):
        return
    # weights of a centre need not sum to 1: what is missing lies at the mean of all, from where the judge counts
    embedding = (z - mixture) @ (p.points + p.target)
    away = float(arithmetic.low(products.weight)) * square * float(embedding @ embedding)
    assert least + away <= 1e-6 * (p.unit_loss + abs(least) + away)


@given(SEEDS, st.booleans())
@example(
    96, False
)  # these take a larger q than ||m||^2: its multiplier is 0 but for rounding, and was negative
@example(347, False)
@example(4043, True)
@example(4089, True)
def test_multipliers_prove_what_their_programme_found(seed, leaving):
    game, x = random_plan(seed)
    rng = np.random.default_rng(seed)
    outside = outside_options(game, rng) if leaving else None
    profile = game.profile(x)
    z, total = profile.mixture, profile.total
    goal = Objective(budget=rng.uniform(0.2, 1.5) * max(plan_price(game, profile, outside), 1e-3))
    p = PlanProblem.of(game, goal, outside)
    region = replace(random_region(p, rng, z, total), low=total, high=total)
    m = z @ p.points
    answer = relaxed(p, region, total, float(m @ m))
    found = answer.value + BUDGET_PENALTY * max(answer.slack, 0.0)
    proved = margin(p, region, at_best_level(p, region, answer.multipliers), 0.0)[0]
    assert proved == pytest.approx(found, rel=1e-2, abs=1e-6)


def test_regions_that_only_a_larger_square_could_meet_are_closed():
    """Totals around 0.505: the bounds of who is eager contradict each other unless ``q`` is larger than ``||m||^2``."""
    rng = np.random.default_rng([16, 5])
    points = rng.normal(size=(10, 5)) * 0.3
    points /= max(1.0, 1.001 * float(np.sqrt((points**2).sum(axis=1).max())))
    sizes = rng.dirichlet(np.full(10, 0.7)) * 1000 + 1
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, range(3), cost_scale=3.0)
    budget = 0.4 * game.full_participation_price
    plan = game.solve(
        budget,
        offers="capped",
        finite_sample=True,
        gap=1e-4,
        max_nodes=400,
        time_limit=np.inf,
        progress=False,
    )
    assert plan.status is sf.Status.CERTIFIED
    assert plan.verify()


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_checker_accepts_what_the_search_claims_and_nothing_more(seed, sampled):
    game, budget = game_with_budget(seed, 5, sampled)
    floor = 0.0 if sampled else 0.2
    try:
        sol = game.solve(budget, offers="capped", min_total=floor, gap=1e-3, progress=False)
    except sf.InfeasibleError:
        return
    assert sol.status is sf.Status.CERTIFIED
    assert sol.verify(), sol.verify().message
    assert check_plan_bound(game, sol.goal, sol.certificate)
    wrong = replace(sol.certificate, lower=sol.objective * (1 + 1e-6) + 1e-12)
    assert not check_plan_bound(game, sol.goal, wrong)
    assert not check_plan_bound(
        game, replace(sol.goal, budget=10 * sol.budget + 1), replace(wrong, lower=sol.objective)
    )


def certificate_of_a_small_game():
    game, budget = game_with_budget(3, 5, True)
    sol = game.solve(budget, offers="capped", gap=1e-3, progress=False)
    return game, sol


def test_certificates_with_holes_are_refused():
    game, sol = certificate_of_a_small_game()
    whole = sol.certificate
    assert len(whole.nodes) > 1
    assert check_plan_bound(game, sol.goal, whole)
    leaf = next(i for i, node in enumerate(whole.nodes) if node.cut is None and node.steps)
    for broken, word in (
        (replace(whole, nodes=whole.nodes[:-1]), "ends before"),
        (replace(whole, nodes=(*whole.nodes, PlanNode((), None))), "goes on"),
        (replace(whole, nodes=(*whole.nodes[:leaf], PlanNode((), None), *whole.nodes[leaf + 1 :])), "prove"),
        (replace(whole, nodes=(PlanNode((10**6,), None),)), "no knot"),
        (replace(whole, nodes=(PlanNode((), Cut("share", 99, 0.5)), *whole.nodes)), "does not exist"),
        (replace(whole, least=0.9), "not ruled out"),
        (replace(whole, lower=np.nan), "finite"),
    ):
        verdict = check_plan_bound(game, sol.goal, broken)
        assert not verdict
        assert word in verdict.message, verdict.message
    negative = (whole.knots[0], *(replace(knot, budget=-1.0) for knot in whole.knots[1:]))
    assert "negative" in check_plan_bound(game, sol.goal, replace(whole, knots=negative)).message
    assert PlanCertificate.from_record(whole.to_record()).nodes == whole.nodes


def test_tampered_solutions_do_not_verify():
    _, sol = certificate_of_a_small_game()
    assert sol.verify()
    assert not replace(sol, lower_bound=sol.objective, certificate=None).verify()
    assert not replace(sol, lower_bound=0.5 * (sol.lower_bound + sol.objective)).verify()
    assert not replace(sol, objective=1.01 * sol.objective).verify()
    cheap = replace(sol.offers, prices=0.9 * sol.offers.prices)
    assert not replace(sol, posted=cheap).verify()


def prices_and_losses(game, plans):
    """Return what the capped offers of plans cost and what losses they have, all at once and from the definition."""
    gram, stay, sizes = game.embeddings.gram, game.remaining, np.asarray(game.all_sizes)
    y = plans * game.alpha
    total = y.sum(axis=1)
    z = y / total[:, None]
    inner = z @ gram[np.ix_(stay, stay)]
    square = (z * inner).sum(axis=1)
    noise = game.sampling_constant / (plans @ game.sizes)
    gaps = square[:, None] - 2 * inner + np.diag(gram)[stay] + 0.5 * noise[:, None]
    due = np.maximum(game.costs - 2 * game.lam * game.alpha * gaps / total[:, None], 0.0)
    ideals = np.zeros((2, len(sizes)))
    ideals[0, stay], ideals[1] = game.alpha, sizes / sizes.sum()
    losses = [square - 2 * z @ gram[stay] @ t + t @ gram @ t + noise for t in ideals]
    return (due * plans).sum(axis=1), game.lam_v * losses[0] + game.lam_s * losses[1]


@pytest.mark.parametrize("seed", range(4))
def test_prices_and_losses_are_those_of_the_game(seed):
    game, _ = game_with_budget(seed, 3, True)
    plans = np.random.default_rng(seed).uniform(size=(50, 3))
    prices, losses = prices_and_losses(game, plans)
    for x, price, loss in zip(plans, prices, losses, strict=True):
        profile = game.profile(x)
        assert price == pytest.approx(plan_price(game, profile), rel=1e-9, abs=1e-15)
        assert loss == pytest.approx(game.loss_of(profile), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_certified_plans_beat_every_plan_of_a_grid(seed):
    game, budget = game_with_budget(seed, 3, True)
    sol = game.solve(budget, offers="capped", progress=False, gap=1e-5)
    axis = np.linspace(0, 1, 41)
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)[1:]
    prices, losses = prices_and_losses(game, grid)
    best = losses[prices <= budget].min(initial=np.inf)
    assert sol.objective <= best + 1e-9
    assert sol.lower_bound <= sol.objective
    assert sol.status is sf.Status.CERTIFIED
    assert sol.spend <= budget * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_never_worse_than_linear_payments(seed):
    game, _ = random_game(seed, 5)
    budget = 0.3 * game.full_participation_price
    try:
        linear = game.solve(budget, min_total=0.2, progress=False)
    except sf.InfeasibleError:
        linear = None
    try:
        plan = game.solve(budget, min_total=0.2, offers="capped", progress=False, gap=1e-3)
    except sf.InfeasibleError:
        assert linear is None
        return
    assert plan.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert plan.equilibrium.total >= 0.2 * (1 - 1e-9)
    assert plan.offers.most <= budget * (1 + 1e-9)
    if linear is not None:
        assert plan.objective <= linear.objective * (1 + 1e-9)


@settings(max_examples=12)
@given(
    st.integers(0, 10**6),
    st.integers(2, 5),
    st.sampled_from([0.02, 0.2, 0.7, None]),
    st.fixed_dictionaries(
        {"min_total": st.sampled_from([0.05, 0.4, 0.9])},
        optional={
            "finite_sample": st.just(True),
            "payment_weight": st.sampled_from([0.01, 1.0, 100.0]),
            "loss_weight": st.sampled_from([0.5, 2.0]),
            "min_samples": st.sampled_from([10.0, 200.0]),
            "max_loss": st.sampled_from([0.6, 1.0]),
        },
    ),
)
def test_never_worse_than_linear_payments_whatever_is_asked(seed, clients, share, options):
    game, _ = random_game(seed, clients)
    budget = None if share is None else share * game.full_participation_price
    if "finite_sample" in options:  # a kernel with k(a, a) = 1
        gram = game.embeddings.gram / (1.001 * float(game.embeddings.squared_norms.max()))
        game = game.replace(embeddings=sf.MeanEmbeddings.from_gram(gram), costs=game.costs)
        budget = None if share is None else share * game.full_participation_price
    if "max_loss" in options:
        options = {**options, "max_loss": options["max_loss"] * game.equilibrium().server_loss}
    try:
        linear = game.solve(budget, **options, progress=False, gap=1e-3)
    except sf.InfeasibleError:
        return
    plan = game.solve(budget, **options, offers="capped", progress=False, gap=1e-2)
    hair = 1e-10 * options.get("payment_weight", 0.0) * float(game.costs.sum())  # nobody is left indifferent
    assert plan.objective <= linear.objective * (1 + 1e-9) + hair
    assert plan.lower_bound <= linear.objective * (1 + 1e-9)
    assert budget is None or plan.offers.most <= budget * (1 + 1e-9)
    assert plan.verify(), plan.verify().message


def test_asks_for_a_sampling_term_or_a_floor():
    game, budget = game_with_budget(0, 4, False)
    with pytest.raises(sf.InputError, match="sampling term or a floor"):
        game.solve(budget, offers="capped")
    with pytest.raises(sf.InputError, match="use no data at all"):
        game.cheapest(max_loss=1.0, offers="capped")
    assert game.solve(None, offers="capped", min_total=0.1, progress=False).status is sf.Status.CERTIFIED


def test_what_no_budget_can_do_is_said_with_what_it_takes():
    game, budget = game_with_budget(0, 5, False)
    with pytest.raises(sf.InfeasibleError, match="takes at least"):
        game.solve(1e-3 * budget, offers="capped", min_total=0.9, progress=False)
    outside = np.full(5, -np.inf)
    outside[3] = 1e3
    with pytest.raises(sf.InfeasibleError, match="keeping everybody") as error:
        game.solve(1e-3 * budget, offers="capped", min_total=0.1, outside=outside, progress=False)
    assert f"client {game.label(3)}, whose outside utility is 1000" in str(error.value)


@pytest.mark.parametrize("each", [1.0, 0.05])
def test_outside_utilities_that_no_budget_meets_are_named_without_a_floor(each):
    game, budget = game_with_budget(1, 5, True)
    outside = np.full(5, each)
    outside[2] = -np.inf
    with pytest.raises(sf.InfeasibleError, match="keeping everybody: that takes at least") as error:
        game.solve(0.1 * each * budget, offers="capped", outside=outside, progress=False)
    assert f"whose outside utility is {each:g}" in str(error.value)
    assert f"client {game.label(2)}," not in str(error.value)


def test_small_totals_are_ruled_out_by_what_keeping_costs_and_not_for_nothing():
    game, _ = game_with_budget(1, 5, True)
    outside = np.full(5, 0.1)
    bill = Objective(loss_weight=0.0, payment_weight=1.0)
    problem = PlanProblem.of(game, bill, outside)
    plans = Plans(game, bill, problem, outside)
    plans.begin((np.ones(5),))
    run = search(
        problem, plans, gap=0.02 * plans.target, reference=plans.target, time_limit=np.inf, max_nodes=5000
    )
    assert 0.9 * plans.best.spend < run.bound <= plans.best.spend
    assert 0.0 < run.certificate.least < 1e-6
    assert check_plan_bound(game, bill, run.certificate, outside)
    assert "not ruled out" in check_plan_bound(game, bill, run.certificate, np.full(5, -np.inf)).message
    # 5 (lam a / S + 0.1) reaches the bound at this total
    total = game.lam * game.sampling / (run.bound / 5 - 0.1)
    for least, fine in ((0.999 * total, True), (1.001 * total, False)):
        verdict = check_plan_bound(game, bill, replace(run.certificate, least=least), outside)
        assert ("not ruled out" in verdict.message) != fine, verdict.message


def test_outside_options_are_met_and_certified():
    game, _ = game_with_budget(1, 5, True)
    alone = game.solve(None, offers="capped", progress=False, gap=1e-3)
    bare = (
        alone.payouts
        - game.costs * alone.participation
        - game.lam * (alone.equilibrium.profile.to_clients + game.sampling / alone.equilibrium.total)
    )
    outside = bare + 0.1 * game.costs
    outside[0] = -np.inf
    budget = (
        1.5
        * game.solve(
            None, offers="capped", outside=outside, payment_weight=1.0, progress=False, gap=1e-2
        ).spend
    )
    sol = game.solve(budget, offers="capped", outside=outside, progress=False, gap=1e-2)
    assert sol.status is sf.Status.CERTIFIED
    assert sol.verify(), sol.verify().message
    assert not replace(sol, outside=outside + game.costs).verify()


def test_no_bound_of_a_spend_lies_below_nothing():
    game, _ = game_with_budget(0, 4, True)
    free = game.cheapest(10 * game.equilibrium().server_loss, offers="capped", gap=0.5, progress=False)
    assert free.objective == free.lower_bound == 0.0
    assert free.verify(), free.verify().message


def test_least_spend_for_a_loss():
    game, budget = game_with_budget(3, 5, True)
    best = game.solve(budget, offers="capped", progress=False, gap=1e-4)
    cheap = game.cheapest(best.objective, offers="capped", progress=False, gap=1e-3)
    assert cheap.objective == pytest.approx(cheap.spend, rel=1e-12)
    assert cheap.spend <= best.spend * (1 + 1e-6)
    assert cheap.lower_bound <= cheap.spend
    assert cheap.verify(), cheap.verify().message


@pytest.mark.parametrize("method", ["haipo", "uniform"])
def test_baselines_as_plans(method):
    game, budget = game_with_budget(2, 5, False)
    linear = game.solve(budget, method)
    plan = game.solve(budget, method, offers="capped")
    assert plan.participation == pytest.approx(linear.participation)
    assert plan.spend <= linear.spend * (1 + 1e-9)
    assert plan.verify(), plan.verify().message
    contract = game.solve(budget, method, offers="contract")
    assert contract.spend <= plan.spend * (1 + 1e-9)
    assert contract.verify()


def test_contracts_are_no_worse_and_say_what_else_may_happen():
    game, budget = game_with_budget(3, 5, True)
    plan = game.solve(budget, offers="capped", progress=False, gap=1e-3)
    sol = game.solve(budget, offers="contract", max_nodes=5, progress=False)
    assert sol.status is sf.Status.GAP_OPEN
    assert sol.objective <= plan.objective * (1 + 1e-9)
    assert sol.lower_bound <= sol.objective
    assert "everybody accepting is" in sol.message
    assert sol.verify(), sol.verify().message
    narrow = replace(sol.certificate, pieces=sol.certificate.pieces[:-1])
    assert not replace(sol, certificate=narrow).verify()


@pytest.mark.parametrize(
    ("seed", "options"), [(4, {"min_total": 0.3}), (5, {}), (6, {"payment_weight": 0.5})]
)
def test_contracts_are_never_worse_than_linear_payments(seed, options):
    game, budget = game_with_budget(seed, 4, True)
    linear = game.solve(budget, progress=False, gap=1e-3, **options)
    sol = game.solve(budget, offers="contract", max_nodes=5, progress=False, **options)
    assert sol.objective <= linear.objective * (1 + 1e-9)
    assert sol.equilibrium.total >= options.get("min_total", 0.0) * (1 - 1e-9)
    assert sol.offers.most <= budget * (1 + 1e-9)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_contracts_are_certified_where_the_bound_is_near_and_judged(seed):
    game, budget = game_with_budget(seed, 5, True)
    sol = game.solve(None if seed else budget, offers="contract", gap=0.5, max_nodes=5, progress=False)
    assert sol.status is sf.Status.CERTIFIED
    assert sol.verify(), sol.verify().message
    assert not replace(sol, limits=replace(sol.limits, gap=1e-12)).verify()
    assert not replace(sol, lower_bound=1.1 * sol.objective, objective=1.1 * sol.objective).verify()
    first = sol.certificate.pieces[0]
    for forged in (
        replace(sol.certificate, pieces=sol.certificate.pieces[:-1]),
        replace(sol.certificate, pieces=(replace(first, larger=1.0), *sol.certificate.pieces[1:])),
        replace(sol.certificate, lower=sol.objective * 1.01),
    ):
        assert not replace(sol, certificate=forged, lower_bound=min(forged.lower, sol.objective)).verify()
    unproved = replace(sol, certificate=None)
    assert not unproved.verify()


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files_keep_offers_and_certificate(tmp_path, ending):
    _, sol = certificate_of_a_small_game()
    path = tmp_path / f"plan.{ending}"
    sol.save(path)
    again = sf.load(path)
    assert again.offers.kind == "capped"
    assert np.array_equal(again.caps, sol.caps)
    assert np.array_equal(again.payouts, sol.payouts)
    assert again.lower_bound == sol.lower_bound
    assert again.verify(), again.verify().message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"offers": "barter"}, "must be"),
        ({"offers": "linear", "outside": 0.0}, "capped"),
        ({"offers": "capped", "outside": [1.0]}, "needs 5 numbers"),
        ({"offers": "capped", "outside": [0, 0, np.nan, 0, 0]}, "outside"),
        ({"offers": "capped", "robust": True}, "robust"),
        ({"costs_between": (1.0, 2.0)}, 'ask for offers="capped"'),
        ({"offers": "capped", "costs_between": ([1, 1, np.nan, 1, 1], [2] * 5)}, r"client \d+\] = nan"),
    ],
)
def test_bad_requests_are_refused(options, words):
    game, budget = game_with_budget(0, 5, True)
    with pytest.raises(sf.InputError, match=words):
        game.solve(budget, **options)


def test_a_loss_that_no_data_reaches_is_refused_at_once():
    game, budget = game_with_budget(0, 5, True)
    least = game.solve(None, offers="capped", progress=False, gap=1e-2).lower_bound
    for money in (budget, None):
        with pytest.raises(sf.InfeasibleError, match="whatever the budget"):
            game.solve(money, offers="capped", max_loss=0.1 * least, payment_weight=1.0, progress=False)


def test_regions_that_break_the_budget_are_cut_where_cuts_help():
    """A programme that breaks the budget misjudges products; one client's ranges were cut until nothing was left of them, for a
    minute."""
    gram = np.array(
        [
            [0.6925907800492335, 0.6063953122615813, 0.6453316123649112, 0.606993342471855, 0.6272712775285136],
            [0.6063953122615813, 0.6493804956344182, 0.502896862994745, 0.4675120880516561, 0.5729040982134099],
            [0.6453316123649112, 0.502896862994745, 0.6609528876525026, 0.6156445658983467, 0.5760172212990506],
            [0.606993342471855, 0.4675120880516561, 0.6156445658983467, 0.5952291019164744, 0.5413319353968691],
            [0.6272712775285136, 0.5729040982134099, 0.5760172212990506, 0.5413319353968691, 0.5820586694243474],
        ]
    )  # fmt: skip
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(gram), [25, 15, 30, 35, 20], [1], cost_scale=1)
    sol = game.solve(0.002, offers="capped", min_total=0.0572117561594858, progress=False)
    assert sol.status is sf.Status.CERTIFIED
    assert sol.nodes < 500


@pytest.mark.parametrize("kind", ["capped", "contract"])
def test_a_loss_a_little_out_of_reach_is_refused_with_its_bound(kind):
    points = sf.MeanEmbeddings.from_features([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.7]])
    game = sf.StackelbergGame(
        points, [10, 20, 30, 15], removed=[0], costs=[0.3, 0.2, 0.4], sampling_constant=0.5
    )
    best = game.solve(None, offers="capped", gap=1e-4, progress=False)
    with pytest.raises(sf.InfeasibleError, match="whatever the budget: all have more than") as error:
        game.cheapest(0.0232, offers=kind, progress=False)
    stated = float(str(error.value).split()[-1])
    assert 0.0232 < stated <= best.server_loss


def alike(count, sampling):
    rng = np.random.default_rng(0)
    return sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.full((count + 1, 2), 0.5)),
        rng.uniform(1, 5, count + 1),
        removed=[0],
        costs=rng.uniform(0.3, 1, count) * 4 / count,
        sampling_constant=sampling,
    )


@pytest.mark.parametrize(
    ("count", "sampling", "asked"),
    [
        (4, 0.3, {}),
        (4, 0.3, {"outside": -0.5}),
        (4, 0.0, {"finite_sample": True}),
        (12, 0.3, {"min_total": 0.15}),
        (150, 0.3, {"min_total": 0.15}),
    ],
)
def test_clients_whose_data_are_all_alike_are_a_problem_of_totals(count, sampling, asked):
    game = alike(count, sampling)
    budget = 0.2 * float(game.costs.sum())
    sol = game.solve(budget, offers="capped", gap=1e-2, progress=False, **asked)
    assert sol.status is sf.Status.CERTIFIED
    assert sol.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert sol.verify(), sol.verify().message
    asked.pop("outside", None)
    linear = game.solve(budget, progress=False, **asked)
    assert sol.objective <= linear.objective * (1 + 1e-9)
    only = game.equilibria(sol.payments, caps=sol.caps)
    assert len(only) == 1
    assert only[0].participation == pytest.approx(sol.participation, abs=1e-9)


def test_without_a_sampling_term_clients_that_are_alike_are_paid_for_a_floor():
    game = alike(4, 0.0)
    sol = game.solve(1.0, offers="capped", min_total=0.15, progress=False)
    assert sol.verify(), sol.verify().message
    assert sol.equilibrium.uniqueness is sf.Uniqueness.UNIQUE
    assert sol.equilibrium.total >= 0.15
    with pytest.raises(sf.InputError, match="sampling term or a floor"):
        game.solve(1.0, offers="capped", progress=False)


@pytest.mark.parametrize("method", ["uniform", "haipo", "posted"])
def test_other_mechanisms_post_plans_for_clients_that_are_alike(method):
    game = alike(4, 0.3)
    sol = game.solve(0.2 * float(game.costs.sum()), method, offers="capped")
    assert sol.verify(), sol.verify().message
    assert sol.equilibrium.uniqueness is sf.Uniqueness.UNIQUE


def test_contracts_with_clients_that_are_alike():
    game = alike(4, 0.3)
    budget = 0.2 * float(game.costs.sum())
    sol = game.solve(budget, offers="contract", max_nodes=5, progress=False)
    assert sol.verify(), sol.verify().message
    assert sol.objective <= game.solve(budget, offers="capped", gap=1e-2, progress=False).objective * (
        1 + 1e-9
    )


def test_the_command_line_traces_capped_offers(tmp_path, capsys):
    game, budget = game_with_budget(0, 4, True)
    game.save(tmp_path / "game.json")
    words = ["frontier", str(tmp_path / "game.json"), "--budgets", f"{budget / 2},{budget}", "--gap", "0.01"]
    losses = {}
    for kind in ("linear", "capped"):
        assert main([*words, "--offers", kind, "--json"]) == 0
        losses[kind] = [s["server_loss"] for s in json.loads(capsys.readouterr().out)["points"]]
    best = [game.solve(b, offers="capped", gap=0.01, progress=False) for b in (budget / 2, budget)]
    assert losses["capped"] == pytest.approx([s.server_loss for s in best], rel=0.02)
    assert all(c <= n * (1 + 1e-6) for c, n in zip(losses["capped"], losses["linear"], strict=True))

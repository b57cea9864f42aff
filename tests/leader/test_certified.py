"""The certified optimum: against brute force, against its own bound, and played back."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leader_games import grid_optimum, random_game

import stackfu as sf
import stackfu.leader.certified.certified_payments as mechanism
from stackfu.judging.bound_check import check_bound
from stackfu.judging.solution_check import within_gap
from stackfu.judging.stakes import check_stakes
from stackfu.leader.certified.certified_payments import judged
from stackfu.leader.certified.payment_bound import Classes, box_margin, classify
from stackfu.leader.certified.small_search import Box, Search
from stackfu.model import Objective


def check(game, budget, solution):
    """Check the properties of every certified solution."""
    reference = game.equilibrium().server_loss
    assert solution.status is sf.Status.CERTIFIED, (solution, solution.message)
    assert solution.gap <= 1e-6 * reference * (1 + 1e-9)
    assert solution.lower_bound <= solution.server_loss * (1 + 1e-12)
    assert solution.spend <= budget * (1 + 1e-9)
    assert solution.spend == pytest.approx(solution.payments @ solution.participation)
    assert check_stakes(game, solution.payments, solution.participation).max() <= 1e-9
    assert solution.server_loss <= reference * (1 + 1e-12)
    assert solution.certificate.lower == solution.lower_bound
    assert check_bound(game, solution.goal, solution.certificate)


def check_against_a_grid(seed, count, steps, sampling=0.0):
    game, budget = random_game(seed, count)
    if sampling:  # in units of what drift costs at full participation
        game = game.replace(sampling_constant=sampling * game.geometry.scale * game.sizes.sum())
    solution = game.solve(budget)
    check(game, budget, solution)
    best = grid_optimum(game, budget, steps)
    assert solution.server_loss <= best + 1e-6 * game.equilibrium().server_loss
    assert solution.lower_bound <= best * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(100))
def test_two_clients_never_worse_than_a_fine_grid(seed):
    check_against_a_grid(seed, 2, 301)


@pytest.mark.parametrize("seed", range(100, 200))
def test_three_clients_never_worse_than_a_fine_grid(seed):
    check_against_a_grid(seed, 3, 41)


@pytest.mark.parametrize("sampling", [1e-3, 0.05, 1.0])
@pytest.mark.parametrize(
    ("seed", "count", "steps"), [(s, n, k) for n, k in ((2, 301), (3, 41)) for s in range(5)]
)
def test_with_a_sampling_constant_never_worse_than_a_fine_grid(seed, count, steps, sampling):
    check_against_a_grid(200 + seed, count, steps, sampling)


@pytest.mark.parametrize(("seed", "count"), [(s, n) for n in (5, 8, 12) for s in range(300, 308)])
def test_gap_closes_up_to_twelve_clients(seed, count):
    game, budget = random_game(seed, count)
    check(game, budget, game.solve(budget))


def test_thirty_clients():
    game, budget = random_game(7, 30)
    solution = game.solve(budget)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.gap <= 1e-5 * game.equilibrium().server_loss


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 8), max_nodes=st.sampled_from([0, 100_000]))
def test_never_worse_than_the_baselines(seed, count, max_nodes):
    """A search that is not allowed a single box returns the best of its starts; one that closes is within its gap of the best."""
    game, budget = random_game(seed, count)
    best = game.solve(budget, max_nodes=max_nodes)
    assert best.spend <= budget * (1 + 1e-9)
    slack = (1e-6 if best.status is sf.Status.CERTIFIED else 1e-9) * game.equilibrium().server_loss
    slack += 1e-12 * (game.lam_v + game.lam_s) * game.geometry.scale
    assert best.server_loss <= game.equilibrium().server_loss + slack
    for method in ("haipo", "uniform"):
        other = game.solve(budget, method=method)
        assert other.spend <= budget * (1 + 1e-9)
        assert best.server_loss <= other.server_loss + slack
        assert other.lower_bound == -np.inf


@pytest.mark.parametrize("sizes", [[1, 1, 1], [1, 1, 1 + 1e-9]])
def test_a_loss_of_nothing_is_proved_at_once_and_costs_nothing(sizes):
    """Without removals and with symmetric clients, the unpaid outcome is optimal, or as good as that."""
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), sizes)
    solution = game.solve(0.05)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.nodes == 0
    assert solution.spend <= 1e-9
    assert solution.verify()


@pytest.mark.parametrize("seed", range(300, 312))
@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_budgets_that_leave_no_room_are_certified(seed, share):
    """Without payments the feasible profiles are single points, where multipliers may be unbounded."""
    game, _ = random_game(seed, 4)
    solution = game.solve(share * game.full_participation_price)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.server_loss <= game.equilibrium().server_loss * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(200, 230))
def test_a_box_is_bounded_below_every_feasible_profile_in_it(seed):
    """On random boxes of S, no inducible profile within the budget and the box beats the box's bound."""
    game, budget = random_game(seed, 4)
    rng = np.random.default_rng(seed)
    search = Search(game, Objective(budget))
    undecided = np.zeros(4, dtype=bool)
    low, high = np.sort(rng.uniform(0.02, 1, 2))
    classes = classify(search.problem, low, high, undecided, undecided)
    ends = tuple(search.solve(s, classes) for s in (low, high))
    box = Box(low, high, np.zeros(4, dtype=np.int8), ends)
    search.evaluate(box)
    for x in rng.uniform(size=(400, 4)) ** rng.choice([0.2, 1, 5]):
        found = search.found.realise(x)
        if found is not None and low <= game.alpha @ found.x <= high:
            assert found.loss >= box.value * search.problem.unit_loss * (1 - 1e-9)


@pytest.mark.parametrize("seed", [2, 12, 303])
@pytest.mark.parametrize("options", [{}, {"payment_weight": 1.0}, {"finite_sample": True}], ids=str)
def test_the_bound_at_the_optimum_is_sharp(seed, options):
    """At the optimum's total, its volunteers decided, the multipliers prove the optimal value and no more."""
    game, budget = random_game(seed, 4)
    solution = game.solve(budget, **options)
    volunteers = (solution.participation == 1) & (solution.payments == 0)
    search = Search(game, Objective(budget, **options))
    p, total = search.problem, solution.equilibrium.total
    classes = Classes(~volunteers, volunteers, p.reach)
    answer = search.solve(total, classes)
    size = max(abs(solution.objective), 1e-3 * p.unit_loss)
    assert answer.value == pytest.approx(answer.bound, abs=1e-8 * size / p.unit_loss)
    assert answer.bound * p.unit_loss == pytest.approx(solution.objective, abs=2e-6 * size)


def test_a_box_from_zero_has_constant_multipliers():
    """There is nothing to solve at a total of 0, and the judge accepts no others there."""
    game, budget = random_game(300, 4)
    search = Search(game, Objective(budget))
    nobody = np.zeros(4, dtype=bool)
    classes = classify(search.problem, 0.05, 0.1, nobody, nobody)
    box = Box(0.0, 0.1, nobody.astype(np.int8), tuple(search.solve(s, classes) for s in (0.05, 0.1)))
    search.evaluate(box)
    assert all(i is j for i, j in box.steps)
    search.refresh(box)
    assert box.ends[0] is box.ends[1] or not np.isfinite(box.value)
    assert all(i is j for i, j in box.steps)


def test_error_of_the_bound_falls_faster_than_the_width():
    """Ten times narrower, and the bound at an optimum that the budget binds is typically more than ten times closer.

    Not by much more: clients who own more than the box are bounded by their shares, which leaves little to gain from narrowing.
    """
    ratios = []
    for seed in range(300, 330):
        game, budget = random_game(seed, 5)
        solution = game.solve(budget)
        volunteers = (solution.participation == 1) & (solution.payments == 0)
        search = Search(game, Objective(budget))
        p = search.problem
        classes = Classes(~volunteers, volunteers, p.reach)
        errors = []
        for width in (0.1, 0.01):
            low = max(solution.equilibrium.total - width / 2, game.alpha[volunteers].sum() * (1 + 1e-9))
            low = max(low, 0.1 * solution.equilibrium.total)
            high = min(solution.equilibrium.total + width / 2, 1.0)
            ends = [search.solve(s, classes) for s in (low, high)]
            points = min(e.bound for e in ends)
            errors.append(points - box_margin(p, low, high, *(e.multipliers for e in ends), classes, 0.0))
        if errors[0] > 1e-5 * solution.server_loss / p.unit_loss:
            ratios.append(errors[1] / errors[0])
    assert len(ratios) >= 5
    assert np.median(ratios) < 1 / 10


def test_pinned_fragile_optimum_is_reproduced():
    """Optimal payments can leave full participants exactly indifferent; a rounding error then loses the equilibrium."""
    for seed in range(400, 412):
        game, budget = random_game(seed, 6)
        solution = game.solve(budget)
        again = game.equilibria(solution.payments)
        assert any(np.abs(eq.participation - solution.participation).max() < 1e-6 for eq in again) or any(
            eq.face is not None for eq in again
        )


def test_a_profile_a_hair_outside_is_repaired_and_one_far_outside_is_not():
    game, _ = random_game(2, 5)
    search = Search(game, Objective(np.inf)).found
    x = np.full(5, 0.4)
    d2 = game.profile(x).to_clients
    edge = float(
        (2 * game.lam * game.alpha * d2 / game.costs).max()
    )  # the least total with nobody below full wanting more
    x = x / (game.alpha @ x) * edge
    assert x.max() < 1
    for below, kept in ((-1e-3, True), (1e-6, True), (1e-2, False)):
        found = search.realise(x * (1 - below))
        assert (found is not None) == kept
        if found is not None:
            assert game.residual(found.payments, found.x) <= 1e-9
            np.testing.assert_allclose(found.x, x * (1 - below), rtol=1e-5)
            assert found.spend == pytest.approx(found.payments @ found.x)
    assert search.realise(np.zeros(5)) is None
    small = np.array([1.0, 1e-10, 1.0 - 1e-10, 0.7, 0.9])
    np.testing.assert_array_equal(search.realise(small).x, [1.0, 0.0, 1.0, 0.7, 0.9])


@pytest.mark.parametrize("seed", range(20))
def test_what_a_box_decides_holds_in_all_of_it(seed):
    """Clients ruled out as volunteers want no more data than they have room for, whatever the mixture in the box."""
    rng = np.random.default_rng(seed)
    game, budget = random_game(seed, 4)
    p = Search(game, Objective(budget)).problem
    low, high = np.sort(rng.uniform(0.01, 1, 2))
    nobody = np.zeros(4, dtype=bool)
    known = classify(p, low, high, nobody, nobody)
    for _ in range(300):
        z = rng.dirichlet(np.full(4, 0.2))
        total = rng.uniform(low, high)
        volunteers = (p.squared_distances(z) >= p.theta * total) & (p.alpha <= total)
        assert not volunteers[known.paid].any()
    for k in np.flatnonzero(~known.paid):  # and nobody is left open without need
        assert p.alpha[k] <= high
        assert p.reach[k] >= p.theta[k] * low


class TestOptions:
    game, budget = random_game(2, 5)

    def test_floor_on_total_participation(self):
        free = self.game.solve(self.budget)
        floor = min(1.0, free.equilibrium.total * 1.5)
        held = self.game.solve(None, min_total=floor)
        assert held.equilibrium.total >= floor * (1 - 1e-9)
        samples = self.game.solve(None, min_samples=floor * self.game.sizes.sum())
        assert samples.server_loss == pytest.approx(held.server_loss, rel=1e-5, abs=1e-9)

    def test_floor_out_of_reach_says_which(self):
        with pytest.raises(sf.InfeasibleError, match="min_samples = 1e\\+09"):
            self.game.solve(1.0, min_samples=1e9)
        with pytest.raises(sf.InfeasibleError, match="min_total = 1.5"):
            self.game.solve(1.0, min_total=1.5)
        with pytest.raises(sf.InfeasibleError, match="is too small for total participation of at least 1"):
            self.game.solve(1e-6 * self.game.full_participation_price, min_total=1.0)

    def test_full_participation_price_is_the_cheapest_way_to_full(self):
        price = self.game.full_participation_price
        full = self.game.solve(price * (1 + 1e-6), min_total=1.0)
        assert np.all(full.participation == 1)
        assert full.spend == pytest.approx(price, rel=1e-6)
        # at the cheapest payments all clients are indifferent; a slight increase keeps them there
        cheapest = self.game.payments_for(np.ones(5))
        assert np.all(full.payments[cheapest > 0] > cheapest[cheapest > 0])
        assert np.all(full.payments[cheapest == 0] == 0)

    def test_unconstrained_utility_beats_random_payments(self):
        best = self.game.solve(None, payment_weight=1.0)
        rng = np.random.default_rng(0)
        for _ in range(200):
            p = rng.uniform(0, 1.2, 5) * self.game.costs * rng.choice([0.01, 0.1, 1])
            eq = self.game.equilibrium(p)
            assert -self.game.server_utility(p, eq.participation) >= best.lower_bound - 1e-9
        assert best.objective == pytest.approx(-self.game.server_utility(best.payments, best.participation))

    def test_cheapest_way_to_a_loss(self):
        rich = self.game.solve(None)
        target = 0.5 * (rich.server_loss + self.game.equilibrium().server_loss)
        cheap = self.game.solve(None, loss_weight=0.0, payment_weight=1.0, max_loss=target)
        assert cheap.server_loss <= target * (1 + 1e-9)
        assert self.game.solve(cheap.spend * 0.99).server_loss >= target * (1 - 1e-6)

    @pytest.mark.parametrize("above", [0.03, 1e-3, 1e-6])
    @pytest.mark.parametrize("seed", range(4))
    def test_a_cap_just_above_the_least_loss_is_met(self, seed, above):
        game, budget = random_game(600 + seed, 6)
        least = game.solve(budget, gap=1e-8)
        assert least.status is sf.Status.CERTIFIED
        capped = game.solve(
            budget, max_loss=least.server_loss * (1 + above), payment_weight=1.0, loss_weight=0.0
        )
        assert capped.status in (sf.Status.CERTIFIED, sf.Status.GAP_OPEN, sf.Status.TIME_LIMIT)
        assert capped.server_loss <= least.server_loss * (1 + above) * (1 + 1e-9)
        assert capped.spend <= budget * (1 + 1e-9)
        if above >= 1e-3:
            assert capped.status is sf.Status.CERTIFIED
        assert capped.verify()

    @pytest.mark.parametrize("seed", range(4))
    def test_everybody_for_the_full_price(self, seed):
        """The only feasible profile is full participation: a client found again within rounding must not miss the floor."""
        game, _ = random_game(620 + seed, 5)
        solution = game.solve(game.full_participation_price, min_total=1.0)
        assert solution.status is sf.Status.CERTIFIED
        assert solution.participation.min() >= 1 - 1e-9
        assert solution.verify()

    @pytest.mark.parametrize("weight", [1e2, 1e4])
    def test_a_spend_that_counts_much_leaves_the_unpaid_outcome(self, weight):
        game, _ = random_game(640, 6)
        solution = game.solve(payment_weight=weight)
        assert solution.status is sf.Status.CERTIFIED
        assert solution.spend <= game.equilibrium().server_loss / weight

    def test_shadow_price_is_the_slope_of_the_frontier(self):
        for seed in (4, 6, 1):
            game, budget = random_game(seed, 5)
            solution = game.solve(budget, gap=1e-9)
            step = 1e-3 * budget
            slope = (game.solve(budget - step, gap=1e-9).server_loss - solution.server_loss) / step
            assert solution.shadow_price == pytest.approx(slope, rel=0.05, abs=1e-6)

    def test_finite_sample_term_buys_data(self):
        rng = np.random.default_rng(5)
        samples = [rng.normal(size=(n, 2)) + rng.normal(size=2) for n in (40, 60, 50, 80, 30)]
        sizes = [len(s) for s in samples]
        game = sf.StackelbergGame(sf.MeanEmbeddings.from_samples(samples), sizes, (0,), cost_scale=5.0)
        budget = 0.5 * game.full_participation_price
        blind, careful = game.solve(budget), game.solve(budget, finite_sample=True)
        assert careful.status is sf.Status.CERTIFIED
        assert careful.equilibrium.total > blind.equilibrium.total
        assert careful.objective <= blind.server_loss + game.finite_sample_penalty(blind.participation)

    def test_robust_is_never_worse_in_the_worst_case(self):
        for seed in range(500, 506):
            game, budget = random_game(seed, 5)
            plain, robust = game.solve(budget), game.solve(budget, robust=True)
            assert robust.spend_range[1] <= budget * (1 + 1e-9) or "no payments were found" in robust.message
            if plain.spend_range[1] <= budget * (1 + 1e-12):
                assert robust.pessimistic <= plain.pessimistic * (1 + 1e-9)
            assert robust.optimistic <= robust.server_loss <= robust.pessimistic

    def test_time_limit_returns_the_best_so_far_with_an_honest_gap(self):
        game, budget = random_game(3, 12)
        solution = game.solve(budget, time_limit=0.0, gap=1e-12)
        assert solution.status in (sf.Status.TIME_LIMIT, sf.Status.CERTIFIED)
        assert solution.lower_bound <= game.solve(budget).server_loss
        assert solution.spend <= budget * (1 + 1e-9)

    @pytest.mark.parametrize("options", [{"gap": 0.3}, {"gap": 1e-9, "max_nodes": 3}], ids=str)
    def test_an_early_stop_claims_no_more_than_was_proved(self, options):
        wide = 0
        for seed in range(300, 310):
            game, budget = random_game(seed, 5)
            best = game.solve(budget, gap=1e-8)
            early = game.solve(budget, **options)
            assert early.lower_bound <= best.server_loss * (1 + 1e-9)
            assert early.server_loss >= best.lower_bound * (1 - 1e-9)
            assert early.verify(), early.verify().message
            wide += early.gap > 1e-3 * early.server_loss
        assert wide >= 3

    def test_time_limit_covers_the_search_for_a_first_profile(self, monkeypatch, counted_clock):
        from stackfu.leader.certified import certified_payments as module

        limits, search = [], module.search

        def watched(*arguments, time_limit, **options):
            limits.append(time_limit)
            return search(*arguments, time_limit=time_limit, **options)

        monkeypatch.setattr(module, "search", watched)
        price = self.game.full_participation_price
        self.game.solve(0.9 * price, min_total=0.2, time_limit=2.0)
        assert len(limits) >= 2
        assert sum(limits[:-1]) <= 1.0  # half of it at most before the search proper
        assert limits[-1] <= 2.0

    @pytest.mark.parametrize("count", [6, 70])
    def test_seconds_in_which_functions_were_compiled_are_not_taken_from_the_search(self, monkeypatch, count):
        """The unpaid equilibrium, found first, is where a new process compiles; what that took is no measure of the rest."""
        from stackfu.leader.certified import certified_payments as mechanism

        true = mechanism.find_equilibrium

        def slow(game, payments, *arguments, **options):
            return dataclasses.replace(true(game, payments, *arguments, **options), seconds=1e3)

        monkeypatch.setattr(mechanism, "find_equilibrium", slow)
        game, budget = random_game(3, count)
        assert game.solve(budget, gap=1e-2).status is sf.Status.CERTIFIED

    def test_interrupt_returns_the_best_so_far(self):
        def interrupt(_):
            raise KeyboardInterrupt

        game, budget = random_game(42, 8)
        solution = game.solve(budget, gap=1e-13, callback=interrupt)
        assert solution.status in (sf.Status.INTERRUPTED, sf.Status.CERTIFIED)
        assert solution.gap >= 0

    @pytest.mark.parametrize("moment", [1, 2, 5, 8])
    @pytest.mark.parametrize("seed", [0, 3, 7])
    def test_interrupt_in_the_middle_of_a_box_loses_no_bound(self, monkeypatch, moment, seed):
        """The box being worked on is in no list; what was proved without it must not be claimed."""
        game, budget = random_game(seed, 5)
        best = game.solve(budget)
        calls = iter(range(1, 10**6))
        original = Search.evaluate

        def interrupted(search, *arguments):
            if next(calls) == moment:
                raise KeyboardInterrupt
            return original(search, *arguments)

        monkeypatch.setattr(Search, "evaluate", interrupted)
        solution = game.solve(budget, gap=1e-13)
        assert solution.status in (sf.Status.INTERRUPTED, sf.Status.CERTIFIED)
        assert solution.lower_bound <= best.server_loss * (1 + 1e-12)

    def test_callback_and_history(self):
        records = []
        game, budget = random_game(9, 8)
        solution = game.solve(budget, callback=records.append)
        assert len(records) == len(solution.history)
        bounds = [r["lower"] for r in solution.history]
        assert bounds == sorted(bounds)

    def test_server_that_does_not_care_is_refused(self):
        with pytest.raises(sf.InputError, match="lambda_v"):
            self.game.replace(lambda_v=0, lambda_s=0).solve(1.0)


class TestSpecialGames:
    def test_zero_budget_is_the_unpaid_equilibrium(self):
        game, _ = random_game(1, 5)
        solution = game.solve(0.0)
        assert solution.spend == 0.0
        assert solution.server_loss == pytest.approx(min(e.server_loss for e in game.equilibria()), rel=1e-6)

    def test_alike_clients_are_bought_at_cost_cheapest_first(self):
        game = sf.StackelbergGame(
            sf.MeanEmbeddings.from_features(np.ones((4, 2))), [1, 1, 1, 1], (0,), costs=[3.0, 1.0, 2.0]
        )
        solution = game.solve(2.0)
        np.testing.assert_allclose(solution.participation, [0, 1, 0.5])
        assert solution.spend == pytest.approx(2.0)
        assert solution.verify()
        with pytest.raises(sf.InfeasibleError, match="does not buy"):
            game.solve(0.0)

    def test_nearly_identical_clients(self):
        points = 1.0 + 1e-7 * np.random.default_rng(0).normal(size=(6, 2))
        game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [10] * 6, (0,), cost_scale=1e-14)
        solution = game.solve(0.2 * game.costs.sum())
        assert solution.spend <= 0.2 * game.costs.sum() * (1 + 1e-9)
        assert solution.lower_bound <= solution.server_loss


class TestVerification:
    def test_accepts_a_solution_and_refuses_tampering(self):
        from dataclasses import replace

        game, budget = random_game(12, 5)
        solution = game.solve(budget)
        assert solution.verify(), solution.verify().message
        assert not replace(solution, budget=solution.spend * 0.9).verify()
        assert not replace(solution, objective=solution.objective * 0.99).verify()
        boast = replace(solution, lower_bound=solution.objective * 1.01, objective=solution.objective)
        assert not boast.verify()
        moved = replace(solution.equilibrium, participation=np.clip(solution.participation + 1e-3, 0, 1))
        assert not replace(solution, equilibrium=moved).verify()

    @pytest.mark.parametrize(
        "options",
        [
            {"finite_sample": True},
            {"payment_weight": 0.3},
            {"payment_weight": 1.0, "loss_weight": 0.0, "max_loss": 0.012},
            {"min_total": 0.6},
        ],
        ids=str,
    )
    def test_every_objective_is_recomputed(self, options):
        solution = small_game().solve(2.0, **options)
        assert solution.verify(), solution.verify().message
        for factor in (0.999, 1.001):
            told = dataclasses.replace(
                solution,
                objective=solution.objective * factor,
                lower_bound=min(solution.lower_bound, solution.objective * factor),
            )
            assert "objective" in told.verify().message
        other = {"finite_sample": 0.0, "payment_weight": 0.0} | options
        for name in ("finite_sample", "payment_weight")[
            options.get("loss_weight") == 0.0 :
        ]:  # another objective than the one solved for
            asked = dataclasses.replace(
                solution.goal, **{name: type(getattr(solution.goal, name))(not other[name])}
            )
            changed = dataclasses.replace(solution, goal=asked)
            assert "objective" in changed.verify().message
        if "max_loss" in options:
            stricter = dataclasses.replace(solution.goal, max_loss=0.9 * solution.server_loss)
            assert "above the largest" in dataclasses.replace(solution, goal=stricter).verify().message
        if "min_total" in options:
            stricter = dataclasses.replace(solution.goal, min_total=1.1 * solution.equilibrium.total)
            assert "below the floor" in dataclasses.replace(solution, goal=stricter).verify().message

    def test_refuses_a_lower_bound_that_can_be_beaten(self):
        from dataclasses import replace

        game, budget = random_game(2, 5)
        poor = game.equilibrium()
        solution = game.solve(budget)
        fake = replace(
            solution,
            equilibrium=poor,
            payments=poor.payments,
            objective=poor.server_loss,
            lower_bound=poor.server_loss * (1 - 1e-9),
        )
        assert solution.server_loss < 0.999 * poor.server_loss
        assert not fake.verify()


def alike_game():
    features = np.array([[0.0, 0.6], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), [1, 1, 2, 1], [0], cost_scale=1.0)


def small_game():
    features = np.array([[0.0, 0.6], [0.0, 0.0], [0.8, 0.0], [0.1, 0.9]])
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), [1, 1, 2, 1], [0], cost_scale=1.0)


def test_alike_clients_are_not_paid_for_more_than_the_floor_when_money_counts():
    game = alike_game()
    solution = game.solve(5.0, payment_weight=1.0, min_total=0.5)
    assert solution.equilibrium.total == pytest.approx(0.5)
    assert solution.spend == pytest.approx(0.5 * game.kappa.min())
    assert solution.objective == pytest.approx(solution.server_loss + solution.spend)
    assert solution.verify()
    with pytest.raises(sf.errors.InputError, match="min_total"):
        game.solve(5.0, payment_weight=1.0)


def test_alike_clients_count_the_samples_they_bring():
    game = alike_game()
    solution = game.solve(0.5, finite_sample=True)
    noise = float(game.sampling_noise[0])
    samples = float(game.sizes @ solution.participation)
    assert solution.objective == pytest.approx(
        solution.server_loss + (game.lam_v + game.lam_s) * noise / samples
    )
    assert solution.verify()


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 6),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    finite_sample=st.booleans(),
)
def test_what_alike_clients_sell_passes_the_judges(seed, count, scale, finite_sample):
    """Without drift and with payments at cost, no client gains anything by deviating, whatever its stakes."""
    rng = np.random.default_rng(seed)
    row = rng.uniform(-0.5, 0.5, size=3)
    features = np.vstack([rng.uniform(-0.5, 0.5, size=3), np.repeat(row[None, :], count, axis=0)])
    sizes = 10.0 ** rng.uniform(0, 4, size=count + 1)
    costs = scale * 10.0 ** rng.uniform(-3, 3, size=count)
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), sizes, [0], costs=costs)
    solution = game.solve(rng.uniform(0.01, 1.2) * costs.sum(), finite_sample=finite_sample)
    verdict = solution.verify()
    assert verdict, verdict.message
    assert check_stakes(game, solution.payments, solution.participation).max() <= 1e-9


def test_alike_clients_do_not_excuse_a_loss_above_the_cap():
    with pytest.raises(sf.errors.InfeasibleError, match="out of reach"):
        alike_game().solve(5.0, max_loss=1e-9)


@pytest.mark.parametrize("weights", [{}, {"payment_weight": 1.0, "loss_weight": 0.0}])
def test_a_cap_below_every_mixture_is_refuted_at_once(weights):
    with pytest.raises(sf.errors.InfeasibleError, match="whatever the budget"):
        small_game().solve(0.05, max_loss=0.005, time_limit=0.0, **weights)


def test_a_budget_beyond_all_costs_is_no_limit():
    game = small_game()
    rich, free = game.solve(1e300), game.solve(None)
    assert rich.status is sf.Status.CERTIFIED
    assert rich.server_loss == pytest.approx(free.server_loss)


@pytest.mark.parametrize(
    "asked", [{}, {"method": "haipo"}, {"method": "uniform"}, {"offers": "capped", "min_total": 0.3}], ids=str
)
def test_costs_are_as_large_as_solvers_and_judges_can_take_or_refused(asked):
    points = np.random.default_rng(0).normal(size=(5, 3))
    emb = sf.MeanEmbeddings.from_features(points)
    for scale in (1e65, 1e80, 1e150, 1e300):
        game = sf.StackelbergGame(emb, [10, 20, 30, 40, 50], removed=[2], cost_scale=scale)
        budget = 0.5 * game.full_participation_price
        if scale > 1e65:
            with pytest.raises(
                sf.InputError, match=r"costs\[client 0\] = .*: are more than 1e\+70 times lambda_q"
            ):
                game.solve(budget, **asked)
            continue
        assert game.solve(budget, **asked, **({} if "method" in asked else {"max_nodes": 20})).verify()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_total", "half"),
        ("payment_weight", np.inf),
        ("max_nodes", "many"),
        ("start", "anywhere"),
    ],
)
def test_options_that_make_no_sense_are_named(option, value):
    with pytest.raises(sf.errors.InputError) as caught:
        small_game().solve(0.05, **{option: value})
    assert caught.value.argument == option


@pytest.mark.parametrize("field", ["budget", "objective", "lower_bound"])
def test_not_a_number_does_not_pass_for_a_certificate(field):
    solution = small_game().solve(0.05)
    assert solution.verify()
    assert not dataclasses.replace(solution, **{field: np.nan}).verify()


@pytest.mark.parametrize("lower_bound", [-5.0, -np.inf])
def test_a_wide_gap_does_not_pass_for_a_certificate(lower_bound):
    solution = small_game().solve(0.05)
    assert not dataclasses.replace(solution, lower_bound=lower_bound).verify()


def test_the_objective_is_shown_beside_a_bound_on_it():
    assert "objective" not in repr(small_game().solve(0.05))
    assert "objective=" in repr(small_game().solve(0.05, payment_weight=0.01))


@pytest.mark.parametrize("scale", [1.0, 1e5, 1e10])
def test_costs_of_any_size_leave_the_leader_its_answer(scale):
    """Huge costs make the unpaid total tiny; nothing in the search may be small only in absolute terms."""
    points = np.array([[0, 0.6], [0, 0], [0.8, 0], [0.1, 0.9]])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), [100, 100, 200, 100], [0], cost_scale=scale
    )
    # without money the answer is there at once; its proof takes very long where costs are huge
    free = game.solve(0.0, max_nodes=200)
    assert free.server_loss == pytest.approx(game.equilibrium().server_loss, rel=1e-6)
    assert game.solve(0.05).status is sf.Status.CERTIFIED


def test_rounding_does_not_make_the_unpaid_equilibrium_cost_something():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(np.diag([0.0, 0.00390625])), [1, 1], costs=[0.000390625, 0.390625]
    )
    solution = game.solve(0.0)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.spend == 0.0
    assert solution.server_loss == pytest.approx(game.equilibrium().server_loss)


def test_a_client_that_owns_nearly_everything_leaves_the_unpaid_outcome_feasible():
    """A client's own terms are far below the others': the conditions hold relative to its stakes, not to more digits."""
    points = [
        [1.308167, 0.610096, 0.594364],
        [1.588029, -1.759983, -0.312819],
        [0.030034, -1.821916, 2.112551],
        [-0.746058, 1.535246, -0.23859],
        [0.935416, 0.773269, -0.82868],
        [0.401261, -1.26035, 0.339688],
        [-0.327497, 0.126569, 0.176404],
    ]
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        [1.804325, 1.98902, 1.924279e4, 0.7149046, 0.837948, 1.3572, 0.7853658],
        (0,),
        costs=[2.535437e-06, 5.043103e-06, 2.433303e-12, 4.293937e-07, 2.481884e-11, 9.089582e-08],
    )
    solution = game.solve(4.388927577655589e-15)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.verify()


def test_time_for_the_judge_is_part_of_the_limit(monkeypatch, counted_clock):
    """By a clock on which every look takes a hundredth of a second, and the judge two seconds."""
    from stackfu.leader.certified import payment_programme as programme
    from stackfu.leader.certified import small_search as module
    from stackfu.leader.certified import totals

    rng = np.random.default_rng(0)
    sizes, features = rng.pareto(2.0, size=12) + 1, rng.normal(size=(12, 4))
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), sizes, removed=[0], cost_scale=20.0)
    now = [0.0]

    def clock():
        now[0] += 0.01
        return now[0]

    def accepted(*arguments):
        now[0] += 2.0
        return judge(*arguments)

    judge = module.accepted
    for timed in (module, totals, programme):
        monkeypatch.setattr(timed, "clock", clock)
    monkeypatch.setattr(module, "accepted", accepted)
    goal = sf.Objective(0.1 * game.full_participation_price)
    run = module.search(game, goal, gap=0.0, time_limit=10.0, max_nodes=100_000)
    assert run.status is sf.Status.TIME_LIMIT
    assert now[0] <= 10.0 + 0.1
    assert run.certificate is not None


def test_certified_needs_numbers_whatever_overflowed():
    """A bound, a value and a gap that are no finite numbers prove nothing, however they compare."""
    game, budget = random_game(3, 4)
    found = game.solve(budget, progress=False)
    assert judged(found, 1e-3).status is sf.Status.CERTIFIED
    assert judged(found, np.inf).status is sf.Status.GAP_OPEN
    assert judged(dataclasses.replace(found, certificate=None), np.inf).status is sf.Status.GAP_OPEN
    for high, lower, gap in [
        (np.inf, 1.0, np.inf),
        (1.0, -np.inf, np.inf),
        (np.nan, 0.0, 1.0),
        (1.0, 0.0, np.nan),
    ]:
        assert not within_gap(high, lower, gap)


@pytest.mark.parametrize(("known", "reproduced"), [("UNKNOWN", True), ("UNIQUE", False), ("MULTIPLE", False)])
def test_an_equilibrium_elsewhere_refutes_a_judged_one_only_if_all_are_known(monkeypatch, known, reproduced):
    """Many clients in few dimensions nearly have a face of equilibria, of which an enumeration may know another point."""
    game, budget = random_game(3, 5)
    solution = game.solve(budget)
    elsewhere = dataclasses.replace(
        game.equilibria(solution.payments), items=(game.equilibrium(0.5 * game.costs),),
        uniqueness=sf.Uniqueness[known], reason="made up",
    )  # fmt: skip
    monkeypatch.setattr(mechanism, "enumerate_equilibria", lambda *_: elsewhere)
    equilibrium, found = mechanism.play_back(game, solution.payments, solution.participation)
    assert found is reproduced
    assert equilibrium.status is sf.Status.CERTIFIED
    assert equilibrium.uniqueness is sf.Uniqueness[known]


def test_a_floor_that_is_met_without_payments_needs_no_search_of_its_own(monkeypatch):
    game, budget = random_game(3, 5)
    unpaid = game.equilibrium()
    expected = game.solve(budget, min_total=0.5 * unpaid.total)
    asked = []
    search = mechanism._cheapest_admissible
    monkeypatch.setattr(
        mechanism, "_cheapest_admissible", lambda *arguments: asked.append(1) or search(*arguments)
    )
    free = game.solve(budget, min_total=0.5 * unpaid.total)
    assert not asked
    assert free.status is sf.Status.CERTIFIED
    assert free.objective == expected.objective
    dear = game.solve(budget, min_total=1.001 * unpaid.total)
    assert asked
    assert dear.equilibrium.total >= unpaid.total

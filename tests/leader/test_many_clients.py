"""What is done differently for very many clients, against what is done for few."""

import weakref
from dataclasses import replace

import numpy as np
import pytest

import stackfu as sf
from stackfu.judging import bound_at_scale
from stackfu.judging import bound_check as judge
from stackfu.judging import rows as judged_rows
from stackfu.judging.bound_at_scale import ScaleChecker, _Streams
from stackfu.judging.bound_check import check_bound
from stackfu.judging.bound_formula import Checker
from stackfu.judging.large_space import LargeSpace
from stackfu.judging.numbers import IntervalArithmetic
from stackfu.judging.space import Space
from stackfu.leader.certified import certificate_builder, knots, large, memory, sifting
from stackfu.leader.certified import payment_bound as bound
from stackfu.leader.certified.large import search_large
from stackfu.leader.certified.normalised import certificate_knot, normalised
from stackfu.leader.certified.payment_bound import (
    BoundProblem,
    Multipliers,
    ball,
    box_margin,
    classify,
    interpolate,
)
from stackfu.model import Objective
from stackfu.results.certificate import LeaderCertificate, Leaf, Split


def small_game(gram=False, dtype=np.float64):
    rng = np.random.default_rng(3)
    points = (0.2 * rng.normal(size=(43, 4))).astype(dtype)
    sizes = rng.uniform(1.0, 3.0, 43)
    rows = points.astype(float)
    embeddings = (
        sf.MeanEmbeddings.from_gram(rows @ rows.T) if gram else sf.MeanEmbeddings.from_features(points)
    )
    game = sf.StackelbergGame(embeddings, sizes, range(3), costs=rng.lognormal(-4.0, 1.0, 40))
    return game, 0.1 * game.full_participation_price


def random_problem(rng, count=300, width=4, **changes):
    return BoundProblem(
        **{
            "alpha": rng.dirichlet(np.ones(count)),
            "theta": rng.uniform(0.1, 3.0, count),
            "points": rng.normal(size=(count, width)),
            "loss_square": 1.0,
            "loss_constant": 0.1,
            "noise": rng.uniform(0.0, 0.1, count),
            "loss_weight": 1.0,
            "payment_weight": 0.2,
            "payment_unit": 1.0,
            "budget": 0.3,
            "loss_cap": np.inf,
            "client_sampling": 0.01,
            "loss_sampling": 0.01,
            **changes,
        }
    )


def random_multipliers(rng, problem, total):
    count = len(problem.alpha)
    rows = rng.exponential(size=count) * (rng.uniform(size=count) < 0.2) * 0.02
    centre = rng.dirichlet(np.ones(count)) @ problem.points
    return Multipliers.of(problem, total, 1.0, rng.exponential(), 0.0, rng.normal() * 0.1, rows, centre)


@pytest.mark.parametrize("seed", range(8))
def test_passes_on_all_cores_say_what_the_plain_ones_say(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    knots = [random_multipliers(rng, problem, s) for s in (0.2, 0.9)]
    low, high = np.sort(rng.uniform(0.25, 0.85, 2))
    ends = [interpolate(*knots, s) for s in (low, high)]
    paid = rng.uniform(size=300) < 0.1
    volunteer = ~paid & (rng.uniform(size=300) < 0.1)

    def everything():
        known = classify(problem, low, high, paid, volunteer)
        margin = box_margin(problem, low, high, *ends, known, 0.5)
        alone = box_margin(problem, low, high, knots[0], ends[1], known, 0.5)
        near, far = ball(problem, *ends, min(margin, -1e-3))
        again = classify(problem, low, high, paid, volunteer, near, far)
        closer = ball(problem, knots[1], knots[1], -1e-3, near, far)
        return known, again, [margin, alone, *near, *far, *closer[0], *closer[1]]

    plain = everything()
    monkeypatch.setattr(bound, "MANY", 1)
    fast = everything()
    assert np.allclose(plain[2], fast[2], rtol=1e-12, atol=1e-14)
    for before, after in zip(plain[:2], fast[:2], strict=True):
        assert (before is None) == (after is None)
        if before is not None:
            assert np.array_equal(before.paid, after.paid)
            assert np.array_equal(before.volunteer, after.volunteer)
            assert np.allclose(before.ceiling, after.ceiling, rtol=1e-14)


def random_certificate(game, objective, rng, lower, steps=((0, 1),)):
    problem = normalised(game, objective)
    knots = []
    for total in (0.3, 0.8):
        rows = rng.exponential(size=game.count) * (rng.uniform(size=game.count) < 0.3) * 0.01
        centre = problem.place.combine(rng.dirichlet(np.ones(game.count)))
        knots.append(
            certificate_knot(problem, Multipliers.of(problem, total, 1.0, 0.1, 0.0, 0.0, rows, centre))
        )
    return LeaderCertificate(lower, tuple(knots), (Split(0.35), Leaf(((0, 0),)), Leaf(steps)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("finite_sample", [False, True])
def test_the_checker_at_scale_says_what_balls_say(dtype, finite_sample):
    """Margins of random multipliers, of one step and after balls: nearly those of ball arithmetic, and never above them."""
    game, budget = small_game(dtype=dtype)
    objective = Objective(budget, finite_sample=finite_sample)
    rng = np.random.default_rng(0)
    checker = ScaleChecker(game, objective)
    assert (checker.space.reach >= Space(game, objective, IntervalArithmetic()).reach).all()
    checker.space.reach = Space(
        game, objective, IntervalArithmetic()
    ).reach  # all pairs are too many at scale
    for trial in range(8):
        steps = (((0, 1),), ((0, 0), (1, 1), (0, 1)))[trial % 2]
        for lower in (-1e3, 1.0):  # what holds easily, and what the last step falls short of
            certificate = random_certificate(game, objective, rng, lower, steps)
            exact = check_bound(game, objective, certificate, "balls")
            fast = checker.check(certificate)
            assert fast.passed == exact.passed
            assert fast.margin <= exact.margin
            assert fast.margin == pytest.approx(exact.margin, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_checker_reads_features_in_blocks_or_by_kernels_alike(dtype, monkeypatch):
    game, budget = small_game(dtype=dtype)
    objective = Objective(budget)
    blocks = ScaleChecker(game, objective).space
    monkeypatch.setattr(judged_rows, "LARGE", 1)
    kernels = ScaleChecker(game, objective).space
    for name in ("diagonal", "target_pull", "loss_constant"):
        a, b = getattr(blocks, name), getattr(kernels, name)
        assert np.all(a.low <= b.high)
        assert np.all(b.low <= a.high)
        assert np.allclose(a.low, b.low, atol=1e-13)
        assert np.allclose(a.high, b.high, atol=1e-13)


@pytest.mark.parametrize("sampling", [0.0, 1e-4])
def test_the_checker_at_scale_knows_of_clients_what_the_plain_one_knows(sampling):
    """Who is paid, who volunteers, upper bounds of their distances, and which boxes are empty; but for the last digits."""
    game, budget = small_game()
    game = game.replace(sampling_constant=sampling * game.geometry.scale * game.sizes.sum())
    goal = Objective(budget)
    certificate = LeaderCertificate(0.0, (), (Leaf(((0, 0),)),))
    arithmetic, rng = IntervalArithmetic(), np.random.default_rng(6)
    plain = Checker(Space(game, goal, arithmetic), goal, certificate)
    fast = _Streams(LargeSpace(game, goal, arithmetic), goal, certificate)
    seen = set()
    for low in (0.0, 0.02, 0.4, 0.7):
        for some in (0.0, 0.1):
            ends = np.array([[low]]), np.array([[low + 0.05]])
            middle = np.asarray(plain.theta_low * rng.uniform(0.2, 1.6) * (low + 0.02))[None, :]
            near, far = (
                middle * rng.uniform(0.7, 1.0, middle.shape),
                middle * rng.uniform(1.0, 1.3, middle.shape),
            )
            paid = rng.uniform(size=middle.shape) < some
            volunteer = ~paid & (rng.uniform(size=middle.shape) < some)
            (known, empty), (other, also) = (
                c.classify(*ends, paid, volunteer, near, far) for c in (plain, fast)
            )
            assert empty == also
            assert np.array_equal(known.paid, other.paid)
            assert np.array_equal(known.volunteer, other.volunteer)
            assert (other.ceiling >= far).all()
            assert np.allclose(known.ceiling, other.ceiling, rtol=1e-14)
            seen |= {
                ("empty", bool(empty)),
                ("paid", bool(known.paid.any())),
                ("volunteer", bool(known.volunteer.any())),
            }
    assert len(seen) == 6  # each of them happened, and each did not


def test_a_checker_that_keeps_few_knots_proves_the_same(monkeypatch):
    game, budget = small_game()
    found = game.solve(budget, gap=1e-2)
    monkeypatch.setattr(bound_at_scale, "MOST_KEPT", 0)
    monkeypatch.setattr(bound_at_scale, "FEWEST_KEPT", 2)
    lower = found.certificate.lower - 0.1 * abs(found.certificate.lower)  # caps are not sharpened at scale
    assert ScaleChecker(game, Objective(budget)).check(replace(found.certificate, lower=lower))


def test_a_knot_of_very_many_clients_is_held_once():
    game, budget = small_game()
    goal = Objective(budget)
    certificate = random_certificate(game, goal, np.random.default_rng(0), 0.0)
    streams = _Streams(LargeSpace(game, goal, IntervalArithmetic()), goal, certificate)
    knot = streams.multipliers.knots([1])
    for end in ("low", "high"):
        assert np.shares_memory(getattr(knot.inner, end), getattr(knot.centres[0].inner, end))


def test_moved_data_break_a_certificate_at_scale():
    game, budget = small_game()
    found = game.solve(budget, gap=1e-3)
    objective = Objective(budget)
    higher = replace(found.certificate, lower=1.02 * found.objective)
    assert not ScaleChecker(game, objective).check(higher)
    broken = replace(found.certificate.knots[0], level=np.nan)
    assert not ScaleChecker(game, objective).check(replace(found.certificate, knots=(broken,)))


def test_samples_of_those_in_doubt_lead_to_the_prices_of_everybody(monkeypatch):
    """The bound from samples of a few hundred is that of the program with everybody in it."""
    rng = np.random.default_rng(1)
    count = 6000
    points = (0.3 * rng.normal(size=(count + 60, 6))).astype(np.float32)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), rng.pareto(2.0, count + 60) + 1.0, range(60),
        costs=rng.lognormal(0.0, 1.0, count) / count,
    )  # fmt: skip
    budget = 0.05 * game.full_participation_price
    problem = normalised(game, Objective(budget))
    unpaid = game.equilibrium()
    total = 1.05 * unpaid.total
    distances = game.profile(unpaid.participation).to_clients / problem.unit_square
    near, far = 0.9 * distances, 1.1 * distances
    restriction = sifting.Restriction(far <= problem.theta * total, near > problem.theta * total, far)
    monkeypatch.setattr(sifting, "WHOLE", 10_000)
    whole = sifting.solve_at(problem, total, restriction)
    monkeypatch.setattr(sifting, "WHOLE", 0)
    monkeypatch.setattr(sifting, "AT_LEAST", 100)
    sampled = sifting.solve_at(problem, total, restriction, enough=1e-4 * whole.value, exact=False)
    assert sampled.bound <= whole.value * (1 + 1e-6)
    assert sampled.bound == pytest.approx(whole.bound, rel=1e-3)


def test_what_is_done_for_very_many_clients_is_right_for_few(monkeypatch):
    """Passes on all cores, knots in single precision, solves before halving: forced on a small game."""
    game, budget = small_game(dtype=np.float32)
    objective = Objective(budget)
    reference = game.equilibrium().server_loss
    options = {"gap": 1e-3 * reference, "time_limit": np.inf, "max_nodes": 10_000}
    starts = (game.equilibrium().participation,)
    plain = search_large(game, objective, starts=starts, **options)
    for module, name in ((bound, "MANY"), (large, "MANY"), (knots, "COMPACT"), (judge, "AT_SCALE")):
        monkeypatch.setattr(module, name, 1)
    many = search_large(game, objective, starts=starts, **options)
    for found, other in ((plain, many), (many, plain)):
        assert found.status is sf.Status.CERTIFIED
        assert found.bound <= other.best.value
        assert check_bound(game, objective, found.certificate, "balls")


@pytest.mark.parametrize("gram", [False, True])
def test_knots_that_are_forgotten_come_back(gram, monkeypatch):
    """Products of all but two knots are dropped and worked out again: what is proved does not change."""
    monkeypatch.setattr(knots, "MOST_KEPT", 0)
    monkeypatch.setattr(knots, "FEWEST_KEPT", 2)
    game, budget = small_game(gram)
    objective = Objective(budget)
    problem = normalised(game, objective)
    rng = np.random.default_rng(2)
    found = []
    for total in (0.2, 0.4, 0.6, 0.8):
        rows = rng.exponential(size=game.count) * (rng.uniform(size=game.count) < 0.3) * 0.01
        centre = problem.place.combine(rng.dirichlet(np.ones(game.count)))
        found.append(Multipliers.of(problem, total, 1.0, 0.1, 0.0, 0.3, rows, centre))
    held = knots.Knots(problem)
    assert [held.add(y) for y in found] == [0, 1, 2, 3]
    assert len(held._kept) == 2
    for i in (0, 3, 1, 1, 2, 0):
        for name in ("rows", "along", "slope", "pull"):
            assert np.allclose(getattr(held[i], name), getattr(found[i], name), rtol=1e-12, atol=1e-14)
        assert (held[i].level, held.total(i)) == (0.3, found[i].total)
        assert np.array_equal(held.without_products(i).rows, found[i].rows)
    assert len(held._kept) == 2
    reference = game.equilibrium().server_loss
    run = search_large(
        game, objective, gap=1e-2 * reference, time_limit=np.inf, max_nodes=10_000,
        starts=(game.equilibrium().participation,),
    )  # fmt: skip
    assert run.status is sf.Status.CERTIFIED
    assert check_bound(game, objective, run.certificate, "balls")


def test_no_time_at_all_still_returns_the_unpaid_outcome_or_better():
    game, budget = small_game()
    unpaid = game.equilibrium()
    found = search_large(
        game, Objective(budget), gap=0.0, time_limit=0.0, max_nodes=10, starts=(unpaid.participation,)
    )
    assert found.status is sf.Status.TIME_LIMIT
    assert found.best.value <= unpaid.server_loss * (1 + 1e-12)
    assert found.bound <= found.best.value


def test_inner_products_that_take_longer_to_read_than_there_is_time_are_not_read(monkeypatch, counted_clock):
    game, budget = small_game(gram=True)
    monkeypatch.setattr(certificate_builder, "ALL_PAIRS", 1)
    seen = []
    monkeypatch.setattr(certificate_builder, "held_products", lambda *game: seen.append(game))
    options = {"gap": 0.0, "max_nodes": 1, "starts": (game.equilibrium().participation,)}
    search_large(game, Objective(budget), time_limit=np.inf, **options)
    assert seen
    seen.clear()
    monkeypatch.setattr(certificate_builder, "TIMED", 2)
    monkeypatch.setattr(certificate_builder, "CAUTION", 1e9)
    found = search_large(game, Objective(budget), time_limit=60.0, **options)
    assert not seen
    assert (found.status, found.bound) == (sf.Status.TIME_LIMIT, -np.inf)


def test_profiles_to_start_from_are_not_kept(monkeypatch):
    game, budget = small_game()
    given, alive = [], []

    def profiles():
        for share in (1.0, 0.5, 0.6):
            x = np.full(game.count, share)
            given.append(weakref.ref(x))
            yield x
            del x

    def look(search):
        alive.extend(x() is not None for x in given)
        return iter(())

    monkeypatch.setattr(large._Search, "explore", look)
    options = {"gap": 0.0, "time_limit": np.inf, "max_nodes": 2}
    with pytest.raises(
        sf.ConvergenceError
    ):  # none of these keeps the budget, and nothing better was looked for
        search_large(game, Objective(budget), starts=profiles(), **options)
    assert alive == [True, False, False]  # the first is where local search begins


def test_what_is_freed_is_given_back_where_clients_are_very_many(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "_trim", lambda: calls.append)
    game, budget = small_game()
    starts = (game.equilibrium().participation,)
    options = {"gap": 0.0, "time_limit": np.inf, "max_nodes": 3, "starts": starts}
    game.solve(budget, gap=1e-3)
    search_large(game, Objective(budget), **options)
    assert not calls
    monkeypatch.setattr(memory, "COMPACT", 1)
    game.solve(budget, gap=1e-3)
    assert len(calls) == 3  # before the search, before payments are played back, and after that
    search_large(game, Objective(budget), **options)
    assert len(calls) > 5


@pytest.mark.skipif(memory._trim() is None, reason="the C library has no malloc_trim")
def test_the_c_library_is_asked_in_its_own_words():
    assert memory._trim()(0) in (0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_weighted_quantile_of_very_many_values_is_that_of_sorting_all(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=120_000) ** 3
    if seed % 2:
        values = values.round(1)  # many ties
    weights = rng.pareto(1.5, size=len(values))
    weights /= weights.sum()
    for wanted in (-0.1, 1e-4, 0.3, 0.5, 0.999, 1.0, 2.0):
        order = np.argsort(values, kind="stable")
        at = min(int(np.searchsorted(np.cumsum(weights[order]), wanted)), len(values) - 1)
        found = sifting.filled_at(values, weights, wanted)
        # sums in another order may stop at a neighbour
        near = values[order[[max(at - 1, 0), min(at + 1, len(values) - 1)]]]
        assert near[0] <= found <= near[1]


@pytest.mark.parametrize(("width", "spanned"), [(5, True), (600, False)])
def test_many_clients_in_few_directions_need_no_pass_over_all_pairs(width, spanned):
    """What coordinates give is what all pairs give; where the basis leaves something out, all pairs are asked."""
    count = 2100
    rng = np.random.default_rng(width)
    points = rng.normal(size=(count, width)) / np.sqrt(width)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(points @ points.T), np.ones(count), range(3), costs=np.ones(count - 3)
    )
    place = normalised(game, Objective(budget=1.0)).place
    assert place._spanned is spanned
    weights = rng.normal(size=game.count)
    products = place.inner(weights)
    place.__dict__["_spanned"] = False
    size = np.sqrt(place.diagonal.max() * place.dot(weights, weights))
    assert products == pytest.approx(place.inner(weights), abs=1e-11 * size)

"""The search for any number of clients: against the small one, against other searches, and its certificates against the judge."""

import gc
import itertools
import os
import weakref

import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf
from stackfu.judging.bound_check import check_bound
from stackfu.leader.certified import boxes, large, totals
from stackfu.leader.certified.candidates import Candidates
from stackfu.leader.certified.large import search_large
from stackfu.leader.certified.normalised import normalised
from stackfu.leader.certified.payment_bound import box_margin, classify
from stackfu.leader.certified.small_search import search
from stackfu.model import Objective

#: A limit that only a search which does not end meets, however busy the machine is.
LONG = np.inf


def federation(count, width, seed=0, *, gram=False, share=0.05, cost=3.0):
    """Clusters of clients whose costs per sample differ by cluster and by client; a budget that binds."""
    rng = np.random.default_rng([count, seed])
    gone, clusters = max(count // 50, 3), 20
    who = rng.integers(0, clusters, count + gone)
    points = rng.normal(size=(clusters, width))[who] + rng.normal(size=(count + gone, width))
    points = (0.35 / np.sqrt(width) * points).astype(np.float32)
    sizes = rng.pareto(2.0, size=count + gone) + 1
    alpha = sizes[gone:] / sizes[gone:].sum()
    kappa = np.exp(rng.normal(size=count) + rng.normal(size=clusters)[who[gone:]])
    rows = points.astype(float)
    embeddings = (
        sf.MeanEmbeddings.from_gram(rows @ rows.T) if gram else sf.MeanEmbeddings.from_features(points)
    )
    game = sf.StackelbergGame(embeddings, sizes, range(gone), costs=cost * alpha * kappa / (alpha @ kappa))
    return game, share * game.full_participation_price


def run(game, objective, gap=1e-3, **options):
    unpaid = game.equilibrium()
    reference = unpaid.server_loss
    starts = (unpaid.participation, np.ones(game.count))
    options = {"time_limit": LONG, "max_nodes": 100_000, **options}
    return search_large(game, objective, gap=gap * reference, starts=starts, **options), reference


def owes(game, objective, found, reference, gap):
    """What every finished run owes: a gap, payments that induce the profile within the budget, and a certificate."""
    assert found.status is sf.Status.CERTIFIED
    assert found.best.value - found.bound <= gap * reference * (1 + 1e-9)
    assert found.bound <= found.best.value
    assert found.best.spend <= objective.budget * (1 + 1e-9)
    assert game.residual(found.best.payments, found.best.x) <= 1e-9
    assert check_bound(game, objective, found.certificate, "intervals")


#: Hundreds of games where properties are looked at deeply, thirty otherwise.
SEEDS = 60 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 6


@pytest.mark.parametrize(("count", "seed"), [(n, s) for n in (4, 8, 15, 30, 60) for s in range(SEEDS)])
def test_it_agrees_with_the_search_for_few_clients(count, seed):
    game, budget = random_game(seed, count)
    objective = Objective(budget)
    large_run, reference = run(game, objective, 1e-3)
    small_run = search(
        game,
        objective,
        gap=1e-4 * reference,
        time_limit=LONG,
        max_nodes=10_000,
        starts=(game.equilibrium().participation,),
    )
    assert large_run.status is sf.Status.CERTIFIED
    assert large_run.bound <= small_run.best.value * (1 + 1e-12)
    assert small_run.bound <= large_run.best.value * (1 + 1e-12)
    assert check_bound(game, objective, large_run.certificate, "intervals")
    assert large_run.best.value <= small_run.best.value + 1e-3 * reference


def test_multipliers_for_what_balls_told_are_tried_where_the_balls_tell_it():
    """Thirty clients of whom balls decide all one after the other: without those balls multipliers for the rest prove nothing."""
    game, budget = federation(30, 128, 3)
    unpaid = game.equilibrium()
    gap = 1e-6 * unpaid.server_loss
    found = search(
        game, Objective(budget), gap=gap, time_limit=LONG, max_nodes=300, starts=(unpaid.participation,)
    )
    assert found.status is sf.Status.CERTIFIED
    assert found.best.value - found.bound <= gap
    assert check_bound(game, Objective(budget), found.certificate)


def test_a_hundred_clients_of_whom_balls_decide_all_close_to_a_hundred_thousandth():
    game, budget = federation(100, 128, 1)
    found, reference = run(game, Objective(budget), 1e-5, max_nodes=250)
    owes(game, Objective(budget), found, reference, 1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"finite_sample": True}, {"payment_weight": 0.3, "budget": np.inf}], ids=str
)
def test_the_method_made_for_it_says_what_the_cone_solver_says(changes, monkeypatch):
    game, budget = federation(40, 16, 1)
    objective = Objective(**{"budget": budget, **changes})
    known = totals.Totals(game, objective)
    nobody = np.zeros(40, dtype=bool)
    classes = classify(known.problem, 0.2, 1.0, nobody, nobody)
    unpaid = game.equilibrium().total
    for total in np.linspace(0.8 * unpaid, 0.95, 6):
        monkeypatch.setattr(totals, "CONE", 10**6)
        cone = known.solve(total, classes)
        assert not known.slices
        monkeypatch.setattr(totals, "CONE", 0)
        before = known.solves
        made_for_it = known.solve(total, classes)
        assert known.slices
        known.slices = 0
        if cone.excess <= 1e-7:
            assert known.solves == before, "the cone solver was asked after all"
            assert made_for_it.value == pytest.approx(cone.value, rel=1e-6)
            assert made_for_it.bound == pytest.approx(cone.bound, rel=1e-6)
        else:
            assert made_for_it.bound > cone.value


@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_two_hundred_clients(seed, gram):
    game, budget = federation(200, 16, seed, gram=gram)
    found, reference = run(game, Objective(budget))
    owes(game, Objective(budget), found, reference, 1e-3)
    assert found.best.value < 0.9 * reference


@pytest.mark.parametrize(
    "changes",
    [
        {"finite_sample": True},
        {"min_total": 0.55},
        {"payment_weight": 0.05},
        {"payment_weight": 1.0, "budget": np.inf},
        {"max_loss": 0.001},
        {"loss_weight": 0.0, "payment_weight": 1.0, "max_loss": 0.001},
    ],
    ids=lambda c: " ".join(c),
)
def test_every_option(changes):
    # without a budget many clients are undecided, so fewer of them will do
    game, budget = federation(110 if "budget" in changes else 150, 12)
    unpaid = game.equilibrium()
    reference = game.loss_of(unpaid.profile, changes.get("finite_sample", False))
    if "max_loss" in changes:
        changes = {**changes, "max_loss": 0.5 * reference}
    objective = Objective(**{"budget": budget, **changes})
    options = {name: value for name, value in changes.items() if name != "budget"}
    found = game.solve(None if np.isinf(objective.budget) else budget, gap=1e-3, time_limit=LONG, **options)
    scale = reference if objective.loss_weight else objective.payment_weight * game.full_participation_price
    assert found.status is sf.Status.CERTIFIED, found.message
    assert found.gap <= 1e-3 * scale * (1 + 1e-9)
    assert found.spend <= objective.budget * (1 + 1e-9)
    assert found.equilibrium.residual <= 1e-9
    assert found.equilibrium.total >= objective.min_total * (1 - 1e-9)
    assert found.server_loss <= objective.max_loss * (1 + 1e-9)
    assert check_bound(game, objective, found.certificate, "intervals")


def special(name):
    """Games at the edges: nobody must be paid, everybody must, one owns nearly everything, all alike but one."""
    rng = np.random.default_rng(5)
    n = 80
    points, sizes, costs = rng.normal(size=(n + 2, 6)) * 0.3, rng.uniform(1, 3, n + 2), None
    scale = {"all volunteers": 1e-3, "all paid": 1e3}.get(name, 1.0)
    if name == "one owns 99%":
        sizes[2] = 99 * sizes[3:].sum()
    if name == "twins but one":
        points[2:-1] = points[2]
        points[-1] += 1.0
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), sizes, range(2), costs=costs, cost_scale=scale
    )
    return game, 0.05 * max(game.full_participation_price, 1e-3 * game.costs.sum())


@pytest.mark.parametrize("name", ["all volunteers", "all paid", "one owns 99%", "twins but one"])
def test_games_at_the_edges(name):
    game, budget = special(name)
    found, reference = run(game, Objective(budget), 1e-2)
    assert check_bound(game, Objective(budget), found.certificate, "intervals")
    assert found.bound <= found.best.value <= reference * (1 + 1e-12)
    other = search(game, Objective(budget), gap=1e-2 * reference, time_limit=LONG, max_nodes=1000,
                   starts=(game.equilibrium().participation,))  # fmt: skip
    assert found.bound <= other.best.value * (1 + 1e-12)
    assert other.bound <= found.best.value * (1 + 1e-12)


def test_every_incumbent_lies_above_every_bound(monkeypatch):
    """Whatever feasible point is met, at any time, no bound issued at any time lies above it; bounds rise, incumbents fall."""
    game, budget = federation(150, 10, 3)
    met, offer = [], Candidates._keep
    monkeypatch.setattr(Candidates, "_keep", lambda self, c: (met.append(c), offer(self, c))[1])
    found, _ = run(game, Objective(budget), 1e-4)
    bounds = [record["lower"] for record in found.history] + [found.bound]
    values = [c.value for c in met if c is not None]
    assert len(values) > 3
    assert max(bounds) <= min(values) * (1 + 1e-12)
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise([r["lower"] for r in found.history]))
    assert all(a >= b for a, b in itertools.pairwise([r["upper"] for r in found.history]))


def test_no_random_or_local_search_beats_the_bound_of_a_thousand_clients():
    game, budget = federation(1000, 24, share=0.02)
    objective = Objective(budget)
    found, reference = run(game, objective, 1e-2)
    owes(game, objective, found, reference, 1e-2)
    candidates = Candidates(game, objective, normalised(game, objective))
    rng = np.random.default_rng(0)
    x = found.best.x
    for step in range(150):
        if step % 3 == 0:
            trial = rng.uniform(size=game.count) ** rng.choice([0.3, 1.0, 3.0])
        else:
            trial = np.clip(
                x + rng.normal(size=game.count) * (rng.uniform(size=game.count) < 0.02) * 0.1, 0, 1
            )
        candidate = candidates.realise(trial)
        if candidate is not None:
            assert candidate.value >= found.bound
            x = candidate.x if candidate.value < game.server_loss(x) else x


@pytest.mark.parametrize("gram", [False, True])
def test_wrong_multipliers_give_a_valid_if_weak_bound(gram):
    game, budget = federation(60, 5, gram=gram)
    objective = Objective(budget)
    problem = normalised(game, objective)
    candidates = Candidates(game, objective, problem)
    rng = np.random.default_rng(1)
    unpaid = game.equilibrium()
    profiles = [
        unpaid.participation,
        *(np.clip(unpaid.participation + rng.normal(size=60) * 0.05, 0, 1) for _ in range(200)),
    ]
    feasible = [c for c in map(candidates.realise, profiles) if c is not None]
    assert feasible
    nobody = np.zeros(60, dtype=bool)
    for _ in range(200):
        low, high = np.sort(rng.uniform(0.05, 1.0, 2))
        ends = [
            large.Multipliers.of(
                problem, s, 1.0, rng.exponential(), 0.0, rng.normal() * 0.1,
                rng.exponential(size=60) * (rng.uniform(size=60) < 0.1) * 0.01,
                problem.place.combine(rng.dirichlet(np.ones(60))),
            )
            for s in (low, high)
        ]  # fmt: skip
        classes = classify(problem, low, high, nobody, nobody)
        bound = box_margin(problem, low, high, *ends, classes, 0.0) * problem.unit_loss
        for candidate in feasible:
            if low <= float(game.alpha @ candidate.x) <= high:
                assert candidate.value >= bound


def test_an_interrupt_returns_the_incumbent_and_a_valid_bound():
    game, budget = federation(200, 16)

    def stop(record):
        if record["node"] == 4:
            raise KeyboardInterrupt

    found, reference = run(game, Objective(budget), 1e-6, callback=stop)
    assert found.status is sf.Status.INTERRUPTED
    assert check_bound(game, Objective(budget), found.certificate, "intervals")
    assert -np.inf < found.bound <= found.best.value <= reference


@pytest.mark.parametrize("moment", [1, 2, 7, 20, 60, 150, 400, 900])
def test_an_interrupt_at_any_moment_loses_no_bound(moment, monkeypatch):
    """Between two boxes, in the middle of one, before the first: what is claimed then is what the judge accepts."""
    game, budget = federation(120, 6, 2)
    best = game.solve(budget, gap=1e-3).objective
    calls, original = itertools.count(1), boxes.box_margin

    def interrupted(*arguments):
        if next(calls) == moment:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(boxes, "box_margin", interrupted)
    found = game.solve(budget, gap=1e-6)
    assert found.status in (sf.Status.INTERRUPTED, sf.Status.CERTIFIED)
    assert found.lower_bound <= best * (1 + 1e-12)
    assert found.lower_bound <= found.objective
    assert moment > 2 or found.status is sf.Status.INTERRUPTED
    assert found.certificate is None or check_bound(game, Objective(budget), found.certificate, "intervals")


def test_the_gap_falls_and_progress_shows_both_of_its_ends(monkeypatch):
    from contextlib import contextmanager

    from stackfu import progress

    lines, records = [], []

    @contextmanager
    def line(title):
        assert title == "certified"
        yield lines.append

    monkeypatch.setattr(progress, "_terminal_line", line)
    game, budget = federation(150, 10, 1)
    found = game.solve(budget, gap=1e-4, time_limit=LONG, progress=True, callback=records.append)
    gaps = [record["upper"] - record["lower"] for record in records]
    assert len(gaps) > 3
    assert all(after <= before for before, after in itertools.pairwise(gaps))
    assert found.gap <= gaps[0]
    assert len(lines) == len(records)
    for text, record in zip(lines, records, strict=True):
        assert f"lower {record['lower']:.6g}" in text
        assert f"upper {record['upper']:.6g}" in text


def test_the_time_limit_leaves_a_valid_bound(counted_clock):
    game, budget = federation(300, 16)
    found, reference = run(game, Objective(budget), 0.0, time_limit=1.0)
    assert found.status is sf.Status.TIME_LIMIT
    assert check_bound(game, Objective(budget), found.certificate, "intervals")
    assert found.bound <= found.best.value <= reference


def test_nothing_of_a_search_outlives_it():
    """Knots, checker and problem of a million clients are gigabytes: no cycle may keep them until garbage is collected."""
    game, budget = federation(80, 6)
    seen = []
    gc.collect()
    gc.disable()
    try:
        search_large(
            game, Objective(budget), gap=0.0, time_limit=np.inf, max_nodes=3,
            starts=(game.equilibrium().participation,),
            callback=lambda record: seen or seen.append(weakref.ref(held())),
        )  # fmt: skip
        assert seen[0]() is None
    finally:
        gc.enable()


def held():
    """The one search that is going on."""
    (search,) = [
        x for x in gc.get_objects() if type(x) is large._Search
    ]  # isinstance would ask every object for its class
    return search


def test_sifting_reaches_the_optimum_of_all_columns(monkeypatch):
    """The same program with a small working set and with everybody in it."""
    from stackfu.leader.certified import sifting

    game, budget = federation(1500, 8, share=0.02)
    problem = normalised(game, Objective(budget))
    unpaid = game.equilibrium()
    total = 1.05 * unpaid.total
    distances = game.profile(unpaid.participation).to_clients / problem.unit_square
    volunteers = distances > problem.theta * total
    restriction = sifting.Restriction(~volunteers, volunteers, problem.reach)
    sifted = sifting.solve_at(problem, total, restriction, enough=1e-9)
    monkeypatch.setattr(sifting, "WHOLE", 10_000)
    whole = sifting.solve_at(problem, total, restriction)
    assert sifted.bound == pytest.approx(whole.bound, rel=1e-5)
    assert sifted.value == pytest.approx(whole.value, rel=1e-5)

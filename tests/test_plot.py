"""Figures show the library's numbers, on the axes they are given."""

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")
from matplotlib import pyplot as plt

import stackfu as sf
from stackfu import plot
from stackfu.demo import digits_game


@pytest.fixture(scope="module")
def game():
    return digits_game()


@pytest.fixture(scope="module")
def solution(game):
    return game.solve(0.05)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def offsets(ax):
    return np.concatenate([c.get_offsets() for c in ax.collections if len(c.get_offsets())])


def test_axes_are_taken_and_returned(game, solution):
    for draw in (
        lambda ax: plot.participation(solution, ax),
        lambda ax: plot.frontier(game.frontier([0.02, 0.1]), ax),
        lambda ax: plot.level(solution.equilibria, ax, points=10),
        lambda ax: plot.dynamics(game, solution.payments, ax=ax, rounds=3),
        lambda ax: plot.distance_map(game, ax),
    ):
        _, ax = plt.subplots()
        assert draw(ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert len(plt.get_fignums()) == 1  # no figure besides the given one
        plt.close("all")


def test_participation_places_every_client(game, solution):
    ax = plot.participation(solution)
    shown = offsets(ax)
    assert {tuple(p) for p in shown} == set(zip(game.heterogeneity, game.alpha, strict=True))
    colours = np.concatenate([c.get_array() for c in ax.collections])
    np.testing.assert_allclose(np.sort(colours), np.sort(solution.participation))


def test_participation_without_payments_or_removed_clients():
    emb = sf.MeanEmbeddings.from_features(np.random.default_rng(0).normal(size=(4, 3)))
    game = sf.StackelbergGame(emb, [1, 2, 3, 4])
    ax = plot.participation(game.equilibrium())
    assert "mean" in ax.get_xlabel()
    assert len(offsets(ax)) == 4


def test_frontier_shows_losses_and_the_bound(game):
    traced = game.frontier([0.02, 0.1])
    other = game.solve(0.05, method="uniform")
    ax = plot.frontier(traced, others=[other])
    np.testing.assert_array_equal(
        ax.lines[0].get_xydata(), np.column_stack([traced.budgets, traced.objectives])
    )
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[0.05, other.objective]])
    region = ax.collections[0].get_paths()[0]
    assert set(traced.lower_bounds) <= set(region.vertices[:, 1])
    # between two budgets only the bound of the larger one is proved: the region is a step, not the line between them
    first, last = traced.lower_bounds
    assert first > last
    assert region.contains_point((0.03, last - 1e-6))
    assert not region.contains_point((0.03, last + 0.3 * (first - last)))


def test_frontier_of_another_objective_draws_that_objective(game):
    traced = game.frontier([0.02, 0.1], finite_sample=True)
    ax = plot.frontier(traced)
    assert ax.get_ylabel() == "objective"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), traced.objectives)
    assert np.all(traced.objectives > traced.losses)


def test_level_marks_all_three_equilibria():
    found = sf.catalog.three_equilibria().game.equilibria()
    ax = plot.level(found, points=40)
    marked = ax.lines[-1].get_xydata()
    np.testing.assert_array_equal(marked, [[eq.total, 0.0] for eq in found])


def test_level_needs_different_data():
    found = sf.catalog.homogeneous().game.equilibria(sf.catalog.homogeneous().payments)
    with pytest.raises(sf.InputError, match="no level function"):
        plot.level(found)


def test_dynamics_draws_the_rounds_that_are_played(game, solution):
    ax = plot.dynamics(game, solution.payments, rounds=5, kind="simultaneous")
    played = [
        x for x, _ in zip(game.dynamics(solution.payments, kind="simultaneous"), range(6), strict=False)
    ]
    drawn = np.column_stack([line.get_ydata() for line in ax.lines])
    np.testing.assert_array_equal(drawn, played)


def test_distance_map_keeps_distances_that_fit_a_plane():
    points = np.random.default_rng(1).normal(size=(6, 2))
    ax = plot.distance_map(sf.MeanEmbeddings.from_features(points))
    shown = offsets(ax)
    wanted = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(shown[:, None] - shown[None], axis=2), wanted, atol=1e-7)


def test_figures_of_the_explorer_and_matplotlib_agree_on_the_level(game):
    from stackfu.followers.level import level_curve
    from stackfu.followers.qp import level_profile

    s, t = level_curve(game, np.zeros(game.count), points=30)
    assert np.all(np.diff(s) >= 0)
    for i in np.flatnonzero((s > 0) & (s < 1))[
        3::7
    ]:  # at 1 everybody is full, and t anything below its largest value
        exact = level_profile(game.geometry.gram, game.alpha, game.reluctance(), float(s[i]))[1]
        assert t[i] == pytest.approx(exact, abs=1e-6)  # the solver is no better at kinks


def test_departures_round_by_round():
    game = digits_game()
    outside = np.full(7, -np.inf)
    outside[2] = 10.0
    found = game.cascade(0.8 * game.costs, outside=outside)
    ax = plot.cascade(found)
    left, used = ax.get_lines()
    assert left.get_ydata() == pytest.approx([1.0, 6 / 7, 6 / 7])
    assert used.get_ydata() == pytest.approx(found.used)
    assert left.get_xdata()[0] == used.get_xdata()[0] == 1
    assert ax.get_title() == "6 of 7 stay"


def test_retention_shows_utilities_inside_and_outside():
    game = digits_game(sampling_constant=30.0)
    outside = np.full(7, -np.inf)
    outside[0] = -0.1
    kept = game.solve(0.3, offers="capped", outside=outside, gap=1e-2, progress=False)
    ax = plot.retention(kept)
    inside, beside = ax.get_lines()[:2]
    assert inside.get_ydata()[0] >= beside.get_ydata()[0] - 1e-9
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(kept.payouts)
    with pytest.raises(sf.InputError, match="outside"):
        plot.retention(game.solve(0.1, "posted"))


def test_dollar_signs_in_names_are_no_mathematics(game):
    names = ["5$ or \\\\6$" if k == 4 else f"$client_{k}$" for k in range(10)]
    named = game.replace(names=names)
    eq = named.equilibrium()
    for ax in (
        plot.distance_map(named),
        plot.distance_map(game.embeddings, sizes={k: 10 - k for k in range(10)}),
        plot.participation(eq),
        plot.cascade(named.cascade(outside=-0.1)),
        plot.dynamics(named, rounds=2),
        plot.retention(named.solve(0.05, offers="capped", outside=-1.0, min_total=0.1, gap=0.1)),
    ):
        ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        name.replace("$", "\\$") for name in named.names
    ]

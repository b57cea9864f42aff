"""Figures show the library's numbers, on the axes they are given."""

import dataclasses
import functools
import re

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

mpl.use("agg")
from matplotlib import pyplot as plt

import stackfu as sf
from stackfu import plot
from stackfu.demo import digits_game
from stackfu.plot.scales import outliers


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


# -------------------------------------------------------------------- names, outliers, narrow columns

COLUMN = (3.4, 2.7)
DEFAULT = (6.4, 4.8)
TOWNS = (
    "York",
    "Hull",
    "Kingston upon Hull, City of",
    "Sheffield Teaching Hospitals NHS Foundation Trust",
    "Bath",
)


@functools.lru_cache
def hospitals(count, outlier=True):
    """Clients with long names, one of which owns data that are far from all others."""
    rng = np.random.default_rng(count)
    features = 0.2 * rng.normal(size=(count + 2, 6)) + np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    if outlier:
        features[3, 3] += 6.0
    names = [f"{TOWNS[i % len(TOWNS)]} {i}" for i in range(count + 2)]
    emb = sf.MeanEmbeddings.from_features(features, names=names)
    return sf.StackelbergGame(emb, rng.integers(20, 400, count + 2), removed=names[:2], cost_scale=1.0)


def drawn(draw, size, **options):
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    draw(ax, **options)
    figure.canvas.draw()
    return ax


def written(ax):
    """The texts that are visible among the names, with the places they take."""
    return {text.get_text(): text.get_window_extent() for text in ax.texts if text.get_visible()}


def overlapping(boxes):
    boxes = list(boxes)
    return [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.padded(-0.5).overlaps(b.padded(-0.5))]


@pytest.mark.parametrize("size", [COLUMN, DEFAULT])
@pytest.mark.parametrize("count", [7, 25, 200])
def test_names_do_not_cover_each_other_and_stay_inside(count, size):
    game = hospitals(count)
    eq = game.equilibrium(0.3 * game.costs)
    for draw in (
        lambda ax, **o: plot.participation(eq, ax, **o),
        lambda ax, **o: plot.distance_map(game, ax, **o),
    ):
        ax = drawn(draw, size)
        shown = written(ax)
        assert len(shown) >= min(count, 7) - 2
        assert not overlapping(shown.values())
        assert all(
            ax.bbox.padded(1).containsx(b.x0) and ax.bbox.padded(1).containsx(b.x1) for b in shown.values()
        )
        legend = ax.get_legend()
        assert legend is None or not any(legend.get_window_extent().overlaps(box) for box in shown.values())
        plt.close("all")


@pytest.mark.parametrize("size", [COLUMN, DEFAULT])
def test_names_find_their_places_anew_when_the_figure_is_resized(size):
    game = hospitals(25)
    ax = drawn(lambda ax: plot.participation(game.equilibrium(), ax), DEFAULT)
    ax.figure.set_size_inches(size)
    ax.figure.set_dpi(60)
    ax.figure.canvas.draw()
    assert not overlapping(written(ax).values())


@pytest.mark.parametrize("labels", [True, False, 3])
def test_a_client_far_off_does_not_squeeze_the_others_and_is_named_with_its_value(labels):
    game = hospitals(25)
    far = int(np.argmax(game.heterogeneity))
    ax = drawn(lambda ax: plot.participation(game.equilibrium(), ax, labels=labels), DEFAULT)
    near = np.delete(game.heterogeneity, far)
    low, high = ax.get_xlim()
    assert low < near.min() < near.max() < high < game.heterogeneity[far]
    assert np.ptp(near) > 0.5 * (high - low)
    (said,) = [text for text in written(ax) if f"({game.heterogeneity[far]:.3g})" in text]
    assert said.startswith(game.names[far][:12])
    triangles = [line for line in ax.lines if line.get_visible() and line.get_marker() == ">"]
    assert len(triangles) == 1
    # zooming out to it shows the client itself
    ax.set_xlim(0.0, 1.1 * game.heterogeneity[far])
    ax.figure.canvas.draw()
    assert not [line for line in ax.lines if line.get_visible() and line.get_marker() == ">"]


def test_labels_say_which_clients_are_named():
    game = hospitals(25, outlier=False)
    eq = game.equilibrium()

    def names(labels):
        ax = drawn(lambda ax: plot.participation(eq, ax, labels=labels), DEFAULT)
        return set(written(ax))

    assert names(False) == names(0) == set()
    assert 0 < len(names(4)) <= 4
    assert names(["Bath 24", "York 5"]) == {"Bath 24", "York 5"}
    assert names("Bath 24") == {"Bath 24"}
    for wrong in (-1, ["Bath 2400"], "York 0"):  # York 0 is forgotten
        with pytest.raises(sf.InputError, match="labels"):
            names(wrong)


def test_shortened_names_still_differ():
    from stackfu.plot.name_labels import shortened

    twins = ["Hospital of Saint John, eastern wing, London", "Hospital of Saint Jude, western wing, London"]
    short = shortened([*twins, "York", twins[0] + "derry"], 16)
    assert len(set(short)) == 4
    assert short[2] == "York"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_outliers_are_few_and_leave_the_others_most_of_the_axis(values):
    values = np.array(values)
    far = outliers(values)
    assert far.sum() <= max(1, min(5, len(values) // 10))
    if far.any():
        assert np.ptp(values) > 3.0 * np.ptp(values[~far])


def test_prices_and_capped_offers_look_different(game):
    linear = game.solve(0.05)
    capped = game.solve(0.05, offers="capped", min_total=0.17)
    looks = []
    for result in (linear, capped, capped.equilibrium):
        ax = plot.participation(result)
        entries = [text.get_text() for text in ax.get_legend().get_texts()]
        looks.append((entries, ax.get_title().split(",")[0]))
        caps = [line for line in ax.lines if line.get_marker() == "_"]
        assert len(caps) == (0 if result is linear else 1)
        if caps:
            taken = caps[0].get_ydata()
            np.testing.assert_allclose(
                sorted(taken), sorted((game.alpha * capped.caps)[(capped.caps < 1) & (capped.caps > 0)])
            )
    (entries, title), (others, other), (_, third) = looks
    assert entries[0] == "paid per unit (area: price)"
    assert others[0] == "capped offer (area: price)"
    assert "cap: most that is taken" in others
    assert (title, other, third) == ("Prices per unit", "Capped offers", "Capped offers")


def test_two_frontiers_share_axes_and_a_solution_far_above_is_named(game):
    traced = game.frontier([0.02, 0.1])
    capped = game.frontier([0.02, 0.1], offers="capped", min_total=0.1)
    worse = dataclasses.replace(game.solve(0.05, method="uniform"), objective=1.0)
    ax = plot.frontier(capped, plot.frontier(traced, others=[worse]))
    low, high = ax.get_ylim()
    assert low < min(capped.objectives)
    assert max(traced.objectives) < high < 0.1
    entries = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "uniform, 0.05: 1, above the axis" in entries
    assert {"certified payments", "certified capped offers"} <= set(entries)


def test_many_clients_are_thin_lines_and_the_ones_that_change_most_have_names():
    game = hospitals(25)
    ax = drawn(lambda ax: plot.dynamics(game, ax=ax, rounds=4, labels=3), COLUMN)
    assert len(ax.lines) == 25
    legend = ax.get_legend()
    assert len(legend.get_texts()) == 3
    assert "22 others" in legend.get_title().get_text()
    assert plot.dynamics(game, rounds=2, labels=False).get_legend() is None


def test_embeddings_draw_themselves():
    game = hospitals(7)
    ax = game.embeddings.plot(labels=2)
    assert len(offsets(ax)) == 9
    assert len(game.embeddings.plot(labels=False).texts) == 1  # the client far off


def test_amounts_in_figures_name_their_currency(game):
    game = game.replace(currency="EUR", costs=[2e4] * game.count)
    paid = game.solve(12000.0, "uniform")
    assert re.match(r"Prices per unit, spend 12000 EUR:", plot.participation(paid).get_title())
    traced = game.frontier([12000.0], method="uniform")
    ax = plot.frontier(traced, others=[paid])
    assert ax.get_xlabel() == "budget (EUR)"
    assert "uniform, 12000 EUR" in ax.get_legend_handles_labels()[1]
    kept = game.solve(
        12000.0, offers="capped", min_total=0.1, outside=-1e6, gap=0.5, max_nodes=2, progress=False
    )
    ax = plot.retention(kept)
    assert ax.get_ylabel() == "EUR"
    assert re.match(r"spend [0-9.]+ EUR, of which [0-9.]+ EUR for staying", ax.get_title())

"""The page as text: its data are the library's, and it loads nothing from a network."""

import json
import re
import warnings

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli.budgets import even_grid
from stackfu.demo import digits_game
from stackfu.explorer import COMPARED, even_budgets, explorer_data, explorer_page, write_explorer


def test_the_data_are_the_library_s(frontier):
    game, data = frontier.game, explorer_data(frontier, "digits", compare=())
    assert data["clients"]["name"] == list(game.names)
    np.testing.assert_array_equal(data["clients"]["distance"], game.heterogeneity)
    unpaid, *paid = data["stops"]
    np.testing.assert_array_equal(unpaid["participation"], game.equilibrium().participation)
    assert unpaid["lower_bound"] is None
    assert [stop["budget"] for stop in paid] == frontier.budgets.tolist()
    assert [stop["lower_bound"] for stop in paid] == frontier.lower_bounds.tolist()
    for stop, solution in zip(paid, frontier, strict=True):
        assert stop["server_loss"] == game.server_loss(stop["participation"])
        np.testing.assert_array_equal(stop["payments"], solution.payments)
        np.testing.assert_array_equal(
            stop["utilities"], game.client_utilities(stop["payments"], stop["participation"])
        )
        np.testing.assert_array_equal(stop["change"], game.impacts(stop["participation"]).clients)
        assert sum(stop["receives"]) == pytest.approx(solution.spend)
        effects = solution.marginal_effects()
        assert stop["rates"] == (None if effects.reason else effects.together.tolist())
        np.testing.assert_array_equal(stop["values"], solution.values().shapley)
        np.testing.assert_array_equal(stop["leave_one_out"], solution.values().leave_one_out)
    assert data["game"]["step"] == frontier[0].marginal_effects().step
    assert any(stop["rates"] is not None for stop in paid)


def test_samples_are_told_beside_shares(frontier, crowd):
    for traced in (frontier, crowd):
        stop = explorer_data(traced, "x", compare=())["stops"][1]
        used = traced.game.sizes * traced[0].participation
        assert stop["used_samples"] == used.sum()
        each = stop.get("used") or [group["used_samples"] for group in stop["groups"]]
        assert sum(each) == pytest.approx(used.sum())


def test_the_page_opens_at_the_knee_or_at_a_given_budget(frontier):
    assert explorer_data(frontier, "x", compare=())["opening"] == 1
    assert explorer_data(frontier, "x", compare=(), budget=0.15)["opening"] == 3
    assert explorer_data(frontier, "x", compare=(), budget=0.14)["opening"] == 2
    assert explorer_data(frontier, "x", compare=())["stops"][0]["outcomes"] == "1, proved"


@pytest.mark.parametrize("top", [0.287, 1.0, 0.99999999, 123.4, 3e-9])
@pytest.mark.parametrize("points", [2, 7, 25])
def test_stops_are_even_round_and_reach_the_end(top, points):
    stops = np.array(even_budgets(top, points))
    assert len(stops) <= points
    assert stops[-1] >= top * (1 - 1e-9)
    assert stops[-1] - stops[0] < top  # the last step reaches the end, none lies beyond it
    np.testing.assert_allclose(np.diff(stops), stops[0], rtol=1e-9)
    digits = f"{stops[0]:.10e}".split("e")[0].rstrip("0")
    assert digits in ("1.", "1.5", "2.", "2.5", "5.")


def test_lines_to_compare_with_are_what_the_mechanisms_reach(frontier):
    game = frontier.game
    lines = {line["name"]: line["points"] for line in explorer_data(frontier, "digits")["lines"]}
    assert set(lines) == set(COMPARED)
    for name in ("haipo", "uniform"):
        found = game.solve(frontier.budgets[1], method=name)
        assert lines[name][1]["server_loss"] == found.server_loss
        assert lines[name][1]["budget"] == found.budget
    for point, solution in zip(lines["capped"], frontier, strict=True):
        # the certified plan is one of the capped ones
        assert point["server_loss"] <= solution.server_loss + solution.gap + 1e-5
        assert point["total"] >= solution.equilibrium.total * (1 - 1e-9)
    with pytest.raises(sf.InputError, match="compare"):
        explorer_data(frontier, "digits", compare=["hapio"])


def test_pages_and_derived_values_warn_of_nothing_that_was_not_asked_for():
    # costs in cents and losses in tiny units: every answer of this game uses less than a sample, and each solve says so
    game = digits_game().replace(costs=[1e6] * 7, currency="EUR", calibrated=True)
    with pytest.warns(sf.StackfuWarning, match="less than one each"):
        traced = game.frontier([0.5], gap=0.5, max_nodes=4, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", sf.StackfuWarning)
        assert len(explorer_data(traced, "cents", compare=["haipo"])["lines"]) == 1
        assert traced[0].shadow_price >= 0.0
        assert len(even_grid(game, None, 3, gap=0.5, max_nodes=4)) > 0


def test_forgotten_clients_are_on_the_map(frontier):
    game = frontier.game
    gone = explorer_data(frontier, "digits", compare=())["forgotten"]
    assert [g["name"] for g in gone] == [game.called(k) for k in game.removed]
    mean = np.zeros(10)
    mean[list(game.removed)] = game.all_sizes[list(game.removed)]
    for g, k in zip(gone, game.removed, strict=True):
        assert g["distance"] == pytest.approx(game.embeddings.mixture_distance(np.eye(10)[k], mean))


def test_offers_with_caps_are_refused(frontier):
    game = frontier.game
    capped = game.frontier([0.05], offers="capped", min_total=0.1)
    with pytest.raises(sf.InputError, match="prices per unit"):
        explorer_data(capped, "digits")


def test_many_clients_are_shown_in_groups(crowd):
    game = crowd.game
    outside = np.linspace(-0.2, 0.0, game.count)
    data = explorer_data(crowd, "crowd", outside=outside)
    assert data["clients"] is None
    assert data["lines"] == []
    assert sum(group["clients"] for group in data["groups"]) == game.count
    assert sum(group["samples"] for group in data["groups"]) == game.sizes.sum()
    stop, eq = data["stops"][1], crowd[0].equilibrium
    assert sum(group["used"] for group in stop["groups"]) == pytest.approx(eq.total)
    assert sum(group["receives"] for group in stop["groups"]) == pytest.approx(eq.spend)
    nearest = np.argsort(game.heterogeneity, kind="stable")[: data["groups"][0]["clients"]]
    assert stop["groups"][0]["participation"][2] == pytest.approx(
        np.median(eq.participation[nearest]), abs=0.05
    )
    assert sum(group["leaving"] for group in stop["groups"]) == int((eq.utilities < outside - 1e-6).sum())


def test_the_level_function_is_zero_at_the_equilibria(frontier):
    for stop in explorer_data(frontier, "digits", compare=())["stops"]:
        s, t = np.array(stop["curve"]).T
        assert np.all(np.diff(s) >= 0)
        for eq in stop["equilibria"]:
            assert abs(np.interp(eq["total"], s, t)) < 2e-3 * t.max()


def test_the_page_needs_no_network(frontier):
    page = explorer_page(frontier, "digits", compare=())
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.]+", page))
    assert addresses <= {"http://www.w3.org"}, addresses
    assert "{{" not in page
    assert 'src="' not in page


def test_a_title_cannot_break_out_of_its_place(frontier):
    page = explorer_page(frontier, "</script><script>alert(1)</script>", compare=())
    assert "<script>alert" not in page
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(held.group(1))["title"] == "</script><script>alert(1)</script>"


def test_a_game_with_several_equilibria_shows_them_all(tmp_path):
    game = sf.catalog.three_equilibria().game
    frontier = game.frontier([0.01 * game.full_participation_price])
    write_explorer(frontier, tmp_path / "three.html", "three", compare=())
    unpaid = explorer_data(frontier, "three", compare=())["stops"][0]
    assert [round(eq["total"], 4) for eq in unpaid["equilibria"]] == [0.3906, 0.5007, 0.5289]
    assert any("one of several" in sentence for sentence in unpaid["certificate"])


@pytest.mark.parametrize("removed", [(), (3,)])
def test_distances_with_and_without_removed_clients(removed):
    rng = np.random.default_rng(0)
    emb = sf.MeanEmbeddings.from_features(rng.normal(size=(5, 4)))
    game = sf.StackelbergGame(emb, [1, 2, 3, 4, 5], removed, cost_scale=1.0)
    distance = explorer_data(game.frontier([0.1]), "x", compare=())["clients"]["distance"]
    weights = np.zeros(5)
    weights[list(removed) or range(5)] = game.all_sizes[list(removed) or range(5)]
    for d, k in zip(distance, game.remaining, strict=True):
        alone = np.eye(5)[k]
        assert d == pytest.approx(emb.mixture_distance(alone, weights), rel=1e-9)

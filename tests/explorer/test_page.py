"""The page as text: its data are the library's, and it asks nobody for anything."""

import json
import re

import numpy as np
import pytest

import stackfu as sf
from stackfu.explorer import explorer_data, explorer_page, write_explorer


def test_the_data_are_the_library_s(frontier):
    game, data = frontier.game, explorer_data(frontier, "digits")
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


def test_the_level_function_is_zero_at_the_equilibria(frontier):
    for stop in explorer_data(frontier, "digits")["stops"]:
        s, t = np.array(stop["curve"]).T
        assert np.all(np.diff(s) >= 0)
        for eq in stop["equilibria"]:
            assert abs(np.interp(eq["total"], s, t)) < 2e-3 * t.max()


def test_the_page_needs_no_network(frontier):
    page = explorer_page(frontier, "digits")
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.]+", page))
    assert addresses <= {"http://www.w3.org"}, addresses
    assert "{{" not in page
    assert 'src="' not in page


def test_a_title_cannot_break_out_of_its_place(frontier):
    page = explorer_page(frontier, "</script><script>alert(1)</script>")
    assert "<script>alert" not in page
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(held.group(1))["title"] == "</script><script>alert(1)</script>"


def test_a_game_with_several_equilibria_shows_them_all(tmp_path):
    game = sf.catalog.three_equilibria().game
    frontier = game.frontier([0.01 * game.full_participation_price])
    write_explorer(frontier, tmp_path / "three.html", "three")
    unpaid = explorer_data(frontier, "three")["stops"][0]
    assert [round(eq["total"], 4) for eq in unpaid["equilibria"]] == [0.3906, 0.5007, 0.5289]
    assert any("one of several" in sentence for sentence in unpaid["certificate"])


@pytest.mark.parametrize("removed", [(), (3,)])
def test_distances_with_and_without_removed_clients(removed):
    rng = np.random.default_rng(0)
    emb = sf.MeanEmbeddings.from_features(rng.normal(size=(5, 4)))
    game = sf.StackelbergGame(emb, [1, 2, 3, 4, 5], removed, cost_scale=1.0)
    distance = explorer_data(game.frontier([0.1]), "x")["clients"]["distance"]
    weights = np.zeros(5)
    weights[list(removed) or range(5)] = game.all_sizes[list(removed) or range(5)]
    for d, k in zip(distance, game.remaining, strict=True):
        alone = np.eye(5)[k]
        assert d == pytest.approx(emb.mixture_distance(alone, weights), rel=1e-9)

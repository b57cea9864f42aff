"""Results in notebooks: tables that need nothing, frames that need pandas."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import stackfu as sf
from stackfu.html import MOST_ROWS, number

HOSTILE = ["<b>Leeds</b>", "York & Co", "<span onclick=x>Hull", '"Bath"', "Ely"]


def game(count=5, **options):
    rng = np.random.default_rng(0)
    names = HOSTILE if count == 5 else None
    emb = sf.MeanEmbeddings.from_features(rng.normal(size=(count, 3)), names=names)
    gone = "Ely" if names else 4
    return sf.StackelbergGame(emb, rng.integers(1, 9, count), removed=gone, cost_scale=1.0, **options)


class Balance(HTMLParser):
    """Counts elements that are opened and not closed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def shown(**options):
    played = game(**options)
    solution = played.solve(0.05)
    return {
        "embeddings": played.embeddings,
        "game": played,
        "equilibrium": played.equilibrium(),
        "equilibria": played.equilibria(),
        "solution": solution,
        "frontier": played.frontier([0.01, 0.05]),
        "verification": solution.verify(),
        "cascade": played.cascade(outside=-0.2),
    }


@pytest.mark.parametrize(
    "name",
    ["embeddings", "game", "equilibrium", "equilibria", "solution", "frontier", "verification", "cascade"],
)
def test_every_result_has_a_page_that_is_whole_and_escaped(name):
    page = shown()[name]._repr_html_()
    parser = Balance()
    parser.feed(page)
    assert not parser.open
    assert "<b>Leeds</b>" not in page
    assert "<span onclick" not in page  # a name that looks like a piece of the page is none
    if name in ("embeddings", "game", "equilibrium", "solution"):
        assert "&lt;b&gt;Leeds&lt;/b&gt;" in page
    assert not re.search(
        r"<thead><tr>(<th[^>]*></th>)*</tr>", page
    )  # a table without headings has no line for them
    # colours come from the page around it, so that it can be read in light and in dark
    assert not re.search(r"#[0-9a-f]{3}|rgb|white(?!-space)|black", page)


@pytest.mark.parametrize("name", ["game", "equilibrium", "equilibria", "solution", "frontier"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_constant_that_no_training_confirmed_is_called_a_guess(name, calibrated):
    page = shown(calibrated=calibrated)[name]._repr_html_()
    assert ("A guess" in page) is not calibrated


def test_predicted_changes_stand_beside_every_client():
    played = game()
    solution = played.solve(0.05)
    changes = played.impacts(solution.participation)
    for found in (solution, solution.equilibrium):
        page = found._repr_html_()
        assert all(f"<td>{change:+.3g}</td>" in page for change in changes.clients)
        assert "predicted change of its loss" in page
    assert f"{changes.worst:+.3g}" in solution._repr_html_()
    kept = solution.summary()["equilibrium"]["impacts"]
    np.testing.assert_array_equal(kept["clients"], changes.clients)
    assert kept["calibrated"] is False
    pytest.importorskip("pandas")
    np.testing.assert_array_equal(solution.to_pandas()["predicted_change"], changes.clients)


@pytest.mark.parametrize("offers", ["capped", "contract"])
def test_offers_show_their_limits_and_what_is_received(offers):
    """Retainers are received too, and count in the utility."""
    played = game()
    found = played.solve(20.0, offers=offers, min_total=0.2, max_nodes=5)
    solution = replace(found, posted=replace(found.offers, retainers=np.linspace(0.1, 0.2, played.count)))
    page = solution._repr_html_()
    assert {"capped": "Capped offers", "contract": "Contracts"}[offers] in page
    assert "for at most" in page
    rows = re.findall(r"<tr><td>.*?</tr>", page.split("for at most")[1])
    linear = solution.payments * solution.participation
    utilities = solution.equilibrium.utilities + solution.payouts - linear
    for row, cap, receives, utility in zip(rows, solution.caps, solution.payouts, utilities, strict=True):
        assert f"<td>{cap:.0%}</td>" in row
        assert f"<td>{number(receives)}</td><td>{number(utility)}</td>" in row
    assert "for at most" not in played.solve(0.05)._repr_html_()


def test_one_equilibrium_is_not_many():
    assert "1 equilibrium, and no other" in game().equilibria()._repr_html_()


def test_long_tables_are_cut_and_say_so():
    page = game(count=60)._repr_html_()
    assert page.count("<tr>") == MOST_ROWS + 2
    assert f"and {59 - MOST_ROWS} more" in page


def test_frames_hold_the_numbers():
    pytest.importorskip("pandas")
    played = game()
    solution = played.solve(0.05)
    frame = solution.to_pandas()
    assert list(frame.index) == list(played.names)
    np.testing.assert_array_equal(frame["payment"], solution.payments)
    np.testing.assert_array_equal(frame["receives"], solution.payments * solution.participation)
    np.testing.assert_array_equal(frame["utility"], solution.equilibrium.utilities)
    traced = played.frontier([0.01, 0.05]).to_pandas()
    assert list(traced.index) == [0.01, 0.05]
    assert {"spend", "server_loss", "lower_bound"} <= set(traced.columns)


def test_frames_of_embeddings_games_and_sets_of_equilibria():
    pytest.importorskip("pandas")
    played = game()
    apart = played.embeddings.to_pandas()
    assert list(apart.index) == list(apart.columns) == HOSTILE
    np.testing.assert_array_equal(apart.to_numpy(), played.embeddings.distances())
    np.testing.assert_array_equal(played.to_pandas()["cost"], played.costs)
    found = played.equilibria()
    np.testing.assert_array_equal(found.to_pandas()["E1"], found[0].participation)
    assert list(found.to_pandas().index) == list(played.names)


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    results = shown()
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name, result in results.items():
        if name != "verification":
            with pytest.raises(sf.InputError, match="pip install pandas"):
                result.to_pandas()


def test_results_draw_themselves():
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    played = game()
    for name, result in shown().items():
        if name == "verification":
            continue
        axes = pyplot.subplots()[1]
        assert (result.plot(ax=axes)) is axes
        pyplot.close(axes.figure)
    axes = sf.plot.distance_map(played)
    assert {text.get_text() for text in axes.texts} == set(HOSTILE)  # names, not numbers
    pyplot.close(axes.figure)


def test_payments_below_rounding_show_as_nothing_in_notebooks():
    page = game().equilibrium(np.full(4, 1e-15))._repr_html_()
    assert "e-1" not in page.split("predicted change")[1].split("</table>")[0]


def test_frames_of_capped_offers_hold_what_is_posted():
    pytest.importorskip("pandas")
    played = game(sampling_constant=3.0)
    solution = played.solve(0.2, offers="capped", gap=0.1, progress=False)
    frame = solution.to_pandas()
    assert frame["cap"].tolist() == solution.caps.tolist()
    assert frame["receives"].sum() == pytest.approx(solution.spend)
    assert "cap" not in played.solve(0.05).to_pandas()
    assert played.equilibrium(caps=[0.5, 1, 1, 1]).to_pandas()["cap"].tolist() == [0.5, 1, 1, 1]


def test_what_is_said_of_a_solution_ends_with_a_full_stop():
    solution = replace(game().solve(0.05), message="found elsewhere")
    assert "found elsewhere. A guess" in solution._repr_html_()


def test_a_check_is_a_row_and_a_summary_names_who_is_forgotten():
    pytest.importorskip("pandas")
    played = game()
    assert bool(played.solve(0.05).verify().to_pandas()["passed"][0])
    assert played.summary()["removed"] == [HOSTILE[4]]
    requests = sf.Requests(played.replace(removed=[]), budget=1.0)
    requests.remove([HOSTILE[1]], progress=False)
    assert requests[0].names == (HOSTILE[1],)

"""Derivatives and values on the command line and in notebooks."""

import json

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli import main
from stackfu.demo import digits_game

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")


@pytest.fixture(scope="module")
def solution():
    game = sf.StackelbergGame(
        digits_game().embeddings,
        digits_game().all_sizes,
        [0, 1, 2],
        cost_scale=1e5,
        lambda_q=1e5,
        currency="EUR",
        names=[*"012", "York", "Hull", "Bath", "Ely", "Wells", "Truro", "[b]Leeds"],
    )
    return game.solve(5000.0, progress=False)


@pytest.fixture(scope="module")
def file(solution, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "solution.json"
    solution.save(path)
    return path


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_solve_says_what_one_more_euro_brings(run, solution, file):
    code, out, _ = run("solve", file, "-b", 5000, "--sensitivity", "--values")
    assert code == 0
    effects = solution.marginal_effects()
    k = int(np.argmax(effects.together))
    assert effects.step == 1.0
    assert f"1 EUR more for {effects.names[k]} brings {effects.together[k]:.4g} samples" in out
    assert "What 1 EUR more for a client brings" in out
    assert "1 EUR more of budget" in out
    assert "Shapley value" in out
    assert "[b]Leeds" in out
    assert "%(EUR)" not in out


def test_what_one_more_euro_brings_is_what_happens(solution):
    """The rates, against equilibria at payments that are one unit of money higher."""
    effects, game = solution.marginal_effects(), solution.game
    for k in range(game.count):
        more = game.equilibrium(solution.payments + effects.step * np.eye(game.count)[k])
        change = more.samples - solution.samples
        assert change.sum() == pytest.approx(effects.together[k], rel=0.02, abs=1e-6)
        assert change[k] == pytest.approx(effects.own[k], rel=0.02, abs=1e-6)
        assert more.spend - solution.spend == pytest.approx(effects.spend[k], rel=0.02, abs=1e-6)


def test_programs_read_the_same_numbers(run, solution, file):
    code, out, _ = run("solve", file, "-b", 5000, "--sensitivity", "--values", "--json")
    record = json.loads(out)
    assert code == 0
    effects = solution.marginal_effects()
    assert record["sensitivity"]["samples"] == pytest.approx(effects.together, rel=1e-3)
    wanted = float(solution.sensitivity("budget", "server_loss"))
    assert record["sensitivity"]["budget"]["server_loss"] == pytest.approx(wanted, rel=1e-3)
    assert record["values"]["shapley"] == pytest.approx(solution.values().shapley, rel=1e-3)
    code, out, _ = run("equilibria", file, "--sensitivity", "--json")
    (found,) = json.loads(out)["equilibria"]
    assert found["sensitivity"]["own_samples"] == pytest.approx(effects.own, rel=1e-3)
    assert found["sensitivity"]["budget"] is None


def test_where_there_are_no_rates_the_reason_is_told(run, tmp_path):
    rows = np.array([[0.0], [0.0], [0.5], [1.0]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), [3, 3, 3, 3], costs=[1.0, 1.0, 1.0, 1.0])
    game.save(tmp_path / "game.json")
    _, out, _ = run("equilibria", tmp_path / "game.json", "--one", "--sensitivity")
    assert "What more money for a client brings is not known: participation: " in out
    _, out, _ = run("solve", tmp_path / "game.json", "-b", 0, "--sensitivity")
    assert "What a larger budget brings is not known: solution: the optimum has no derivative here" in out


def test_contracts_have_values_and_no_rates(run, file):
    _, out, _ = run(
        "solve", file, "-b", 5000, "--offers", "contract", "--min-total", 0.1, "--sensitivity", "--values"
    )
    assert "contracts are all or nothing" in out
    assert "Shapley value" in out


def test_values_of_a_solution_are_shown_beside_what_is_received(run, solution, file, tmp_path):
    code, out, _ = run("values", file, "-o", tmp_path / "values.csv")
    assert code == 0
    assert "receives" in out
    assert "All coalitions were evaluated." in out
    assert (tmp_path / "values.csv").read_text().startswith("client,shapley,")
    record = json.loads(run("values", file, "--json")[1])
    assert record["shapley"] == pytest.approx(solution.values().shapley)
    assert record["currency"] == "EUR"
    everything = json.loads(run("values", file, "--all-data", "--json")[1])
    assert everything["shapley"] == pytest.approx(solution.game.values().shapley)


def test_estimated_values_end_with_one_and_state_their_confidence(run, file):
    code, out, _ = run("values", file, "--orders", 50, "--confidence", 0.9, "--seed", 3)
    assert code == 1
    assert "all intervals hold with a probability of 90%" in " ".join(out.split())


def test_values_of_what_was_measured(run, file, tmp_path):
    table = tmp_path / "accuracies.csv"
    table.write_text("York,Hull,value\n0,0,0.1\n1,0,0.5\n0,1,0.4\n1,1,0.9\n")
    code, out, _ = run("values", file, "--measured", table, "--json")
    assert code == 0
    assert json.loads(out)["shapley"] == pytest.approx([0.45, 0.35])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("York,Hull,value\n0,0,0.1\n1,0,0.5\n1,1,0.9\n", "does not hold the coalition of Hull"),
        ("York,value\n0,0.1\n1,0.5\n1,0.9\n", "holds the coalition of York twice"),
        ("York,value\n0,0.1\n2,0.5\n", "must say 0 or 1 in row 2"),
        ("York,value\n0,0.1\n1,good\n", "a number as value in row 2"),
        ("York,value\n0,0.1\n1,nan\n", "no finite number for the coalition"),
        ("Paris,value\n0,0.1\n1,0.3\n", "'Paris', which is no remaining client"),
        ("York\n0\n1\n", "a column per client and a column value"),
    ],
)
def test_tables_of_measured_values_are_checked(run, file, tmp_path, content, said):
    table = tmp_path / "accuracies.csv"
    table.write_text(content)
    code, _, err = run("values", file, "--measured", table)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--orders", 0), "--orders = 0: must be at least 1"),
        (("--confidence", 1), "--confidence = 1.0: must lie between 0 and 1"),
        (("--measured", "a.csv", "--seed", 3), "--seed: says nothing about values that were measured"),
    ],
)
def test_bad_options_are_named(run, file, arguments, said):
    code, _, err = run("values", file, *arguments)
    assert code == 2
    assert said in err


def test_notebooks_show_rates_and_values_beside_payments(solution):
    page = solution._repr_html_()
    assert "samples that 1 EUR more for it brings" in page
    assert "Shapley value of its samples" in page
    k = int(np.argmax(solution.marginal_effects().together))
    assert f"<td>{solution.marginal_effects().together[k]:+.3g}</td>" in page

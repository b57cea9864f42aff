"""Results by client name, as tables and files, and equal by content."""

import builtins
import csv
import math
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.cli import main
from stackfu.demo import digits_game
from stackfu.model.content import alike
from stackfu.results.access import plain
from stackfu.testing import games
from tests.properties.effort import share

NAMES = ("3", "York", "1", "Hull", "2", "Leeds, West", "0")


def at_cost(game, budget, *, part=1.0):
    """Pay every client a part of its cost, as far as the budget goes."""
    return game.costs * min(part, budget / game.costs.sum())


@pytest.fixture(scope="module")
def game():
    plain_game = digits_game(sampling_constant=30.0)
    return plain_game.replace(names=("a", "b", "c", *NAMES), costs=plain_game.costs)


@pytest.fixture(scope="module")
def solutions(game):
    linear = game.solve(0.05, method=at_cost, part=0.5)
    capped = game.solve(0.05, method=at_cost, part=0.5, offers="capped", outside={"York": 0.001})
    return {"linear": linear, "capped": capped}


@pytest.mark.parametrize("kind", ["linear", "capped"])
def test_a_client_is_found_by_its_name(game, solutions, kind):
    solution = solutions[kind]
    frame = solution.to_pandas()
    for k, name in enumerate(NAMES):
        record = solution[name]
        assert (record.name, record.number, game.all_names[record.number]) == (name, k + 3, name)
        assert record.payment == solution.payments[k] == solution.payments_by_name[name]
        assert record.participation == solution.participation[k]
        assert record.samples == game.sizes[k] * solution.participation[k]
        assert record.receives == pytest.approx(solution.payouts[k], abs=1e-15)
        assert record.utility == pytest.approx(frame["utility"][name], abs=1e-15)
        assert record.cap == (None if kind == "linear" else solution.caps[k])
        assert record == solution.clients[k]
        assert record.to_dict()["name"] == name
    assert solution[1] == solution["1"]
    assert solution[np.int64(0)].number == 9
    assert solution.equilibrium["York"].participation == solution["York"].participation
    assert "York" in solution
    assert "a" not in solution
    assert 7 not in solution
    with pytest.raises(
        sf.InputError, match="client = 'a': there is no such remaining client, it was removed"
    ):
        solution["a"]
    with pytest.raises(sf.InputError, match="client = 4: .*4 as a position would be 'York'"):
        solution[4]
    with pytest.raises(TypeError, match="not iterable"):
        iter(solution)


def test_every_result_is_a_dictionary_of_plain_values(game, solutions):
    equilibria = game.equilibria()
    results = [
        *solutions.values(),
        equilibria,
        equilibria[0],
        game.cascade(outside=-0.01),
        game.frontier([0.01], at_cost),
    ]
    results.append(solutions["linear"].manipulation(kinds=["cost"], clients=["York"], factors=[2.0]))
    for result in results:
        assert only_plain(result.to_dict())
        assert alike(result.to_dict(), result.summary())
        assert not result.to_pandas().empty


def only_plain(value):
    if isinstance(value, dict):
        return all(type(key) is str and only_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(only_plain, value))
    return type(value) in (str, int, float, bool) or value is None or isinstance(value, int)


def test_tables_are_read_back_as_they_were(solutions, tmp_path):
    pytest.importorskip("pandas")
    for name, solution in solutions.items():
        path = tmp_path / f"{name}.csv"
        solution.to_csv(path)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        frame = solution.to_pandas()
        assert tuple(row.pop("client") for row in rows) == NAMES
        for column in frame:
            assert [float(row[column]) for row in rows] == frame[column].tolist()
        assert [item.name for item in tmp_path.iterdir() if "part" in item.name] == []
    with pytest.raises(sf.InputError, match="path = None: must be a file name"):
        solution.to_csv(None)
    with pytest.raises(sf.InputError, match="path = s.xls: must end in .xlsx"):
        solution.to_excel("s.xls")


def test_excel_tables(solutions, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    solutions["linear"].to_excel(tmp_path / "s.xlsx")
    found = pandas.read_excel(tmp_path / "s.xlsx", index_col=0, dtype={"client": str})
    pandas.testing.assert_frame_equal(found, solutions["linear"].to_pandas(), check_dtype=False)


def test_a_name_is_never_a_formula_in_an_excel_table(tmp_path):
    pytest.importorskip("pandas")
    openpyxl = pytest.importorskip("openpyxl")
    names = ["gone", "=1+1", "York"]
    emb = sf.MeanEmbeddings.from_features(np.eye(3), names=names)
    game = sf.StackelbergGame(emb, [30, 40, 50], removed=["gone"], cost_scale=1.0)
    game.solve(0.01, "uniform").to_excel(tmp_path / "s.xlsx")
    cell = openpyxl.load_workbook(tmp_path / "s.xlsx").active["A2"]
    assert (cell.value, cell.data_type) == ("=1+1", "s")


@pytest.mark.parametrize("package", ["pandas", "openpyxl"])
def test_a_missing_package_is_named(solutions, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(sf.InputError, match=f"{package}: is not installed; pip install {package}"):
        solutions["linear"].to_excel(tmp_path / "s.xlsx")
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_tables(game, tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    game.save(tmp_path / "g.json")
    arguments = ["solve", str(tmp_path / "g.json"), "-b", "0.05", "-m", "uniform", "-q", "-o"]
    assert main([*arguments, str(tmp_path / "s.csv")]) in (0, 1)
    found = pandas.read_csv(tmp_path / "s.csv", index_col=0, dtype={"client": str})
    assert tuple(found.index) == NAMES
    assert found["payment"].tolist() == game.solve(0.05, "uniform").payments.tolist()
    assert main([*arguments, str(tmp_path / "s.txt")]) == 2
    assert "must end in .json or .npz or .csv or .xlsx" in " ".join(capsys.readouterr().err.split())


def test_a_function_is_a_method(game):
    found = game.solve(0.05, method=at_cost, part=0.5)
    sf.register_mechanism("at-cost-registered", at_cost)
    try:
        named = game.solve(0.05, method="at-cost-registered", part=0.5)
    finally:
        from stackfu.leader import mechanisms

        mechanisms.forget("at-cost-registered")
    assert found.payments.tolist() == named.payments.tolist()
    assert found.method == "at_cost"
    traced = game.frontier([0.02, 0.01], method=at_cost)
    assert traced.method == "at_cost"
    assert traced.budgets.tolist() == [0.01, 0.02]
    requests = sf.Requests(game, 0.1)
    assert requests.remove(["York"], method=at_cost, share=0.5).method == "at_cost"
    assert requests.to_pandas()["removed"].tolist() == ["York"]
    assert pickle.loads(pickle.dumps(requests[0])) == requests[0]
    assert found.manipulation(kinds=["cost"], clients=["Hull"], factors=[2.0]).mechanism == "at_cost, linear"
    with pytest.raises(sf.InputError, match='share: is not an option of method "at_cost"; those are part'):
        game.solve(0.05, method=at_cost, share=0.5)
    with pytest.raises(sf.InputError, match="method = 3: must be the name of a mechanism, or a function"):
        game.solve(0.05, method=3)
    with pytest.raises(sf.InputError, match="must be a function of a game and a budget"):
        game.solve(0.05, method=lambda: 0)


def test_a_function_cannot_pass_for_a_method_of_the_library(game):
    def certified(game, budget):
        return game.no_payments

    assert game.solve(0.05, method=certified).method == "own certified"


# -------------------------------------------------------------------- equality


def results_of(game):
    linear = game.solve(0.02, "uniform")
    equilibria = game.equilibria()
    yield from (linear, linear.equilibrium, equilibria, linear.offers, game.frontier([0.01, 0.02], "uniform"))
    yield game.cascade(outside=-0.01)
    yield linear.manipulation(kinds=["cost"], clients=["York"], factors=[2.0])
    yield game.solve(0.02, "uniform", offers="capped")


def test_results_are_equal_after_pickling_and_after_files(game, tmp_path):
    for number, result in enumerate(results_of(game)):
        again = pickle.loads(pickle.dumps(result))
        assert again == result
        assert hash(again) == hash(result)
        if isinstance(result, (sf.Solution, sf.Equilibrium)):
            for ending in ("json", "npz"):
                file = tmp_path / f"{number}.{ending}"
                result.save(file)
                found = sf.load(file)
                assert found == result
                assert hash(found) == hash(result)


def test_a_certified_solution_is_equal_with_its_certificate(tmp_path):
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.eye(3)), [1, 2, 1], removed=[0], costs=[1.0, 1.0]
    )
    solution = game.solve(0.05, progress=False)
    solution.save(tmp_path / "s.json")
    found = sf.load(tmp_path / "s.json")
    assert found == solution
    assert found.certificate is not None
    from dataclasses import replace

    assert replace(found, certificate=None) != solution
    assert replace(found, seconds=7.0) == solution
    assert replace(found, budget=0.06) != solution
    assert solution != solution.equilibrium
    assert {solution: 1}[found] == 1


@given(games(min_removed=0, names=True), st.data())
@share(0.2)
def test_equal_equilibria_have_equal_hashes(game, data):
    payments = np.array(
        data.draw(st.lists(st.sampled_from([0.0, -0.0, 0.5]), min_size=game.count, max_size=game.count))
    )
    try:
        one, two = game.equilibrium(payments), game.equilibrium(payments + 0.0)
    except sf.NoEquilibriumError:
        return
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one


def test_alike():
    assert alike(math.nan, float("nan"))
    assert not alike([1.0], [1.0, 2.0])
    assert not alike({"a": 1}, {"b": 1})
    assert alike(np.array([1, 2]), [1, 2])
    assert plain({1: np.float64(2.0), "x": (np.arange(2), np.bool_(True))}) == {"1": 2.0, "x": [[0, 1], True]}

"""Measurements by size keep their rows, and the pages' tables are made from what is committed."""

import doctest
import importlib.util
import json
import re
from pathlib import Path

import pytest

from stackfu_bench import by_size, truthfulness
from stackfu_bench import leader_by_size as sizes
from stackfu_bench import offers_by_size as offers
from stackfu_bench.benchmarks.leader import federation_of

ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r"^```\{([\w-]+)\} ?(\S*)\n```$", re.MULTILINE)


def module_at(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured():
    return module_at("docs/_ext/measured.py")


def rows_of(lines):
    """The cells of a table's lines, its head first."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


# -------------------------------------------------------------------- scripts


def test_a_row_is_measured_on_a_game_that_another_process_made():
    row = sizes.Row(12, 4, gap=0.1, option="floor", seed=3)
    found = sizes.measure(row, 60.0, 8)
    assert (found["clients"], found["seed"], found["option"], found["gap"]) == (12, 3, "floor", 0.1)
    assert found["status"] == "CERTIFIED"
    assert found["verified"]
    assert 0.0 <= found["gap_reached"] <= 0.1
    assert 0.0 < found["memory_gb"] < 4.0
    assert found["cpu"] > 0.0


@pytest.mark.parametrize("gram", [False, True])
def test_a_game_comes_back_from_its_folder_as_it_was(tmp_path, gram):
    by_size.make(tmp_path, 10, 4, gram, seed=1, cost=2.0)
    played = by_size.load(tmp_path, gram)
    drawn, _ = federation_of(10, 4, gram, 1, 2.0)
    assert played.removed == drawn.removed
    assert played.full_participation_price == pytest.approx(drawn.full_participation_price, rel=1e-6)
    assert played.equilibrium().server_loss == pytest.approx(drawn.equilibrium().server_loss, rel=1e-6)


@pytest.mark.parametrize(
    "option", ["budget", "floor", "finite_sample", "payment_weight", "payment_weight_alone", "max_loss",
               "sampling_constant", "own_loss", "cheapest"]
)  # fmt: skip
def test_every_option_is_one_that_the_leader_has(option):
    assert option in sizes.OPTIONS
    game, _ = federation_of(6, 3)
    game, arguments, unpaid = sizes.asked(game, sizes.Row(6, 3, option=option))
    solved = game.solve(**arguments, gap=0.2, progress=False)
    assert solved.status.success
    if option in ("max_loss", "cheapest"):
        assert solved.server_loss <= 0.5 * unpaid * (1 + 1e-9)
    assert ("budget" in arguments) == (option not in ("payment_weight_alone", "cheapest"))


def test_rows_are_chosen_by_words_and_have_names_of_their_own():
    names = [row.name for row in sizes.ROWS]
    assert len(set(names)) == len(names)
    assert {row.clients for row in sizes.chosen(["1000000:"], quick=False)} == {1_000_000}
    assert {row.option for row in sizes.chosen([" floor", " cheapest"], quick=False)} == {"floor", "cheapest"}
    assert {row.clients for row in sizes.chosen([], quick=True)} == {1_000}
    assert sizes.chosen(["nothing of that name"], quick=True) == []
    assert {row.option for row in sizes.ROWS} == set(sizes.OPTIONS)


def test_an_interrupted_run_keeps_its_rows_and_goes_on_with_those_that_are_missing(
    tmp_path, monkeypatch, capsys
):
    out, measured = tmp_path / "rows.json", []

    def measure(row, limit):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(row.name)
        figures = {
            "gap_reached": 1e-3,
            "loss": 0.1,
            "seconds": 1.0,
            "cpu": 1.0,
            "memory_gb": 0.1,
            "verified": True,
        }
        return sizes.asdict(row) | figures | {"status": "CERTIFIED"}

    monkeypatch.setattr(sizes, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        sizes.main(["--quick", "--out", str(out)])
    assert [row["share"] for row in json.loads(out.read_text())["rows"]] == [0.05, 0.2]
    assert "CERTIFIED, gap 1.0e-03" in capsys.readouterr().out
    sizes.main(["--quick", "--list", "--missing", "--out", str(out)])
    left = capsys.readouterr().out.splitlines()
    assert len(left) == len(sizes.chosen([], quick=True)) - 2
    assert not set(left) & set(measured)


def test_what_is_measured_again_replaces_its_row_and_no_other(tmp_path):
    out = tmp_path / "new" / "rows.json"
    for row in ({"clients": 5, "loss": 1.0}, {"clients": 6, "loss": 2.0}, {"clients": 5, "bound": 0.5}):
        by_size.keep(out, row, ["clients"])
    rows = by_size.kept(out)
    assert [{k: v for k, v in row.items() if k != "date"} for row in rows] == [
        {"clients": 5, "loss": 1.0, "bound": 0.5},
        {"clients": 6, "loss": 2.0},
    ]
    assert [path.name for path in out.parent.iterdir()] == ["rows.json"]


def test_plans_are_measured_part_by_part(tmp_path):
    out = tmp_path / "rows.json"
    offers.main(["10", "--only", "local", "--seconds", "1", "--out", str(out)])
    offers.main(["10", "--only", "capped", "--seconds", "5", "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert row["verified"]
    assert row["bound"] <= row["loss"] <= row["local_search"] * (1 + 1e-2)
    assert (row["local_limit"], row["capped_limit"]) == (1.0, 5.0)


def test_what_truthfulness_costs_is_what_is_committed():
    known = json.loads(truthfulness.RESULTS.read_text())
    now = truthfulness.measure(budgets=known["budgets"][:1])
    assert now["unpaid"] == pytest.approx(known["unpaid"], rel=1e-6)
    for mine, row in zip(now["rows"], known["rows"], strict=True):
        assert mine["mechanism"] == row["mechanism"]
        # capped offers are certified to a hundredth, and any plan within it may come out
        assert mine["losses"][0] == pytest.approx(row["losses"][0], abs=known["gap"] * known["unpaid"])


# -------------------------------------------------------------------- tables


def test_pages_and_tables_name_each_other(measured):
    families = {name.split()[0] for name in measured.TABLES}
    asked = {
        f"{name} {word}".strip()
        for page in (ROOT / "docs").rglob("*.md")
        for name, word in DIRECTIVE.findall(page.read_text())
        if name in families
    }
    assert asked == set(measured.TABLES)
    with pytest.raises(ValueError, match="no table 'trust-table of lies'"):
        measured.table("trust-table of lies")


def test_every_table_is_made_or_says_that_it_is_not_measured_yet(measured, tmp_path):
    for name, (file, command, _) in measured.TABLES.items():
        assert measured.table(name, tmp_path) == [f"*Not measured yet: `{command}` writes `{file}`.*"]
        made = measured.table(name)
        if (ROOT / file).exists():
            assert len({len(row) for row in rows_of(made)}) == 1, name


def test_examples_of_how_numbers_are_written_hold(measured):
    assert doctest.testmod(measured) == (0, 3)
    assert measured.missing([5, 5, 6], [6, 5, 5]) == []


LEADER = {
    "clients": 1000, "width": 64, "gram": False, "share": 0.05, "seed": 0, "gap": 1e-3, "option": "budget", "cost": 3.0,
    "status": "CERTIFIED", "gap_reached": 9.9e-4, "loss": 0.1234567, "spend": 0.05, "verified": True, "seconds": 3.21,
    "cpu": 4.56, "make_seconds": 0.1, "verify_seconds": 0.2, "memory_gb": 0.3, "game_gb": 2.6e-4, "volunteers": 0.4,
    "limit": 900.0, "date": "2026-11-18T00:00:00+00:00",
    "machine": {"cpu": "a processor", "cores": 2, "load_at_start": 0.25},
}  # fmt: skip


def test_sizes_are_in_order_and_a_refusal_shows(measured):
    late = {**LEADER, "clients": 10_000, "verified": False, "status": "TIME_LIMIT", "date": "2026-11-19T"}
    lines = measured.leader_sizes({"rows": [late, LEADER, {**LEADER, "option": "floor"}]})
    head, _, first, second = rows_of(lines)
    assert dict(zip(head, first, strict=True)) == {
        "clients": "1,000", "form": "D = 64", "budget": "5%", "seed": "0", "volunteers": "40%", "gap asked": "1e-3",
        "reached": "9.9e-4", "outcome": "certified", "loss": "0.1235", "clock": "3.2 s", "processor": "4.6 s",
        "memory": "0.30 GB", "rows of the game": "0.00026 GB",
    }  # fmt: skip
    assert second[0] == "10,000"
    assert second[7] == "time limit, **not verified**"
    assert lines[-1].startswith("*Not measured yet: ")
    assert lines[-1].endswith(" rows, of 1,000, 6,000, 19,600, 100,000, 200,000, 1,000,000 clients.*")
    assert lines[-3] == (
        "Measured 2026-11-18 to 2026-11-19 on a processor (2 cores), load up to 0.2 at the start of a row."
    )


def test_options_stand_beside_a_budget_alone_of_the_same_federation(measured):
    other = {**LEADER, "seed": 1, "loss": 0.9}
    floor = {**LEADER, "option": "floor", "loss": 0.2, "cpu": 12.3}
    rows = rows_of(measured.leader_options({"rows": [other, LEADER, floor]}))
    found = {row[0]: row[1:] for row in rows}
    assert found["a budget alone"] == ["certified to 9.9e-4", "0.1235", "4.6 s", "not measured yet", "", ""]
    assert found["a floor, `min_total=0.2`"] == [
        "certified to 9.9e-4",
        "0.2000",
        "12 s",
        "not measured yet",
        "",
        "",
    ]
    assert found["a sampling constant"][0] == "not measured yet"
    assert set(measured.OPTIONS) == set(sizes.OPTIONS)


def test_plans_of_which_parts_are_missing_say_so(measured):
    facts = {name: LEADER[name] for name in ("machine", "date")}
    capped = {"loss": 0.4, "bound": 0.39, "status": "CERTIFIED", "verified": True, "capped_limit": 60.0, "seconds": 20.0,
              "cpu": 21.0, "verify_seconds": 1.0, "memory_gb": 0.3}  # fmt: skip
    linear = {"linear": 0.5, "linear_status": "TIME_LIMIT"}
    rows = [
        {"clients": 200, **facts, "linear": None, "linear_status": "x"},
        {"clients": 50, **facts, **capped, **linear},
    ]
    head, _, first, second = rows_of(measured.offers_sizes({"rows": rows}))
    assert head[1:6] == ["capped", "proved: not below", "outcome", "best linear payments", "local search"]
    assert first[:6] == ["50", "0.4000", "0.3900", "certified", "0.5000 (not closed)", "not measured yet"]
    assert second[1:6] == [
        "not measured yet",
        "not measured yet",
        "not measured yet",
        "none found",
        "not measured yet",
    ]


def test_survivors_are_counted_by_function(measured):
    survivor = {"change": "Add -> Sub", "text": "a + b"}
    rows = [
        {"module": "stackfu/a.py", "mutants": 5, "noticed": 3, "date": "2026-11-18",
         "survivors": [{"function": "f", **survivor}, {"function": "f", **survivor}]},
        {"module": "stackfu/b.py", "mutants": 5, "noticed": 5, "survivors": [], "date": "2026-11-18"},
    ]  # fmt: skip
    lines = measured.mutation({"rows": rows})
    assert rows_of(lines)[-1] == ["together", "10", "8 (80%)", "2", ""]
    assert lines[-1] == "- `stackfu/a.py`: `f` (2)"


def test_the_phases_and_bytes_of_flower_are_tabulated(measured):
    row = {
        "clients": 10, "engine": "none", "features": 256, "method": "certified", "status": "CERTIFIED", "ledger_bytes": 50_000,
        "seconds": {"embeddings": 0.3, "offers": 1.3, "responses": 0.02, "settlement": 0.01, "report": 0.02},
        "total_seconds": 1.8, "bytes_down": {"train": 617.0, "query.stackfu_keys": 40.0, "query.stackfu_open": 2.0},
        "bytes_up": {"train": 254.4, "query.stackfu_keys": 22.0, "query.stackfu_open": 1.0},
    }  # fmt: skip
    assert rows_of(measured.scale([row]))[2] == [
        "10", "none", "certified", "0.3 s", "1.3 s", "0.02 s", "0.03 s", "1.8 s", "5.0 kB"
    ]  # fmt: skip
    assert rows_of(measured.sent([row, {**row, "engine": "ray", "clients": 99}]))[2:] == [
        ["a round of training", "617", "254"],
        ["secure sums", "42", "23"],
    ]


# -------------------------------------------------------------------- mutants


@pytest.fixture(scope="module")
def mutants():
    return module_at("tests/mutation/mutants.py")


SOURCE = """
class Cone:
    def width(self, a, b):
        return a + b

def width(a, b):
    return min(a, b) * 2.0 if a < b else -a
"""


def test_a_place_is_known_by_the_function_that_holds_it(mutants):
    import ast

    tree = ast.parse(SOURCE)
    owners = mutants.owners(tree, {"width"})
    found = [(owners[number], change) for number, change in mutants.sites(tree, {"width"})]
    assert ("Cone.width", "Add -> Sub") in found
    assert ("width", "min -> max") in found
    assert len(found) == 6


def test_survivors_are_found_again_unless_the_module_changed(mutants):
    import ast

    places = mutants.sites(ast.parse(SOURCE), {"width"})
    number = next(n for n, change in places if change == "Add -> Sub")
    row = {
        "mutants": len(places),
        "survivors": [{"function": "Cone.width", "change": "Add -> Sub", "text": "return a + b"}],
    }
    assert mutants.places_again(SOURCE, {"width"}, places, row) == [(number, "Add -> Sub")]
    assert mutants.places_again(SOURCE, {"width"}, places, {**row, "mutants": 5}) is None
    assert mutants.places_again(SOURCE, {"width"}, places, None) is None


def test_modules_keep_their_own_rows(mutants, tmp_path):
    out = tmp_path / "mutation.json"
    first, second = list(mutants.TARGETS)[:2]
    mutants.keep(out, second, 7, [])
    mutants.keep(out, first, 9, [{"function": "f", "change": "Add -> Sub", "text": "a + b"}])
    mutants.keep(out, second, 8, [])
    rows = json.loads(out.read_text())["rows"]
    assert [(row["module"], row["mutants"], row["noticed"]) for row in rows] == [
        (first, 9, 8),
        (second, 8, 8),
    ]

"""The command line: tables for people, JSON for programs, exit codes for scripts, one sentence for errors."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import stackfu as sf
from stackfu.cli import ExitCode, main
from stackfu.demo import digits_federation, digits_game
from stackfu.results.cautions import amount

# typer 0.20 calls a function of click that newer versions of click have renamed
pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")


@pytest.fixture(scope="module")
def game():
    return digits_game()


@pytest.fixture(scope="module")
def files(game, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    game.save(folder / "game.json")
    game.solve(0.05).save(folder / "solution.json")
    game.equilibrium().save(folder / "equilibrium.npz")
    return folder


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def data_of(page):
    """Return the numbers that an explorer page holds."""
    held = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(held[1])


def one_sentence(err):
    assert err.startswith("stackfu: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


# -------------------------------------------------------------------- demo


def test_demo_tells_the_whole_story(run, tmp_path, game):
    code, out, err = run("demo", "--output", tmp_path / "d", "--points", 3)
    assert (code, err) == (0, "")
    for word in ("Without payments", "HAIPO", "uniform", "certified", "The certificate", "nothing disagrees"):
        assert word in " ".join(out.split())
    written = sorted(p.name for p in (tmp_path / "d").iterdir())
    assert written == [
        "certified.json", "explorer.html", "frontier.csv", "game.json", "haipo.json", "uniform.json",
    ]  # fmt: skip
    assert sf.load(tmp_path / "d" / "game.json") == game
    for name in ("certified", "haipo", "uniform"):
        assert sf.load(tmp_path / "d" / f"{name}.json").method == name


def test_demo_as_json_says_what_the_library_says(run, tmp_path, game):
    code, out, _ = run("demo", "--output", tmp_path, "--points", 2, "--json")
    record = json.loads(out)
    solution = game.solve(0.05)
    assert code == 0
    assert record["certified"]["payments"] == pytest.approx(solution.payments, abs=1e-6)
    assert record["certified"]["server_loss"] < record["haipo"]["server_loss"]
    assert record["haipo"]["lower_bound"] is None  # -inf has no place in JSON
    assert record["verification"]["passed"]


def test_the_embedded_digits_are_those_of_scikit_learn():
    from sklearn import datasets

    from stackfu.demo import digits

    theirs = datasets.load_digits()
    images, labels = digits()
    np.testing.assert_array_equal(images * 16, theirs.data)
    np.testing.assert_array_equal(labels, theirs.target)


def test_the_federation_shares_out_every_digit_once():
    federation = digits_federation()
    assert federation.sizes.sum() == 1797
    assert federation.sizes.min() >= 15
    together = np.sort(np.concatenate(federation.labels))
    np.testing.assert_array_equal(np.bincount(together), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    with pytest.raises(sf.InputError, match="beta"):
        digits_federation(beta=0.0)


# -------------------------------------------------------------------- solve, equilibria, frontier


@pytest.mark.parametrize("method", ["certified", "uniform"])
def test_solve_prints_and_writes_what_the_library_finds(run, files, tmp_path, game, method):
    target = tmp_path / "s.npz"
    code, out, err = run("solve", files / "game.json", "-b", 0.05, "-m", method, "-o", target, "--json")
    assert (code, err) == (1 if method == "uniform" else 0, "")
    record, saved = json.loads(out), sf.load(target)
    assert record["payments"] == saved.payments.tolist()
    assert record["equilibrium"]["participation"] == saved.participation.tolist()
    assert saved.server_loss == pytest.approx(game.solve(0.05, method=method).server_loss, rel=1e-6)


def test_solve_for_people(run, files):
    code, out, _ = run("solve", files / "game.json", "--budget", 0.05)
    assert code == 0
    assert "No payments within a budget of 0.05" in out
    assert "exactly one equilibrium" in out


def test_cheapest_bounds_what_is_spent(run, files):
    code, out, _ = run("cheapest", files / "game.json", "--max-loss", 0.01)
    assert code == 0
    assert re.search(
        r"No payments with a server loss of at most 0\.01 bring the spend below 0\.\d+", " ".join(out.split())
    )


def test_solve_that_is_not_settled_exits_with_one(run, files):
    code, out, _ = run("solve", files / "game.json", "-b", 0.05, "--gap", 1e-15, "--time-limit", 0.01)
    assert code == ExitCode.NOT_PROVED
    assert "Stopped by the time limit" in out


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("payments", ("frontier", "-b", 0.01)),
        ("explore", ("explore", "--to", 0.05, "--points", 2, "-o", "page.html")),
    ],
)
def test_budgets_that_are_not_settled_are_counted_with_what_to_do(
    run, files, tmp_path, monkeypatch, module, command
):
    from importlib import import_module
    from types import SimpleNamespace

    from stackfu.cli.budgets import open_note
    from stackfu.results import Status

    ends = ((Status.TIME_LIMIT, -np.inf), (Status.CERTIFIED, 0.0), (Status.TIME_LIMIT, 0.0))
    traced = [SimpleNamespace(status=status, lower_bound=bound) for status, bound in ends]
    said = open_note(traced, 5.0)
    assert said.startswith("2 of 3 budgets were not settled in 5 s each, and of 1 nothing is proved at all")
    assert open_note(traced[1:2], 5.0) is None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_module(f"stackfu.cli.commands.{module}"), "open_note", lambda *_: said)
    name, *more = command
    assert said in one_sentence(run(name, files / "game.json", *more)[2])
    assert "settled" not in run(name, files / "game.json", *more, "--json")[2]


def test_equilibria_finds_them_all(run, tmp_path):
    sf.catalog.three_equilibria().game.save(tmp_path / "three.json")
    code, out, _ = run("equilibria", tmp_path / "three.json", "--json")
    record = json.loads(out)
    assert code == 0
    assert record["uniqueness"] == "MULTIPLE"
    assert [round(eq["total"], 4) for eq in record["equilibria"]] == [0.3906, 0.5007, 0.5289]
    code, out, _ = run("equilibria", tmp_path / "three.json")
    assert "E3" in out


def test_equilibria_under_payments(run, files, game):
    payments = [0.01] * game.count
    code, out, _ = run("equilibria", files / "game.json", "-p", ",".join(map(str, payments)), "--json")
    assert code == 0
    total = game.equilibrium(payments).total
    assert json.loads(out)["equilibria"][0]["total"] == pytest.approx(total, rel=1e-12)
    # a solution file stands for its own payments
    _, out, _ = run("equilibria", files / "solution.json", "--json")
    assert json.loads(out)["payments"] == sf.load(files / "solution.json").payments.tolist()


def test_equilibria_below_caps(run, files, game, tmp_path):
    caps = [0.01, *[1.0] * (game.count - 1)]
    given = ("equilibria", files / "game.json", "--caps", ",".join(map(str, caps)), "--prove", "--json")
    code, out, _ = run(*given)
    assert code == 0
    record = json.loads(out)
    assert record["caps"] == caps
    found = game.equilibrium(caps=caps)
    assert record["equilibria"][0]["participation"] == pytest.approx(found.participation.tolist(), abs=1e-12)
    found.save(tmp_path / "capped.json")  # of an equilibrium file, its own caps are meant
    _, out, _ = run("equilibria", tmp_path / "capped.json", "--json")
    assert json.loads(out)["caps"] == caps
    code, out, _ = run(*given[:-2], "--sampling-constant", 5.0, "--json")
    assert json.loads(out)["equilibria"][0]["total"] > found.total
    code, _, err = run("equilibria", files / "game.json", "--caps", ",".join(["2.0"] * game.count))
    assert code == 2
    assert "caps" in err


def test_equilibria_proved_in_ball_arithmetic(run, files):
    code, out, _ = run("equilibria", files / "game.json", "--prove")
    assert code == 0
    assert "proved" in out


def test_frontier_as_a_table_a_file_and_json(run, files, tmp_path, game):
    target = tmp_path / "f.csv"
    code, out, _ = run("frontier", files / "game.json", "-b", "0.02,0.1", "-o", target)
    assert code == 0
    assert "What a budget buys" in out
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert [float(r["budget"]) for r in rows] == [0.02, 0.1]
    assert {f"payment_{k}" for k in game.remaining} <= rows[0].keys()
    for row in rows:
        x = [float(row[f"participation_{k}"]) for k in game.remaining]
        assert game.server_loss(x) == float(row["server_loss"])
        assert float(row["lower_bound"]) <= float(row["server_loss"])
    _, out, _ = run("frontier", files / "game.json", "--to", 0.1, "--points", 2, "--json")
    points = json.loads(out)["points"]
    assert [p["budget"] for p in points] == pytest.approx([0.025, 0.1])
    assert points[0]["server_loss"] > points[1]["server_loss"]


# -------------------------------------------------------------------- verify, lemmas, explore


@pytest.mark.parametrize("name", ["solution.json", "equilibrium.npz"])
def test_verify_accepts_what_is_sound(run, files, name):
    code, out, _ = run("verify", files / name)
    assert code == 0
    assert "sound" in out


@pytest.mark.parametrize("lie", ["participation", "payments", "lower_bound", "objective", "budget"])
def test_verify_rejects_what_was_tampered_with(run, files, tmp_path, lie):
    record = json.loads((files / "solution.json").read_text())
    if lie == "participation":
        record["equilibrium"]["participation"]["array"][1] *= 1.01
    elif lie == "payments":
        record["equilibrium"]["payments"]["array"][1] *= 1.01
    elif lie == "lower_bound":
        record["lower_bound"] = record["objective"] = record["objective"] * 1.01
    elif lie == "objective":
        record["objective"] *= 0.999
    else:
        record["budget"] *= 0.9
    (tmp_path / "s.json").write_text(json.dumps(record))
    code, out, err = run("verify", tmp_path / "s.json", "--json")
    if lie in ("payments", "lower_bound"):  # of which the certificate names another digest
        assert (code, out) == (ExitCode.BAD_INPUT, "")
        assert "the certificate is for another claim" in one_sentence(err)
        return
    assert code == ExitCode.NOT_PROVED
    assert not json.loads(out)["passed"]


def test_lemmas(run, files):
    code, out, _ = run("lemmas", files / "game.json", "--json")
    assert code == 0
    names = [row["name"] for row in json.loads(out)["rows"]]
    assert {"concavity", "existence", "uniqueness"} <= set(names)
    _, out, _ = run("lemmas", files / "game.json")
    assert "refuted" in out


def test_explore_writes_a_page_beside_the_game(run, files, tmp_path):
    target = tmp_path / "page.html"
    code, out, _ = run(
        "explore", files / "game.json", "-o", target, "--points", 2, "--to", 0.1, "--compare", "haipo"
    )
    assert code == 0
    assert str(target) in out
    page = target.read_text()
    assert page.startswith("<!doctype html>")
    assert '"budget":0.05' in page
    assert '"label":"HAIPO"' in page
    assert '"name":"uniform"' not in page


def test_explore_of_a_solution_opens_at_its_budget(run, files, tmp_path):
    """Other budgets are around it, and the page does not open at no payments at all."""
    run("solve", files / "game.json", "--budget", 0.03, "-o", tmp_path / "own.json")
    arguments = ("-o", tmp_path / "page.html", "--points", 2, "--to", 0.1, "--compare", "none")
    assert run("explore", tmp_path / "own.json", *arguments)[0] == 0
    page = data_of(tmp_path / "page.html")
    assert [stop["budget"] for stop in page["stops"]] == [0.0, 0.03, 0.05, 0.1]
    assert page["stops"][page["opening"]]["budget"] == 0.03


def test_explore_of_a_solution_keeps_its_floor_and_its_offers(run, files, tmp_path):
    floor = ("--min-samples", 280, "--offers", "capped", "-o", tmp_path / "own.json")
    assert run("solve", files / "game.json", "-b", 0.08, *floor)[0] == 0
    arguments = ("--points", 2, "--to", 0.16, "-o", tmp_path / "page.html")
    code, _, err = run("explore", tmp_path / "own.json", *arguments)
    assert code == 0
    assert "holds capped offers" in err
    samples = sf.load(tmp_path / "own.json").game.sizes.sum()
    floored = data_of(tmp_path / "page.html")
    paid = [stop for stop in floored["stops"] if stop["budget"] > 0]
    assert all(stop["total"] >= 280 / samples - 1e-9 for stop in paid)
    assert any(line["name"] == "capped" for line in floored["lines"])


def test_explore_of_hundreds_of_clients_is_quick_and_says_so(run, tmp_path):
    rng = np.random.default_rng(1)
    emb = sf.MeanEmbeddings.from_features(0.2 * rng.normal(size=(230, 4)) + 1.0)
    game = sf.StackelbergGame(emb, rng.integers(20, 200, 230), removed=[0, 1], cost_scale=1.0)
    game.save(tmp_path / "g.npz")
    arguments = ("--to", 0.01 * game.full_participation_price, "--points", 2)
    code, _, err = run("explore", tmp_path / "g.npz", *arguments)
    assert code in (ExitCode.OK, ExitCode.NOT_PROVED)
    assert "228 clients: 2 budgets at most, 5 s for each search" in err
    assert "group" in (tmp_path / "g.html").read_text()


def test_searches_that_would_take_minutes_are_announced_or_limited(run, tmp_path):
    rng = np.random.default_rng(1)
    emb = sf.MeanEmbeddings.from_features(0.2 * rng.normal(size=(62, 4)) + 1.0)
    game = sf.StackelbergGame(emb, rng.integers(20, 200, 62), removed=[0, 1], cost_scale=1.0)
    game.save(tmp_path / "g.npz")
    top = 0.01 * game.full_participation_price
    _, _, err = run("explore", tmp_path / "g.npz", "--to", top, "--points", 2)
    assert "60 clients: 2 budgets at most, 5 s for each search" in err
    page = (tmp_path / "g.html").read_text()
    assert '"name":"uniform"' not in page  # lines to compare with are searches too
    _, _, err = run("frontier", tmp_path / "g.npz", "-b", top, "--gap", 0.5)
    assert "60 clients: a search per budget" in err
    assert "--time-limit 5" in err
    _, _, err = run("frontier", tmp_path / "g.npz", "-b", top, "--gap", 0.5, "--time-limit", 5)
    assert "a search per budget" not in err


def test_what_many_clients_cost_is_said(run, files, tmp_path, monkeypatch):
    assert "note" not in run("equilibria", files / "game.json")[2]
    monkeypatch.setattr("stackfu.followers.path.tracing.LARGEST_CHAIN", 6)
    _, _, err = run("equilibria", files / "game.json")
    assert "7 clients: above 6 equilibria are listed, and that none is missing may stay open" in one_sentence(
        err
    )
    assert "note" not in run("equilibria", files / "game.json", "--one")[2]

    table = tmp_path / "clients.csv"
    table.write_text("client,a\nYork,0\nHull,1\nLeeds,2\n")
    monkeypatch.setattr("stackfu.cli.commands.games.LARGE", 2)
    for name, said in (("g.json", True), ("g.npz", False)):
        _, _, err = run("embed", table, "--removed", "Leeds", "--cost-scale", 1, "-o", tmp_path / name)
        assert ("3 clients make a large .json file" in err) is said
    monkeypatch.setattr("stackfu.cli.commands.games.CROWD", 2)
    for more, said in (((), True), (("--features", 8), False), (("--json",), False)):
        _, _, err = run("embed", table, "--removed", "Leeds", "-o", tmp_path / "g.npz", *more)
        assert ("3 clients: the inner products of all pairs are a file of 0 MB; --features" in err) is said


def test_tables_fit_a_narrow_terminal(run, files, game, tmp_path, monkeypatch):
    from rich.console import Console

    monkeypatch.setattr("stackfu.cli.tables.console", lambda: Console(width=80, highlight=False))
    long = tmp_path / "long.json"
    called = [f"a client with a long name {k}" for k in range(len(game.all_sizes))]
    game.replace(names=called).save(long)
    for command in (
        ("solve", files / "game.json", "-b", 0.05),
        ("equilibria", files / "game.json"),
        ("frontier", files / "game.json", "-b", "0.0123,0.1"),
    ):
        _, out, _ = run(*command)
        assert "…" not in out, command
        assert max(map(len, out.splitlines())) <= 80
    assert "lower bound" in out
    monkeypatch.setattr("stackfu.cli.tables.console", lambda: Console(width=120, highlight=False))
    _, out, _ = run("equilibria", long)
    assert "receives" in out
    assert "out below" not in out  # no room beside the names
    assert "…" in out  # of the names
    assert not re.search(r"\d…", out)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_digit_is_lost_where_columns_are_scarce(game, width, monkeypatch):
    """At 80 columns payments lost digits and the payouts went first; now bars shrink, and payouts go last."""
    from rich.console import Console

    from stackfu.cli.tables import clients_table

    called = [f"a hospital in a far place {k}" for k in range(len(game.all_sizes))]
    solution = game.replace(names=called).solve(0.05)
    whole = clients_table(solution.equilibrium, "")
    payments = next(list(column.cells) for column in whole.columns if column.header == "payment")
    out = io.StringIO()
    narrow = Console(width=width, highlight=False, file=out)
    monkeypatch.setattr("stackfu.cli.tables.console", lambda: narrow)
    table = clients_table(solution.equilibrium, "")
    heads = [column.header for column in table.columns]
    order = ["out below", "change", "utility", "samples", "receives"]
    kept = [name in heads for name in order]
    assert kept == sorted(kept)  # what goes, goes in this order
    narrow.print(table)
    for paid in payments:
        assert re.search(rf"\b{re.escape(paid)}\b", out.getvalue()), paid
    assert not re.search(r"\d…", out.getvalue())
    assert max(map(len, out.getvalue().splitlines())) <= width


def test_contracts_are_called_contracts_and_tell_what_is_known(run, files):
    code, out, _ = run("solve", files / "game.json", "-b", 0.2, "--offers", "contract", "--min-total", 0.3)
    said = " ".join(out.split())
    assert code in (0, 1)
    for word in ("brings", "is paid", "all or nothing", "contracts"):
        assert word in said
    assert "in proportion" not in said
    message = sf.load(files / "game.json").solve(0.2, offers="contract", min_total=0.3).message
    assert message[1:] in said


def test_the_cheapest_payments_say_what_they_reach(run, files):
    code, out, _ = run(
        "cheapest", files / "game.json", "--max-loss", 0.01, "--time-limit", 0.01, "--gap", 1e-15
    )
    assert code == ExitCode.NOT_PROVED
    for word in ("server loss", "takes part", "least spend proved", "none", "Stopped by the time limit"):
        assert word in out
    assert "0.0e+00" not in out


def test_equilibria_show_caps_and_call_a_guess_a_guess(run, files):
    _, out, _ = run("equilibria", files / "game.json", "--caps", "1,0.25,1,1,1,1,1")
    assert "at most" in out
    assert "25%" in out
    assert "A guess" in out


def test_departures_count_from_one_and_share_one_base(run, files, game):
    found = game.cascade(outside=-0.03)
    _, out, _ = run("cascade", files / "game.json", "--outside", -0.03)
    for departure, used in zip(found, found.used, strict=True):
        owned = sum(game.all_sizes[k] for k in departure.clients) / game.sizes.sum()
        assert used == pytest.approx(departure.total * owned)
        assert f"{used:.1%}" in out
        assert f"{used:.1%}" in found._repr_html_()
        brought = game.sizes[np.isin(game.remaining, departure.clients)] @ departure.participation
        assert f" {amount(brought)} " in out
        assert f">{amount(brought)}<" in found._repr_html_()
    assert found.to_pandas()["departed_in_round"].min() == 1


@pytest.mark.parametrize(
    ("arguments", "said", "unsaid"),
    [
        (("--offers", "capped"), "give the game a --sampling-constant, or ask for --finite-sample, --min-total or "
         "--min-samples", "min_total="),
        (("--outside", -1), "ask for --offers capped", "offers="),
        (("-m", "haipo", "--gap", 0.1), "those are --option max_iterations=...", "callback"),
        (("-m", "haipo", "--option", "damping=3"), '--option damping: is not an option of method "haipo"', "callback"),
        (("-m", "grouped"), "--groups: ", "groups="),
        (("--option", "gap=3"), "gap has an option of its own, --gap", "None"),
        (("--option", "gap"), "--option = 'gap': must be NAME=VALUE", "None"),
        (("--option", "x=1", "--option", "x=2"), "given twice", "None"),
    ],
)  # fmt: skip
def test_complaints_speak_of_what_is_typed(run, files, arguments, said, unsaid):
    code, _, err = run("solve", files / "game.json", "-b", 0.05, *arguments)
    assert code == ExitCode.BAD_INPUT
    assert said in one_sentence(err)
    assert unsaid not in err.replace("min_samples=", "").replace("max_iterations=", "")


def test_complaints_of_embed_name_clients_and_options(run, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("client,x\nYork,1\nHull,2\n")
    assert "--removed = York: only client Hull is left" in run("embed", table, "--removed", "York")[2]
    assert "--labels: are needed" in run("embed", table, "--kernel", "joint")[2]
    table.write_text("client,x\nYork,1\nHull,1\n")
    assert "--bandwidth NUMBER" in run("embed", table)[2]


def test_options_of_mechanisms_are_typed_by_name(run, files, game, tmp_path):
    names = list(game.names)
    labels = ["north", "south"] * 3 + ["north"]
    table = tmp_path / "groups.csv"
    table.write_text("client,group\n" + "\n".join(f"{a},{b}" for a, b in zip(names, labels, strict=True)))
    by_name = ",".join(f"{a}={b}" for a, b in zip(names, labels, strict=True))
    expected = game.solve(0.05, "grouped", groups=labels).payments.tolist()
    for typed in (",".join(labels), by_name, table):
        arguments = ("solve", files / "game.json", "-b", 0.05, "-m", "grouped", "--groups", typed, "--json")
        assert json.loads(run(*arguments)[1])["payments"] == expected
    for typed, said in (
        ("3=a", "--groups: has no value for 4"),
        (f"{by_name},x=a", "there is no such client"),
    ):
        assert said in run("solve", files / "game.json", "-b", 0.05, "-m", "grouped", "--groups", typed)[2]
    table.write_text("client,kind\n3,a\n")
    assert "no column 'group'" in run("solve", files / "game.json", "-m", "grouped", "--groups", table)[2]
    arguments = (
        "solve",
        files / "game.json",
        "-b",
        0.05,
        "-m",
        "posted",
        "--option",
        "public_cost=0.5",
        "--json",
    )
    assert (
        json.loads(run(*arguments)[1])["payments"]
        == game.solve(0.05, "posted", public_cost=0.5).payments.tolist()
    )
    arguments = ("solve", files / "game.json", "-b", 0.05, "-m", "haipo", "--option", "others=full", "--json")
    assert json.loads(run(*arguments)[1])["own_options"] == {"others": "full"}


def test_the_help_of_solve_lists_every_mechanism(run):
    sf.register_mechanism("half-of-cost", lambda game, budget: 0.5 * game.costs)
    try:
        _, out, _ = run("solve", "--help")
    finally:
        sf.leader.mechanisms.forget("half-of-cost")
    words = " ".join(out.replace("│", " ").split())
    listed = re.search(r"certified, [a-z, -]*half-of-cost\.", words)
    assert listed
    built_in = {"certified", "haipo", "uniform", "grouped", "posted", "shapley", "leave-one-out"}
    assert set(listed[0].rstrip(".").split(", ")) == built_in | {"half-of-cost"}


#: Names that something on the way might take for more than a name.
AWKWARD = (
    "Leeds",
    "[north] ward",
    "Kingston upon Hull, City of",
    "a=b",
    '"',
    "5$ or 6$",
    "São Paulo",
    "ward 10",
)


def awkward(game):
    return game.replace(names=[*AWKWARD, *(f"ward {k}" for k in range(len(AWKWARD), len(game.all_sizes)))])


def test_names_pass_tables_unharmed(run, game, tmp_path):
    file, names = tmp_path / "game.json", awkward(game.replace(removed=[1, 2])).names
    awkward(game.replace(removed=[1, 2])).save(file)
    for command in (
        ("equilibria", file),
        ("solve", file, "-b", 0.05, "-o", tmp_path / "s.json"),
        ("solve", file, "-b", 2, "--offers", "capped", "--min-total", 0.1, "--gap", 0.01),
    ):
        code, out, _ = run(*command)
        assert code == 0
        assert 'forgotten: [north] ward, "Kingston upon Hull, City of";' in out
        for name in names:
            assert re.search(rf"^ *{re.escape(name)} ", out, re.MULTILINE), (command, name)
    code, out, _ = run("cascade", tmp_path / "s.json", "--outside", 'a=b=5,"5$ or 6$=5"')
    assert code == 0
    assert "6 of 8 stay: Leeds, " in out
    assert 'Leeds, """", São Paulo' in out


def test_a_frontier_with_commas_in_names_has_its_columns(run, game, tmp_path):
    named, file = awkward(game.replace(removed=[0])), tmp_path / "game.json"
    named.save(file)
    assert run("frontier", file, "-b", "0,0.05", "-o", tmp_path / "f.csv")[0] == 0
    with (tmp_path / "f.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    traced = named.frontier([0.0, 0.05])
    for row, solution in zip(rows, traced, strict=True):
        assert len(row) == 7 + 2 * named.count
        assert float(row["samples_used"]) == solution.samples_used
        assert [float(row[f"payment_{name}"]) for name in named.names] == solution.payments.tolist()


def test_a_cell_that_is_no_number_is_named_with_its_file(run, tmp_path):
    for text, expected in {
        "client,x\na,1\nb,nan\n": "samples: {}: row 2 of column 'x' is missing, and 1 of 2 rows have gaps",
        "client,x\na,1\nb,\n": "samples: {}: row 2 of column 'x' is missing, and 1 of 2 rows have gaps",
        "client,x\na,1\n,2\n": "{}: column 'client' has no client in row 2",
        "client;x\na;1,5\nb;2,5\nc;high\n": "samples = 'high': {}: row 3 of column 'x' is not a number",
    }.items():
        (tmp_path / "s.csv").write_text(text)
        code, _, err = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json")
        assert code == ExitCode.BAD_INPUT
        assert expected.format(tmp_path / "s.csv") in one_sentence(err)


def test_examples_in_help_are_lines_to_copy(run):
    for command in ("demo", "embed", "calibrate", "solve", "cheapest", "frontier", "cascade", "explore"):
        _, out, _ = run(command, "--help")
        below = out[out.index("Example") :]
        assert f"stackfu {command}" in below
        assert " | " not in below, command


def test_a_budget_without_a_bound_shows_none(game):
    from dataclasses import replace

    from stackfu.cli.tables import frontier_table

    traced = game.frontier([0.05])
    bare = replace(traced, solutions=tuple(replace(s, lower_bound=-np.inf) for s in traced))
    columns = {column.header: list(column.cells) for column in frontier_table(bare, "").columns}
    assert columns["lower bound"] == [""]
    assert columns["gap"] == [""]


def test_many_who_stay_are_counted(run, tmp_path):
    emb = sf.MeanEmbeddings.from_features(np.random.default_rng(0).normal(size=(30, 3)))
    sf.StackelbergGame(emb, np.ones(30), [0], cost_scale=1.0).save(tmp_path / "g.json")
    code, out, _ = run("cascade", tmp_path / "g.json", "--outside", -100)
    assert code == 0
    assert "29 of 29 stay: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 17 more." in " ".join(out.split())


def test_numbers_that_print_alike_are_said_once(game):
    from types import SimpleNamespace

    from stackfu.cli.tables import best_in_words
    from stackfu.results import Status, Uniqueness

    solution = game.solve(0.05)

    def told(bound, best, worst):
        several = SimpleNamespace(uniqueness=Uniqueness.UNKNOWN)
        parts = {"lower_bound": bound, "objective": best, "gap": best - bound, "equilibrium": several}
        parts |= {"relative_gap": (best - bound) / best, "goal": solution.goal}
        fields = {
            "budget": 1.0,
            "offers": solution.offers,
            "proves": "server loss",
            "message": "",
            "status": Status.CERTIFIED,
            "game": game,
        }
        return best_in_words(SimpleNamespace(**parts, **fields, optimistic=best, pessimistic=worst))

    early = SimpleNamespace(
        lower_bound=-np.inf, status=Status.TIME_LIMIT, method="certified", message="", offers=solution.offers
    )
    assert "proved nothing" in best_in_words(early)
    assert "--time-limit" in best_in_words(early)
    assert "(no gap)" in told(0.2, 0.2, 0.2)
    apart = told(0.1, 0.2, 0.3)
    assert "below 0.1; these bring it to 0.2 (gap 50% of that)" in apart
    assert "lies between 0.2 and 0.3" in apart
    alike = told(0.2, 0.2 + 1e-12, 0.2 + 2e-12)
    assert "below 0.2, which these reach (gap 5e-10% of that)" in alike
    assert "is 0.2 in all that are known (at most 1.0e-12 apart)" in alike
    assert "apart" not in told(0.1, 0.2, 0.2)


@pytest.mark.parametrize(
    ("uniqueness", "said"),
    [
        ("UNKNOWN", "Whether they have other equilibria is not settled: there are many"),
        ("MULTIPLE", "one of several"),
    ],
)
def test_equilibria_of_very_many_clients_are_not_listed_for_a_sentence(game, uniqueness, said):
    """The search of 10,000 clients kept its limit of 20 s, and the command took more than six minutes."""
    from types import SimpleNamespace

    from stackfu.cli.tables import best_in_words
    from stackfu.results import Uniqueness

    solution = game.solve(0.05)
    several = SimpleNamespace(uniqueness=Uniqueness[uniqueness], reason="there are many")
    parts = {"lower_bound": 0.1, "objective": 0.2, "gap": 0.1, "equilibrium": several, "budget": 1.0}
    fields = {
        "relative_gap": 0.5,
        "goal": solution.goal,
        "offers": solution.offers,
        "proves": "server loss",
        "game": SimpleNamespace(count=301, currency=None),
        "message": "",
    }
    assert said in best_in_words(SimpleNamespace(**parts, **fields))  # nothing else is there to be asked for


def test_budgets_end_where_more_buys_nothing_for_many_clients_too():
    """Without a budget 2,000 clients were paid 9.6; 0.6 brought as good a mixture, and all stops of the slider looked alike."""
    from types import SimpleNamespace

    from stackfu.cli.budgets import MANY, even_grid, grid
    from stackfu.model import Objective
    from stackfu.results import Status

    class Game:
        count = MANY + 1
        full_participation_price = 20.0

        def equilibrium(self):
            return SimpleNamespace(server_loss=1.0)

        free = False
        status, lower_bound = Status.CERTIFIED, 0.0

        def solve(self, budget, **options):
            assert budget != 0.0
            spend = 0.0 if self.free else 9.6 if budget is None else budget
            loss = 1e-4 if spend > 0.5 else 0.5 - spend
            return SimpleNamespace(
                spend=spend,
                objective=loss,
                status=self.status,
                participation=None,
                limits=SimpleNamespace(gap=1e-3),
                lower_bound=self.lower_bound,
                gap=loss - self.lower_bound,
                goal=Objective(),
            )

    assert grid(Game(), None, 4)[-1] == pytest.approx(0.6)
    assert even_grid(Game(), None, 5) == pytest.approx([0.15, 0.3, 0.45, 0.6])
    Game.count = MANY
    assert grid(Game(), None, 4)[-1] == 9.6
    Game.count, Game.free = MANY + 1, True
    assert grid(Game(), None, 4) == [0.0]
    # a stopped search without a result knows no end; more than the full price is never needed
    Game.status, Game.full_participation_price = Status.TIME_LIMIT, 0.519
    assert grid(Game(), None, 4)[-1] == 0.519
    assert even_grid(Game(), None, 5) == pytest.approx([0.15, 0.3, 0.45, 0.519])
    # one that was stopped where it had found most of it knows
    Game.free = False
    assert even_grid(Game(), None, 5) == pytest.approx([0.15, 0.3, 0.45, 0.6])


# -------------------------------------------------------------------- embed


def samples(rng):
    owner = np.repeat(["b", "a", "c"], [5, 7, 6])
    return owner, rng.normal(size=(18, 3)) + np.repeat([0.0, 1.0, 2.0], [5, 7, 6])[:, None]


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_embed_reads_all_formats_alike(run, tmp_path, ending):
    owner, table = samples(np.random.default_rng(0))
    path = tmp_path / f"s.{ending}"
    if ending == "npz":
        np.savez(path, x=table, client=owner, label=np.arange(18))
    else:
        rows = [(*row, name, "digit") for row, name in zip(table.tolist(), owner.tolist(), strict=True)]
        names = ["x", "y", "z", "client", "label"]
        if ending == "csv":
            path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]))
        else:
            parquet.write_table(pyarrow.table(list(zip(*rows, strict=True)), names), path)
    arguments = ("--removed", "b", "--drop", "label", "--bandwidth", 1.5, "--cost-scale", 2, "--json")
    code, out, err = run("embed", path, "-o", tmp_path / "game.json", *arguments)
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["all_names"] == ["a", "b", "c"]
    assert record["removed"] == ["b"]
    game = sf.load(tmp_path / "game.json")
    emb = sf.MeanEmbeddings.from_samples([table[owner == name] for name in "abc"], bandwidth=1.5)
    np.testing.assert_allclose(game.embeddings.gram, emb.gram, atol=1e-14)
    assert game.all_sizes.tolist() == [7, 5, 6]


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
@pytest.mark.parametrize("spelled", ["numbers", "words"])
def test_embed_with_labels(run, tmp_path, ending, spelled):
    owner, table = samples(np.random.default_rng(0))
    marks = np.arange(18) % 11 if spelled == "numbers" else np.array(["cat", "dog", "emu"] * 6)
    path = tmp_path / f"s.{ending}"
    if ending == "npz":
        np.savez(path, x=table, client=owner, kind=marks)
    else:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(table, columns=["x", "y", "z"]).assign(client=owner, kind=marks)
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    split = [table[owner == name] for name in "abc"], [marks[owner == name] for name in "abc"]
    for options, kernel, width in (
        (("--kernel", "joint", "--bandwidth", 1.5), "joint", {"bandwidth": 1.5}),
        ((), "joint", {}),
        (("--kernel", "labels"), "labels", {}),
    ):
        game = tmp_path / "game.json"
        code, out, err = run("embed", path, "--labels", "kind", "-o", game, "--removed", "b", *options)
        assert (code, err) == (0, "")
        assert f"Kernel: {kernel}." in out
        assert ("Bandwidth" in out) == (kernel == "joint")
        found = sf.load(game)
        emb = sf.MeanEmbeddings.from_samples(
            split[0], labels=split[1], kernel=kernel, names=["a", "b", "c"], **width
        )
        np.testing.assert_allclose(found.embeddings.gram, emb.gram, atol=1e-13)
        assert found.embeddings.names == ("a", "b", "c")
        assert found.all_sizes.tolist() == [7, 5, 6]


def test_embed_by_labels_alone_needs_no_other_column(run, tmp_path):
    (tmp_path / "s.csv").write_text("client,kind,remark\na,x,fine\na,y,fine\nb,x,good\nc,y,good\n")
    code, _, err = run(
        "embed", tmp_path / "s.csv", "--labels", "kind", "--kernel", "labels", "-o", tmp_path / "g.json"
    )
    assert (code, err) == (0, "")
    emb = sf.MeanEmbeddings.from_counts({"a": [1, 1], "b": [1, 0], "c": [0, 1]})
    assert sf.load(tmp_path / "g.json").embeddings == emb


def test_embed_orders_numbers_as_numbers(run, tmp_path):
    lines = ["client,x"] + [f"{k},{k + i / 10}" for k in (10, 2, 0) for i in range(3)]
    (tmp_path / "s.csv").write_text("\n".join(lines))
    code, out, _ = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json", "--json")
    assert code == 0
    assert json.loads(out)["names"] == ["0", "2", "10"]


def test_embed_of_feature_vectors_in_parquet(run, tmp_path):
    owner, table = samples(np.random.default_rng(1))
    parquet.write_table(pyarrow.table({"who": owner, "vector": table.tolist()}), tmp_path / "s.parquet")
    code, _, err = run(
        "embed", tmp_path / "s.parquet", "--client", "who", "-o", tmp_path / "g.npz", "--features", 64
    )
    assert (code, err) == (0, "")
    assert sf.load(tmp_path / "g.npz").embeddings.features.shape == (3, 64)


@pytest.mark.parametrize(
    ("content", "arguments", "problem"),
    [
        ("client,x\n", (), "no rows"),
        ("", (), "empty"),
        ("client,x\na,1\nb,2,3\n", (), "line 3"),
        ("client,x\na,1\nb,red\n", (), "--drop x"),
        ("client,x\na,1\nb,inf\nc,2\n", (), "finite"),
        ("owner,x\na,1\nb,2\n", (), "no such column"),
        ("client\na\nb\n", (), "no column of samples"),
        ("client,x\na,1\nb,2\nc,3\n", ("--removed", "d"), "no such client"),
        ("client,x\na,1\nb,2\nc,3\n", ("--drop", "y"), "no such column"),
        ("client,x\na,1\nb,2\nc,3\n", ("--bandwidth", "wide"), "bandwidth"),
        ("client,x\na,1\nb,2\nc,3\n", ("--removed", "a,b"), "at least two"),
        ("client,x\na,1\nb,2\nc,3\n", ("--labels", "y"), "no such column"),
        ("client,x\na,1\nb,2\nc,3\n", ("--labels", "client"), "whose sample it is"),
        ("client,x\na,1\nb,2\nc,3\n", ("--kernel", "joint"), "labels: are needed"),
        ("client,x,y\na,1,u\nb,2,\nc,3,v\n", ("--labels", "y"), "no label in row 2"),
        (
            "client,x,y\na,1,u\nb,2,u\nc,3,v\n",
            ("--labels", "y", "--kernel", "rbf"),
            "does not look at labels",
        ),
        ("client,x,y\na,1,u\nb,2,u\nc,3,v\n", ("--labels", "y", "--kernel", "cosine"), "'cosine'"),
        (
            "client,x,y\na,1,u\nb,2,u\nc,3,v\n",
            ("--labels", "y", "--kernel", "labels", "--features", 8),
            "RBF",
        ),
    ],
)
def test_embed_says_in_one_sentence_what_is_wrong(run, tmp_path, content, arguments, problem):
    (tmp_path / "s.csv").write_text(content)
    code, out, err = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json", *arguments)
    assert (code, out) == (ExitCode.BAD_INPUT, "")
    assert problem in one_sentence(err)
    assert not (tmp_path / "g.json").exists()


@pytest.mark.parametrize(("mark", "ending"), [(";", "csv"), ("\t", "csv"), ("\t", "tsv")])
def test_embed_reads_semicolons_tabs_and_decimal_commas(run, tmp_path, mark, ending):
    plain = "client,x,y\na,1.5,2\na,2.25,1\nb,0.5,3\nc,1,1.5\n"
    (tmp_path / "plain.csv").write_text(plain)
    (tmp_path / f"s.{ending}").write_text(plain.replace(",", mark).replace(".", ","))
    for name in ("plain.csv", f"s.{ending}"):
        assert run("embed", tmp_path / name, "--bandwidth", 1, "-o", tmp_path / f"{name}.json")[0] == 0
    assert sf.load(tmp_path / "plain.csv.json") == sf.load(tmp_path / f"s.{ending}.json")


def test_a_comma_in_a_name_is_no_decimal_comma(run, tmp_path):
    (tmp_path / "s.csv").write_text("client;x\nLeeds, North;1\nLeeds, South;2\nYork;3\n")
    code, out, _ = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json", "--json")
    assert code == 0
    assert json.loads(out)["all_names"] == ["Leeds, North", "Leeds, South", "York"]


def test_standard_input_is_a_file_called_minus(run, files, tmp_path, monkeypatch):
    def given(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    given(b"client,x\na,1\na,2\nb,5\nc,3\n")
    assert run("embed", "-", "-o", tmp_path / "g.json")[0] == 0
    assert sf.load(tmp_path / "g.json").names == ("a", "b", "c")
    for name in ("game.json", "equilibrium.npz"):
        given((files / name).read_bytes())
        code, out, _ = run("equilibria", "-", "--json")
        assert code == 0
        assert json.loads(out)["equilibria"]
    given(b"{")
    code, _, err = run("solve", "-", "-b", 1)
    assert code == ExitCode.BAD_INPUT
    assert "standard input" in one_sentence(err)
    given((files / "game.json").read_bytes())
    code, _, err = run("explore", "-")
    assert code == ExitCode.BAD_INPUT
    assert "--output" in one_sentence(err)


def test_columns_on_wildly_different_scales_are_pointed_out(run, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{'abc'[i % 3]},{rng.normal()},{1e4 * rng.normal()},7" for i in range(30)]
    (tmp_path / "s.csv").write_text("\n".join(["client,age,income,constant", *rows]))
    code, _, err = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json")
    assert code == 0
    assert "'income'" in one_sentence(err)
    assert "'age'" in err
    _, out, err = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json", "--json")
    assert err == ""
    assert "'income'" in json.loads(out)["notes"][0]
    code, _, err = run("embed", tmp_path / "s.csv", "-o", tmp_path / "s.json", "--standardise")
    assert (code, err) == (0, "")
    assert sf.load(tmp_path / "s.json") != sf.load(tmp_path / "g.json")


def test_what_embed_would_ignore_it_refuses(run, tmp_path):
    (tmp_path / "s.csv").write_text("client,x,y\na,1,u\nb,2,v\nc,3,v\n")
    for arguments in (("--seed", 3), ("--labels", "y", "--kernel", "labels", "--standardise")):
        code, _, err = run("embed", tmp_path / "s.csv", "-o", tmp_path / "g.json", *arguments)
        assert code == ExitCode.BAD_INPUT
        assert arguments[-1 if "--standardise" in arguments else 0] in one_sentence(err)


def test_payments_below_rounding_print_as_nothing(game):
    from stackfu.cli.tables import NOTHING, clients_table, number

    assert number(1e-17, NOTHING * 1.0) == "0"
    assert number(1e-17) == "1e-17"
    eq = game.equilibrium(np.full(game.count, 1e-15))
    table = clients_table(eq, "")
    payments = next(column for column in table.columns if column.header == "payment")
    assert set(payments.cells) == {"0"}


# -------------------------------------------------------------------- calibrate


def test_calibrate_from_plan_to_calibrated_game(run, files, tmp_path, game):
    plan = tmp_path / "pilots.csv"
    code, out, _ = run("calibrate", files / "game.json", "--plan", 6, "-o", plan)
    assert code == 0
    assert "fill in" in out
    assert "fewest of a client" in out
    code, _, err = run("calibrate", files / "game.json", plan)
    assert code == ExitCode.BAD_INPUT  # not filled in yet
    assert "change must be a number" in one_sentence(err)

    truth = game.replace(loss_constant=3.0, sampling_constant=5.0)
    with plan.open() as file:
        rows = list(csv.DictReader(file))
    rng = np.random.default_rng(0)
    for pilot in {row["pilot"] for row in rows}:
        mine = [row for row in rows if row["pilot"] == pilot]
        observed = truth.impacts([float(row["participation"]) for row in mine]).clients
        for row, change in zip(mine, observed, strict=True):
            row["change"] = repr(float(change * (1 + 0.01 * rng.normal())))
    rng.shuffle(rows)  # the order of rows does not matter
    with plan.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    target = tmp_path / "calibrated.json"
    code, out, err = run("calibrate", files / "game.json", plan, "-o", target, "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    low, high = record["loss_interval"]
    assert low < 3.0 < high
    fitted = sf.load(target)
    assert fitted.calibrated
    assert fitted.loss_constant == record["loss_constant"]
    # a guess is called one, what is calibrated is not
    assert "A guess" in run("solve", files / "game.json", "-b", 0.05, "-m", "haipo")[1]
    assert "A guess" not in run("solve", target, "-b", 0.05, "-m", "haipo")[1]

    # against another model than the original one: C differs from zero but is wrong, and the pilots are not predicted
    other = [{**row, "change": repr(float(row["change"]) + 0.2)} for row in rows]
    with (tmp_path / "other.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(other)
    code, out, err = run("calibrate", files / "game.json", tmp_path / "other.csv", "-o", tmp_path / "c.json")
    assert code == ExitCode.NOT_PROVED
    assert "Written" in out
    assert "the constants do not predict" in one_sentence(err)

    plan.write_text(plan.read_text() + "1,Leeds,1,0.5,0.1\n")
    code, _, err = run("calibrate", files / "game.json", plan)
    assert code == ExitCode.BAD_INPUT
    assert "'Leeds'" in one_sentence(err)


def test_tables_of_pilots_hold_samples_or_participation(run, files, tmp_path, game):
    plan, other = tmp_path / "pilots.csv", tmp_path / "other.csv"
    run("calibrate", files / "game.json", "--plan", 4, "-o", plan)
    with plan.open() as file:
        rows = [{**row, "change": str(0.01 * int(row["samples"]))} for row in csv.DictReader(file)]
    answers = []
    for left_out in ("samples", "participation", None):
        with other.open("w", newline="") as file:
            kept = [{name: row[name] for name in row if name != left_out} for row in rows]
            writer = csv.DictWriter(file, kept[0])
            writer.writeheader()
            writer.writerows(kept)
        answers.append(json.loads(run("calibrate", files / "game.json", other, "--json")[1]))
    assert answers[1] == answers[2]
    assert answers[0]["loss_constant"] == pytest.approx(answers[1]["loss_constant"])
    text = other.read_text().splitlines()
    cells = text[1].split(",")
    other.write_text("\n".join([text[0], ",".join([*cells[:3], "0.123456", cells[4]]), *text[2:]]))
    code, _, err = run("calibrate", files / "game.json", other)
    assert code == ExitCode.BAD_INPUT
    assert "row 1: " in one_sentence(err)
    assert "not 0.123456; mend one of the two" in err


# -------------------------------------------------------------------- errors and exit codes


def test_bad_input_is_one_sentence_and_two(run, files, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    for arguments in (
        ("solve", tmp_path / "missing.json", "-b", 1),
        ("solve", tmp_path / "broken.json", "-b", 1),
        ("solve", files / "game.json", "-b", -1),
        ("solve", files / "game.json", "-b", "much"),
        ("solve", files / "game.json", "-b", 1, "-m", "magic"),
        ("solve", files / "game.json", "-b", 1, "-o", tmp_path / "s.txt"),
        ("solve", files / "game.json", "-b", 1, "-m", "haipo", "--robust"),
        ("solve", files / "game.json", "-m", "uniform"),
        ("equilibria", files / "game.json", "-p", "1,2"),
        ("equilibria", files / "game.json", "-p", "1,x"),
        ("frontier", files / "game.json", "--to", 0),
        ("frontier", files / "game.json", "-b", "0.1,0.2", "--points", 5),
        ("explore", files / "game.json", "--compare", "hapio", "-o", tmp_path / "page.html", "--points", 2),
        ("explore", files / "game.json", "--outside", "1,2", "-o", tmp_path / "page.html"),
        ("calibrate", files / "game.json"),
        ("calibrate", files / "game.json", "--plan", 4),
        ("calibrate", files / "game.json", "--plan", 4, "--json", "-o", tmp_path / "p.csv"),
        ("calibrate", files / "game.json", tmp_path / "missing.csv"),
        ("verify", files / "game.json"),
        ("explore", files / "game.json", "-o", tmp_path / "page.txt"),
        ("fly",),
        ("solve",),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (ExitCode.BAD_INPUT, ""), arguments
        one_sentence(err)


def test_infeasible_is_three(run, files, tmp_path):
    code, _, err = run("solve", files / "game.json", "-b", 1, "--min-total", 1.5)
    assert code == ExitCode.INFEASIBLE
    one_sentence(err)
    sf.catalog.collapse().game.save(tmp_path / "collapse.json")
    assert run("equilibria", tmp_path / "collapse.json")[0] == ExitCode.INFEASIBLE


def test_a_defect_is_seventy_and_says_so(run, files, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("boom")

    monkeypatch.setattr(sf.StackelbergGame, "equilibria", broken)
    code, _, err = run("equilibria", files / "game.json")
    assert code == ExitCode.INTERNAL
    assert "boom" in one_sentence(err)
    monkeypatch.setenv("STACKFU_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="boom"):
        main(["equilibria", str(files / "game.json")])


def test_an_interruption_is_130(run, files, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sf.StackelbergGame, "equilibria", interrupted)
    assert run("equilibria", files / "game.json")[0] == ExitCode.INTERRUPTED


# -------------------------------------------------------------------- help, completion, start


@pytest.mark.parametrize(
    "command",
    ["demo", "embed", "solve", "equilibria", "frontier", "calibrate", "verify", "lemmas", "explore"],
)
def test_every_command_has_help_with_an_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "Example" in out
    assert f"stackfu {command}" in out.replace("\n", " ")


def test_version_comes_from_one_place(run):
    from importlib.metadata import version

    assert run("--version")[1] == f"stackfu {sf.__version__}\n"
    assert version("stackfu") == sf.__version__


def test_completion_offers_the_commands():
    environment = {
        **os.environ,
        "_STACKFU_COMPLETE": "complete_bash",
        "COMP_WORDS": "stackfu e",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "stackfu"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["embed", "equilibria", "explore"]


def test_help_and_import_load_nothing_heavy():
    probe = (
        "import sys, stackfu, stackfu.cli.commands;"
        "print([m for m in ('numpy', 'numba', 'cvxpy', 'scipy', 'matplotlib', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_closed_pipe_is_no_error(files):
    script = f"{sys.executable} -m stackfu equilibria {files / 'game.json'} --json | head -c 1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "{"
    assert done.stderr == ""


def test_an_output_that_cannot_be_written_is_refused_before_the_work(run, files, tmp_path, monkeypatch):
    monkeypatch.setattr(sf.StackelbergGame, "solve", lambda *a, **k: pytest.fail("solved first"))
    missing = tmp_path / "nowhere" / "x"
    for command in ("solve", "frontier", "explore"):
        ending = ".html" if command == "explore" else ".json"
        code, out, err = run(command, files / "game.json", "-o", missing.with_suffix(ending))
        assert (code, out) == (2, "")
        assert "there is no folder" in err
        assert ".part" not in err


def test_a_row_without_a_client_is_named(run, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("client,a\n0,1\n0,2\n,3\n1,4\n1,5\n")
    code, _, err = run("embed", table, "-o", tmp_path / "g.json")
    assert code == 2
    assert "no client in row 3" in err
    table.write_text("client,a\n0,1\n0,x\n1,4\n1,5\n")
    code, _, err = run("embed", table, "-o", tmp_path / "g.json")
    assert code == 2
    assert "row 2 of column 'a'" in err
    assert "np.str_" not in err


@pytest.mark.parametrize("tolerance", ["nan", "-1", "0"])
def test_a_senseless_tolerance_is_refused(run, files, tolerance):
    code, _, err = run("verify", files / "solution.json", "--tolerance", tolerance)
    assert code == 2
    assert "tolerance" in err


def test_inner_products_that_contradict_each_other_are_refused(run, tmp_path):
    rng = np.random.default_rng(0)
    samples = [rng.normal(size=(8, 2)) + i for i in range(4)]
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_samples(samples, 1.0), [8] * 4, [0])
    file = tmp_path / "game.json"
    game.save(file)
    sound = json.loads(file.read_text())
    for edit in (
        lambda e: e["complement"]["array"][1].__setitem__(2, 0.9),
        lambda e: e["gram"]["array"][1].__setitem__(1, 5.0),
        lambda e: e["complement"]["array"][1].__setitem__(1, float("nan")),
        lambda e: e["complement"]["array"].pop(),
    ):
        record = json.loads(json.dumps(sound))
        edit(record["embeddings"])
        file.write_text(json.dumps(record))
        code, out, err = run("solve", file, "-b", "0.05")
        assert (code, out) == (2, ""), err


def test_clients_are_shown_what_is_predicted_to_happen_to_their_loss(run, files, game):
    code, out, _ = run("solve", files / "game.json", "-b", "0.05")
    assert code == 0
    x = game.solve(0.05).participation
    assert "change: of its loss, predicted" in " ".join(out.split())
    assert all(f"{change:+.3g}" in out for change in game.impacts(x).clients)
    assert "distance" not in out
    code, out, _ = run("solve", files / "game.json", "-b", "0.05", "--json")
    np.testing.assert_allclose(
        json.loads(out)["equilibrium"]["impacts"]["clients"], game.impacts(x).clients, atol=1e-6
    )


def test_nobody_to_forget_is_no_reason_for_strange_numbers(run, tmp_path):
    file = tmp_path / "game.json"
    sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 1, 1]).save(file)
    code, out, _ = run("solve", file, "-b", "0.05")
    assert code == 0
    assert "nan" not in out


def test_thousands_of_clients_are_told_what_to_do_instead_of_waiting(run, tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "game.npz"
    embeddings = sf.MeanEmbeddings.from_features(rng.normal(size=(2002, 3)))
    sf.StackelbergGame(embeddings, np.ones(2002), [0], cost_scale=5.0).save(file)
    code, out, err = run("equilibria", file)
    assert (code, out) == (2, "")
    assert "2001" in err
    assert "--one" in err
    code, out, _ = run("equilibria", file, "--one", "--json")
    record = json.loads(out)
    assert len(record["equilibria"]) == 1
    assert record["complete"] == (record["uniqueness"] == "UNIQUE")
    assert code == 0  # one was asked for, and is certified


def test_the_bare_command_shows_its_help(run):
    code, out, err = run()
    assert (code, err) == (2, "")
    assert "Usage" in out


# -------------------------------------------------------------------- names, and words as they were typed


@pytest.fixture
def hospitals(tmp_path, capsys):
    """A game of four hospitals, one with a comma in its name."""
    rng = np.random.default_rng(0)
    lines = ["hospital,a,b"]
    for i, name in enumerate(["Leeds", '"Hull, City of"', "York", "Ripon"]):
        lines += [
            ",".join([name, *map(repr, rng.normal(0.4 * i, 1.0, 2).tolist())]) for _ in range(20 + 5 * i)
        ]
    table = tmp_path / "patients.csv"
    table.write_text("\n".join(lines) + "\n")
    game = tmp_path / "game.json"
    assert main(["embed", str(table), "--client", "hospital", "--removed", "Leeds", "-o", str(game)]) == 0
    capsys.readouterr()
    return game


@pytest.mark.parametrize("removed", ["Hull, City of", '"Hull, City of"', 'York,"Hull, City of"'])
def test_a_name_may_hold_a_comma(hospitals, removed, tmp_path, run):
    table, game = str(tmp_path / "patients.csv"), str(tmp_path / "other.json")
    code, _, err = run("embed", table, "--client", "hospital", "--removed", removed, "-o", game, "--json")
    assert code == 0, err
    gone = {sf.load(game).called(k) for k in sf.load(game).removed}
    assert gone == ({"York", "Hull, City of"} if removed.startswith("York") else {"Hull, City of"})


def test_payments_by_name_are_payments_in_order(hospitals, run):
    names = sf.load(hospitals).names
    assert names == ("Hull, City of", "Ripon", "York")
    by_name = run("equilibria", str(hospitals), "--payments", 'York=0.5,"Hull, City of=0.25"', "--json")
    in_order = run("equilibria", str(hospitals), "--payments", "0.25,0,0.5", "--json")
    assert by_name[0] == in_order[0] == 0
    ours, theirs = json.loads(by_name[1]), json.loads(in_order[1])
    assert ours["equilibria"][0]["participation"] == theirs["equilibria"][0]["participation"]
    assert ours["equilibria"][0]["payments"] == [0.25, 0, 0.5]
    capped = run("equilibria", str(hospitals), "-p", "0,0,9", "--caps", "York=0.5", "--json")
    assert json.loads(capped[1])["equilibria"][0]["participation"][2] == pytest.approx(0.5)


def test_who_may_leave_is_told_by_name(hospitals, run):
    code, out, _ = run("cascade", str(hospitals), "--outside", "York=5", "--json")
    assert code == 0
    assert json.loads(out)["stayed"] == ["Hull, City of", "Ripon"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["equilibria", "GAME", "--payments", "Yrk=1"], "--payments = 'Yrk': there is no such client; the clients are "),
        (["equilibria", "GAME", "--payments", "Leeds=1"], "--payments = 'Leeds': there is no such remaining client, it was"),
        (["equilibria", "GAME", "--payments", "York=1,2"], "must name its client"),
        (["equilibria", "GAME", "--payments", "York=1,York=2"], "--payments[client York]: is given twice"),
        (["equilibria", "GAME", "--payments", "York=much"], "--payments[client York] = 'much': must be a number"),
        (["cascade", "GAME", "--outside", "x"], "--outside = 'x': must be a number"),
        (["solve", "GAME", "--method", "nosuch"], "--method = 'nosuch': must be one of"),
        (["frontier", "GAME", "--to", "0"], "--to = 0.0: must be positive"),
        (["slove", "GAME"], "No such command 'slove'. Did you mean 'solve'? (see"),
        (["solve", "TABLE", "-b", "1"], "a table, not a game; make one of it first: stackfu embed"),
        (["embed", "TABLE", "--client", "hospital", "--removed", "York,York"], "--removed = 'York': names a client twice"),
        (["embed", "TABLE", "--client", "hospitl"], "--client = 'hospitl':"),
    ],
)  # fmt: skip
def test_errors_say_what_was_typed(hospitals, arguments, said, run):
    places = {"GAME": str(hospitals), "TABLE": str(hospitals.with_name("patients.csv"))}
    code, out, err = run(*[places.get(word, word) for word in arguments])
    assert code == 2
    assert not out
    assert said in " ".join(err.split())
    assert err.count("Did you mean") <= 1


@pytest.mark.parametrize("cell", ["nan", "inf", "much"])
def test_rows_of_a_table_are_counted_one_way(cell, tmp_path, run):
    table = tmp_path / "t.csv"
    table.write_text(f"client,a\nx,1\ny,2\n\ny,{cell}\n")
    code, _, err = run("embed", str(table), "-o", str(tmp_path / "g.json"))
    assert code == 2
    assert f"row 3 of column 'a' is {'missing' if cell == 'nan' else 'not a'}" in err
    table.write_text("client,a\nx,1\ny,2\n\ny\n")
    code, _, err = run("embed", str(table), "-o", str(tmp_path / "g.json"))
    assert "row 3 (line 5) has 1 fields" in err

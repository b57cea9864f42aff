"""Money and its unit: where it is named, what is said when numbers do not seem to be in one unit, and how numbers are typed."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.cli import main
from stackfu.demo import digits_game
from stackfu.errors import InputError, StackfuWarning
from stackfu.explorer import explorer_data
from stackfu.html import money, number
from stackfu.model.units import OTHER_UNIT, unit_doubts


@pytest.fixture(scope="module")
def game():
    return digits_game().replace(currency="EUR")


@pytest.fixture(scope="module")
def files(game, tmp_path_factory):
    folder = tmp_path_factory.mktemp("units")
    game.save(folder / "game.json")
    game.solve(0.05, progress=False).save(folder / "solution.json")
    return folder


@pytest.fixture
def run(capsys):
    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return call


# -------------------------------------------------------------------- the currency


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_the_currency_is_kept_in_files_and_copies(game, tmp_path, ending):
    game.save(tmp_path / f"g.{ending}")
    assert sf.load(tmp_path / f"g.{ending}") == game
    assert game.replace(lambda_q=2.0).currency == "EUR"
    assert game != digits_game()
    assert game.summary()["currency"] == "EUR"
    assert digits_game().currency is None


@pytest.mark.parametrize("currency", ["", "  ", 1, "E" * 13, "EU\nR", b"EUR"])
def test_what_names_no_currency_is_refused(currency):
    with pytest.raises(InputError, match='currency = .*short name of a unit of money, such as "EUR"'):
        digits_game().replace(currency=currency)


def test_files_without_a_currency_are_read(tmp_path):
    digits_game().save(tmp_path / "g.json")
    record = json.loads((tmp_path / "g.json").read_text())
    del record["currency"]
    (tmp_path / "g.json").write_text(json.dumps(record))
    assert sf.load(tmp_path / "g.json").currency is None


def test_every_table_names_the_currency(run, files):
    for arguments in (
        ("solve", files / "game.json", "-b", 0.05),
        ("solve", files / "game.json", "-b", 0.3, "--offers", "capped", "--min-total", 0.2, "--gap", 0.2),
        ("solve", files / "game.json", "-b", 0.3, "--offers", "contract", "--min-total", 0.2, "--gap", 0.2),
        ("cheapest", files / "game.json", "--max-loss", 0.01),
        ("frontier", files / "game.json", "-b", "0.05"),
        ("equilibria", files / "solution.json"),
        ("cascade", files / "solution.json", "--outside", -0.05),
    ):
        code, out, _ = run(*arguments)
        assert code in (0, 1)
        assert "amounts of money in EUR" in " ".join(out.split())
        assert "(EUR)" in out or arguments[0] == "cascade"
    _, out, _ = run("solve", files / "game.json", "-b", 0.05)
    assert "within a budget of 0.05 EUR" in " ".join(out.split())


def test_notebooks_frames_pages_and_tables_name_the_currency(game, tmp_path, run, files):
    solution = game.solve(0.05, progress=False)
    traced = game.frontier([0.05], progress=False)
    for thing in (game, solution, solution.equilibrium, game.equilibria(), traced):
        assert "(EUR)" in thing._repr_html_() or " EUR" in thing._repr_html_()
        assert thing.summary()["currency"] == "EUR" if thing is not solution.equilibrium else True
    assert explorer_data(traced, "page", compare=[])["game"]["currency"] == "EUR"
    run("frontier", files / "game.json", "-b", 0.05, "-o", tmp_path / "f.csv")
    head, row = (tmp_path / "f.csv").read_text().splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["currency"] == "EUR"
    pytest.importorskip("pandas")
    for thing in (game, solution, traced):
        assert thing.to_pandas().attrs["currency"] == "EUR"


def test_large_amounts_are_written_in_whole_units():
    assert number(12345.678) == "12346"
    assert money(1234567.0, "EUR") == "1234567 EUR"
    assert money(1e300, None) == "1e+300"


@given(st.floats(-1e15, 1e15))
def test_amounts_lose_no_more_than_their_digits(value):
    assert float(number(value)) == pytest.approx(value, rel=1e-3, abs=0)
    assert float(money(value, None)) == pytest.approx(value, rel=1e-5, abs=0)


# -------------------------------------------------------------------- one unit


def test_a_budget_in_another_unit_is_a_warning(game):
    price = game.full_participation_price
    with pytest.warns(
        StackfuWarning, match=r"budget = 12000 EUR exceeds 0.62\d* EUR, for which everybody takes part"
    ):
        game.solve(12000.0, progress=False)
    with pytest.warns(StackfuWarning, match="less than a thousandth"):
        game.solve(price / 2000, progress=False)
    with pytest.warns(StackfuWarning, match="budget = 12000 EUR exceeds"):
        game.frontier([12000.0], progress=False)


def test_a_warning_points_at_the_line_of_the_user(game):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        game.solve(12000.0, "haipo")
    assert {one.filename for one in caught if issubclass(one.category, StackfuWarning)} == {__file__}


def test_a_sensible_budget_draws_no_word_of_it():
    game = digits_game(calibrated=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", StackfuWarning)
        game.solve(0.05, "haipo")
        game.frontier([0.0, 0.05, 12000.0], "haipo")


@given(st.floats(-8, 8), st.floats(-8, 8))
def test_costs_and_drift_far_apart_are_pointed_out(money_scale, loss_scale):
    base = digits_game(calibrated=True)
    game = base.replace(costs=base.costs * 10.0**money_scale, lambda_q=10.0**loss_scale)
    ratio = float(game.costs.sum()) / (game.lam * game.diameter**2)
    doubts = [doubt for doubt in unit_doubts(game) if doubt.startswith("costs are")]
    if (
        abs(np.log10(ratio) - np.log10(OTHER_UNIT)) > 1e-6
        and abs(np.log10(ratio) + np.log10(OTHER_UNIT)) > 1e-6
    ):
        assert len(doubts) == (ratio > OTHER_UNIT or ratio < 1 / OTHER_UNIT)
    if doubts:
        assert ("mind what the model does" in doubts[0]) == (ratio > 1)


@given(st.floats(-6, 6), st.integers(0, 3))
def test_doubts_do_not_depend_on_the_unit_of_money(scale, which):
    """Costs, lambda_q and budget in another unit are the same game."""
    base = digits_game(calibrated=True)
    factor = 10.0**scale
    other = base.replace(costs=base.costs * factor, lambda_q=base.lambda_q * factor)
    budget = base.full_participation_price * (0.0005, 0.3, 1.5, 1000.0)[which]
    assert len(unit_doubts(base, [budget])) == len(unit_doubts(other, [budget * factor]))


def test_money_and_guessed_constants_are_a_warning(game):
    with pytest.warns(StackfuWarning, match="A guess: losses"):
        game.solve(0.05, "haipo")


def test_the_command_line_says_it_once_and_first(run, files):
    code, out, err = run("solve", files / "game.json", "-b", 12000)
    assert code in (0, 1)
    assert err.startswith("stackfu: note: budget = 12000 EUR exceeds")
    assert err.count("exceeds") == 1
    assert "A guess" in out
    assert "A guess" not in err
    code, _, err = run("frontier", files / "game.json", "-b", "0.00001,0.00002", "--json")
    assert "budget = 2e-05 EUR is less than a thousandth" in err


def test_utilities_outside_may_need_more_than_full_participation(game):
    assert unit_doubts(game.replace(calibrated=True), [1.0], keeping=True) == []


# -------------------------------------------------------------------- how numbers are typed


@pytest.mark.parametrize(
    "word", ["12,000", "12 000", "12'000", "1.234,5", "0,5", "1e", "12\u202f000", "abc", ""]
)
@pytest.mark.parametrize(
    "command",
    [
        ("solve", "game.json", "--budget"), ("solve", "game.json", "--gap"), ("cheapest", "game.json", "--max-loss"),
        ("frontier", "game.json", "--to"), ("embed", "s.csv", "--cost-scale"), ("embed", "s.csv", "--bandwidth"),
        ("verify", "solution.json", "--tolerance"), ("calibrate", "game.json", "--level"), ("explore", "game.json", "--to"),
        ("frontier", "game.json", "--points"), ("calibrate", "game.json", "--plan"), ("embed", "s.csv", "--seed"),
        ("embed", "s.csv", "--loss-constant"),
    ],
)  # fmt: skip
def test_numbers_have_digits_only(run, files, command, word):
    (files / "s.csv").write_text("client,x\na,1\nb,2\nc,3\n")
    name, file, option = command
    code, out, err = run(name, files / file, option, word)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert repr(word) in err or f"'{word}'" in err
    assert "write digits only" in err
    assert option in err


@pytest.mark.parametrize("typed", ["12,000", "1,234,567", "12,500", "-1,000"])
def test_a_list_that_could_be_one_number_is_refused_with_both_readings(run, files, typed):
    together, apart = typed.replace(",", ""), typed.replace(",", ", ")
    code, out, err = run("frontier", files / "game.json", f"--budgets={typed}")
    assert (code, out) == (2, "")
    assert f"--budgets = '{typed}': is {together}, or " in err
    assert f"Write {together}, or a space after the comma: {apart}" in " ".join(err.split())
    code, _, err = run("cascade", files / "game.json", f"--outside={typed}")
    assert code == 2
    assert "--outside" in err
    assert together in err


@pytest.mark.parametrize("typed", ["12,000,24,000", "0,5000,12,000", "1,000.5", "12,050,7"])
def test_commas_between_thousands_in_a_list_are_refused(run, files, typed):
    code, out, err = run("frontier", files / "game.json", f"--budgets={typed}")
    assert (code, out) == (2, "")
    assert f"--budgets = '{typed}': holds commas between thousands" in err


def test_lists_of_numbers_of_clients_cannot_be_one_number(run, files):
    code, _, err = run("equilibria", files / "game.json", "--payments", "0,0,0,100,200,300,400")
    assert code == 0, err
    code, _, err = run("equilibria", files / "game.json", "--payments", "12,000")
    assert code == 2
    assert "is 12000, or 12 and 000?" in err


def test_a_name_with_a_comma_that_lost_its_quotation_marks_is_pointed_out(run, files):
    code, _, err = run("equilibria", files / "game.json", "--payments", "Bath, Somerset=0.1")
    assert code == 2
    assert (
        "'Bath': must name its client, as the others do; a name that holds a comma stands in quotation marks"
        in " ".join(err.split())
    )


# -------------------------------------------------------------------- numbers per client from tables


@pytest.fixture
def wards(tmp_path):
    rng = np.random.default_rng(5)
    rows = ["client,x,y,fee"]
    for name, fee in (("Hull", 900), ("Leeds", 1200), ("York", 300)):
        rows += [f"{name},{rng.normal()},{rng.normal()},{fee}" for _ in range(9)]
    (tmp_path / "wards.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "costs.csv").write_text("client,cost\nYork,300\nHull,900\n")
    (tmp_path / "euros.csv").write_text("client,Cost (EUR),note\nYork,300,a\nHull,900,b\n")
    return tmp_path


def test_costs_come_from_a_table_a_column_or_as_typed(run, wards):
    games = []
    for typed in (wards / "costs.csv", wards / "euros.csv", "fee", "York=300,Hull=900", "900,300"):
        target = wards / "game.json"
        dropped = () if typed == "fee" else ("--drop", "fee")
        code, _, err = run(
            "embed", wards / "wards.csv", "--removed", "Leeds", "--costs", typed, *dropped, "-o", target
        )
        assert code == 0, err
        games.append(sf.load(target))
    assert games[0].costs.tolist() == [900.0, 300.0]
    assert all(one == games[0] for one in games)


def test_sizes_come_from_a_table_or_a_column(run, wards):
    (wards / "sizes.csv").write_text("client,size\nHull,900\nLeeds,1200\nYork,300\n")
    for typed, dropped in ((wards / "sizes.csv", ("--drop", "fee")), ("fee", ())):
        code, _, err = run("embed", wards / "wards.csv", "--sizes", typed, *dropped, "-o", wards / "g.json")
        assert code == 0, err
        assert sf.load(wards / "g.json").all_sizes.tolist() == [900.0, 1200.0, 300.0]


def test_payments_caps_and_utilities_outside_come_from_tables(run, wards):
    run(
        "embed",
        wards / "wards.csv",
        "--removed",
        "Leeds",
        "--drop",
        "fee",
        "--cost-scale",
        1,
        "-o",
        wards / "g.json",
    )
    (wards / "p.csv").write_text("client,payment\nYork,0.1\n")
    (wards / "c.csv").write_text("client,cap\nYork,0.5\n")
    (wards / "o.csv").write_text("client,outside\nYork,-0.5\nHull,-0.6\n")
    for typed, table, command in (
        ("York=0.1", "p.csv", ("equilibria", wards / "g.json", "--payments")),
        ("York=0.5", "c.csv", ("equilibria", wards / "g.json", "--caps")),
        ("York=-0.5,Hull=-0.6", "o.csv", ("cascade", wards / "g.json", "--outside")),
    ):
        code, out, err = run(*command, wards / table, "--json")
        assert code == 0, err
        answers = [json.loads(text) for text in (out, run(*command, typed, "--json")[1])]
        for answer in answers:
            for equilibrium in answer.get("equilibria", ()):
                del equilibrium["seconds"]
        assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("client,fee\nYork,3\n", (), "has no column 'cost'; it has client, fee"),
        ("name,region,cost\nYork,north,3\n", (), "has no column 'client'; it has name, region, cost"),
        ("client,cost\nYork,3\nYork,4\n", (), "--costs[client York]: is given twice"),
        ("client,cost\nYork,\nHull,1\n", (), "--costs[client York] = '': must be a number"),
        ('client,cost\nYork,"12,000"\nHull,1\n', (), "--costs[client York] = '12,000': must be a number; write digits only"),
        ("client,cost\nYork,1\n", (), "is missing"),
        ("client,cost\nYork,1\nHull,-1\n", (), "--costs[client Hull] = -1.0: must be positive"),
        ("client,cost\nYork,1\nHull,1\nBath,2\n", (), "'Bath'"),
        ("client,cost\nYork,1\nHull,1\n", ("--cost-scale", 3), "--cost-scale = 3.0: is for costs by size"),
    ],
)  # fmt: skip
def test_tables_of_costs_that_do_not_fit_are_refused(run, wards, content, arguments, said):
    (wards / "costs.csv").write_text(content)
    code, out, err = run(
        "embed", wards / "wards.csv", "--removed", "Leeds", "--drop", "fee", "--costs", wards / "costs.csv",
        *arguments, "-o", wards / "g.json",
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


@pytest.mark.parametrize(
    "content",
    [
        "ward,cost\nHull,2\nYork,3\n",
        "ward,beds,cost\nHull,9,2\nYork,8,3\n",
        "Cost (EUR),name\n2,Hull\n3,York\n",
    ],
)
def test_clients_of_a_table_are_in_the_column_of_the_samples_or_in_the_only_one(run, wards, content):
    samples = (wards / "wards.csv").read_text().replace("client,", "ward,", 1)
    (wards / "named.csv").write_text(samples)
    (wards / "costs.csv").write_text(content)
    code, _, err = run(
        "embed", wards / "named.csv", "--client", "ward", "--removed", "Leeds", "--drop", "fee", "--costs", wards / "costs.csv",
        "-o", wards / "g.json",
    )  # fmt: skip
    assert code == 0, err
    game = sf.load(wards / "g.json")
    assert dict(zip(game.names, game.costs, strict=True)) == {"Hull": 2.0, "York": 3.0}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("none.csv", "no such file: none.csv"),
        ("price", "has no such column; it has client, x, y, fee"),
        ("client", "--costs = 'client': this column says whose sample it is"),
        ("x", "column 'x' must hold one number per client, and rows of this one differ"),
    ],
)
def test_columns_of_costs_that_do_not_fit_are_refused(run, wards, typed, said):
    code, _, err = run(
        "embed", wards / "wards.csv", "--removed", "Leeds", "--costs", typed, "-o", wards / "g.json"
    )
    assert code == 2
    assert said in " ".join(err.split())

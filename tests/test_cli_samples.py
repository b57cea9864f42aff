"""The command line says how many samples an answer uses, first of all where that is next to nothing, and what is not proved."""

import json

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli import main
from stackfu.demo import digits_game
from stackfu.results import Status

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Hospitals with data that costs about 9,150 in all, one of them with a single row."""
    rng = np.random.default_rng(7)
    points = [rng.normal(size=(n, 2)) + rng.normal(size=2) for n in (60, 40, 55, 1, 30, 80)]
    names = ["Leeds", "York", "Hull", "Bath", "Ely", "Ripon"]
    emb = sf.MeanEmbeddings.from_samples(dict(zip(names, points, strict=True)), bandwidth=1.0)
    game = sf.StackelbergGame(emb, removed=["Leeds"], cost_scale=9150.0)
    path = tmp_path_factory.mktemp("hospitals") / "game.json"
    game.save(path)
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "game.json"
    digits_game(sampling_constant=30.0).save(path)
    return path


def run(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_first_line_says_that_a_plan_uses_less_than_a_sample_each(hospitals, capsys):
    code, out, _ = run(capsys, "solve", hospitals, "--budget", 0.012)
    first = out.splitlines()[0]
    assert first.startswith("Caution: the plan uses")
    assert "clients in all, less than one each" in " ".join(out.split())
    assert "--min-samples" in out
    assert code == 0  # it is proved all the same
    code, out, err = run(capsys, "solve", hospitals, "--budget", 0.012, "--json")
    found = json.loads(out)
    assert found["samples_used"] < 5
    assert found["samples_used"] == pytest.approx(sum(found["samples"]))
    assert "less than one each" in found["cautions"][0]
    assert "less than one each" in err


def test_samples_whole_samples_and_floors_are_shown(digits, capsys):
    words = ("solve", digits, "-b", 0.06, "--whole-samples")
    code, out, _err = run(capsys, *words)
    assert code == 0
    assert not out.startswith("Caution")
    assert "uses" in out
    assert "whole" in out
    assert "In whole samples: if every client brings exactly those, 376 in all" in out
    found = json.loads(run(capsys, *words, "--json")[1])
    whole = sf.load(digits).solve(0.06, progress=False).whole_samples()
    assert found["whole_samples"]["counts"] == whole.counts.tolist()
    assert found["whole_samples"]["spend"] == pytest.approx(whole.spend)
    assert "whole_samples" not in json.loads(run(capsys, "solve", digits, "-b", 0.06, "--json")[1])
    out = run(capsys, "solve", digits, "-b", 0.06, "--warn-below", 1000)[1]
    assert out.startswith("Caution: the plan uses 376 samples of 6 clients in all, fewer than 1000")
    _, out, _ = run(capsys, "solve", digits, "-b", 0.08, "--min-samples", 400, "--json", "--gap", 0.01)
    assert json.loads(out)["samples_used"] >= 400 * (1 - 1e-9)


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_a_table_that_is_written_counts_samples_and_names_the_currency(digits, capsys, tmp_path, ending):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    game = sf.load(digits).replace(currency="EUR")
    game.save(tmp_path / "game.json")
    words = ("solve", tmp_path / "game.json", "-b", 0.06, "-o", tmp_path / f"s.{ending}")
    read = pandas.read_csv if ending == "csv" else pandas.read_excel
    assert run(capsys, *words)[0] == 0
    table, solution = read(tmp_path / f"s.{ending}", index_col=0), game.solve(0.06, progress=False)
    assert table["samples_used"].tolist() == pytest.approx(solution.samples.tolist())
    assert table["payment (EUR)"].tolist() == pytest.approx(solution.payments.tolist())
    assert not any("whole" in name for name in table)
    code, out, _ = run(capsys, *words, "--whole-samples")
    assert code == 0
    table, whole = read(tmp_path / f"s.{ending}", index_col=0), solution.whole_samples()
    assert table["whole samples"].tolist() == whole.counts.tolist()
    assert table["receives for whole samples (EUR)"].sum() == pytest.approx(whole.spend)
    assert table["samples_used"].tolist() == pytest.approx(solution.samples.tolist())
    assert f"the spend is {whole.spend:.6g} EUR and the server loss" in " ".join(out.split())
    assert "EUR" in whole._repr_html_()


def test_the_table_of_offers_counts_samples_too(digits, capsys):
    code, out, _ = run(
        capsys,
        "solve",
        digits,
        "-b",
        0.06,
        "--offers",
        "capped",
        "--min-samples",
        370,
        "--gap",
        0.01,
        "--whole-samples",
    )
    assert code == 0
    assert "uses: samples, whole: rounded" in " ".join(out.split())


def test_the_frontier_counts_samples_and_says_where_they_are_too_few(digits, capsys, tmp_path):
    target = tmp_path / "frontier.csv"
    _, out, _ = run(
        capsys, "frontier", digits, "-b", "0.01,0.06", "--gap", 0.01, "--warn-below", 350, "-o", target
    )
    assert out.startswith("Caution: 1 of 2 budgets buy too little: for 0.01,")
    assert "samples" in out
    assert "samples_used" in target.read_text().splitlines()[0]


def test_one_row_is_pointed_out_and_the_certificate_closes(hospitals, capsys, tmp_path):
    target = tmp_path / "s.json"
    code, out, _ = run(
        capsys,
        "solve",
        hospitals,
        "-b",
        3000,
        "--offers",
        "capped",
        "--finite-sample",
        "--gap",
        0.01,
        "-o",
        target,
    )
    assert out.startswith("Caution: client Bath has a single sample")
    assert code == 0
    found = sf.load(target)
    assert found.status is Status.CERTIFIED
    assert found.lower_bound >= 0.99 * found.objective
    assert "loss with noise" in out
    assert "loss without noise" in out


def test_a_gap_is_shown_as_it_is_asked(digits, capsys):
    found = sf.load(digits).solve(0.06, gap=0.1, max_nodes=3, progress=False)
    _, out, _ = run(capsys, "solve", digits, "-b", 0.06, "--gap", 0.1)
    assert "of that" in " ".join(out.split())
    assert "gap: relative to what was minimised" in out
    assert found.relative_gap == pytest.approx(found.gap / found.objective)


def test_an_answer_without_its_proof_ends_with_1(digits, capsys):
    words = ("-b", 0.06, "--offers", "contract", "--min-total", 0.2, "--time-limit", 4)
    code, out, _ = run(capsys, "solve", digits, *words)
    assert code == 1
    assert "not proved to be within the gap" in " ".join(out.split())


@pytest.mark.parametrize("method", ["uniform", "haipo", "grouped", "shapley", "leave-one-out", "posted"])
def test_methods_that_prove_nothing_never_end_with_0(digits, capsys, method):
    words = ("--groups", "a,a,a,b,b,b,b") if method == "grouped" else ()
    code, out, err = run(capsys, "solve", digits, "-b", 0.06, "--method", method, *words, "--json")
    assert code == 1, err
    assert json.loads(out)["status"] != "certified"


def test_help_says_what_the_exit_codes_mean(capsys):
    for command in ("solve", "cheapest"):
        _, out, _ = run(capsys, command, "--help")
        said = " ".join(out.replace("│", " ").split())
        assert "Exit code 0: proved to be within the gap" in said
        assert "1: a valid answer without that proof" in said

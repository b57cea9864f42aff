"""The whole way: run, resume, table, figure."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares
from typer.testing import CliRunner

from stackfu.errors import FileFormatError, InputError
from stackfu_integration.cli import app
from stackfu_integration.lab.cells import (
    AGAIN,
    ANSWERED,
    COLD,
    CONVEX,
    FEDERASER,
    HEAD,
    MODE,
    ORIGINAL,
    PRIVATE,
    RETRAIN,
    WARM,
    CellKey,
    PlanKey,
    spend_key,
)
from stackfu_integration.lab.data import DatasetError
from stackfu_integration.lab.experiment import Experiment, Settings, run_name
from stackfu_integration.lab.mechanisms import AWARE, BUDGETED, SHAPLEY
from stackfu_integration.lab.presets import PRESETS, preset
from stackfu_integration.lab.report import TABLES, collect, load_results
from stackfu_integration.lab.report.figures import (
    budget_figure,
    participation_figure,
    prediction_figure,
    save,
)
from stackfu_integration.lab.report.predictions import ENOUGH, SATURATING, Trainings, fitted, gather, score
from stackfu_integration.lab.report.tables import game_share, wall_clock
from stackfu_integration.lab.rivals import RULES
from stackfu_integration.lab.runs import materials, playing, run
from stackfu_integration.lab.unlearning import MoDe

TINY = replace(preset("digits"), rounds=3, references=4, relearning=2, l2=1e-2, pilots=4)
#: Tables that need other presets, later seeds or answers as measured.
ELSEWHERE = ("answers", "later", "transfer", "paper", "claims", "paper-time")
SETTINGS = Settings(
    clients=6, removed=(0, 1), budgets=(0.5, 0.1)
)  # four are left: games that are solved at once


def tiny(folder: Path, **changes) -> Experiment:
    return Experiment(TINY, replace(SETTINGS, **changes), folder / "runs", folder / "cache")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    made = tiny(folder)
    for seed in (0, 1):
        made.run(0.5, seed)
    return folder


@pytest.fixture(scope="module")
def results(finished):
    return load_results(finished / "runs")


def test_every_method_mechanism_and_budget_has_its_cell(results):
    paper = ("uniform", "haipo", "certified", "certified-finite")
    mechanisms = (*paper, "capped-features", "capped-labels")
    alone = {"original", "retrain", "federaser", "fedrecovery", "ascent", "mode", "quickdrop"}
    alone |= {"sifu", "not", "fedosd"}
    alone |= {"cold", "warm", "private", "shards"}
    expected = alone | {"again", "head.full", "convex.full", "scratch.full"}
    expected |= {f"convex.{m}.{b:g}" for m in mechanisms for b in (0.5, 0.1)}
    expected |= {f"head.{m}.{b:g}" for m in paper for b in (0.5, 0.1)}
    expected |= {f"scratch.{m}.0.5" for m in mechanisms}
    expected |= {f"backdoor.{m}" for m in (*alone, "head.full", "convex.full")}
    expected |= {f"backdoor.convex.{m}.0.5" for m in mechanisms}
    expected |= {f"backdoor.head.{m}.0.5" for m in paper}
    for result in results:
        plans = result.game["offers"]
        rules = (*RULES, SHAPLEY)
        simple = {text for text in plans if text.partition(".")[0] in rules}
        wanted = {f"{rule}.{budget:g}" for rule in rules for budget in (0.5, 0.1)}
        assert wanted - simple == wanted & set(result.game["without_answer"])
        # what designed mechanisms spend is the budget of some rules, once more
        for text in plans:
            mechanism, _, fraction = text.partition(".")
            if fraction == "0.5" and mechanism in AWARE:
                assert str(spend_key("same-share", plans[text], 0.5)) in plans
        main = {text for text in simple if text.endswith(".0.5")}
        cells = {f"convex.{text}" for text in simple}
        cells |= {f"{way}.{text}" for way in ("scratch", "backdoor.convex") for text in main}
        assert {str(key) for key in result.cells} == expected | cells


def test_cells_say_what_was_measured(results):
    for result in results:
        retrain, original = result.cells[RETRAIN], result.cells[ORIGINAL]
        assert retrain["v_loss"] == 0
        assert retrain["agreement"] == 1
        assert original["s_loss"] == 0
        assert original["q_accuracy_worst"] == 0
        assert result.cells[FEDERASER]["cost"]["stored_bytes"] > 0
        assert 0 <= result.cells[RETRAIN.with_backdoor()]["backdoor_success"] < 0.2
        backdoor = result.cells[ORIGINAL.with_backdoor()]["backdoor_success"]
        assert backdoor > result.cells[RETRAIN.with_backdoor()]["backdoor_success"]
        for key in (CellKey(HEAD, PlanKey("certified", 0.5)), CellKey(HEAD, PlanKey("haipo", 0.1))):
            plan = result.plan_of(key)
            assert plan["spend"] <= plan["budget"] * (1 + 1e-6)
            used = sum(
                round(x * result.run["sizes"][i])
                for i, x in zip(result.game["remaining"], plan["participation"], strict=True)
            )
            assert result.cells[key]["cost"]["samples"] == used * 2 * TINY.rounds
        for key in (WARM, PRIVATE):
            cell = result.cells[key]
            assert cell["guarantee"] == "certified"
            assert cell["certificate"]["score_gap"] <= 0.1
            assert cell["certificate"]["l2"] == cell["validation"]["l2"] == 1e-2
            assert 0.5 < cell["certificate"]["sure"] <= 1
        never = result.cells[COLD.with_backdoor()]
        assert result.cells[CellKey(CONVEX, PlanKey("certified", 0.5))]["guarantee"] == "exact"
        for key in (WARM, PRIVATE):
            for mine, theirs in zip(
                result.cells[key.with_backdoor()]["backdoor_clients"], never["backdoor_clients"], strict=True
            ):
                assert mine == pytest.approx(theirs, abs=0.01)
        assert result.cells[ORIGINAL.with_backdoor()]["relearning"] == 0
        assert original["attack"]["members"] == sum(result.run["sizes"][i] for i in result.run["removed"])
        assert len(original["attack"]["clients"]) == 2
        assert 0 < result.cells[AGAIN]["distance"] < original["distance"] + 0.5
        clock = wall_clock(result)
        assert min(clock.values()) >= 0
        game = clock["embedding"] + clock["certified"]
        assert game_share(clock) == pytest.approx(game / sum(clock.values()))
        without = sum(seconds for stage, seconds in clock.items() if stage != "extraction")
        assert game_share(clock, cached=True) == pytest.approx(game / without)


def profiles(result):
    return np.array(result.game["pilots"]["convex"]["participation"])


def test_predictions_are_those_of_the_game(results):
    """The report's predictions from distances alone are those of the game with the same constants."""
    for result in results:
        plan = result.plan(PlanKey("capped-labels", 0.5))
        constants = result.game["views"]["labels"]["calibration"]["convex"]
        seen = gather(result, CONVEX, "labels", "pooled")
        fitted = np.array([constants["loss_constant"], constants["sampling_constant"]])
        close = [np.allclose(row, plan["changes"], rtol=1e-4, atol=1e-5) for row in seen.predict(fitted)]
        assert any(close)
        np.testing.assert_allclose(seen.part(seen.pilot).fit(), fitted, rtol=1e-4)
        used = [np.dot(x, np.array(result.run["sizes"])[result.game["remaining"]]) for x in profiles(result)]
        np.testing.assert_array_equal(seen.thin[: len(used)], np.array(used) < ENOUGH * 10)
        cell = result.cells[CellKey(CONVEX, PlanKey("capped-labels", 0.5))]
        before = np.array(result.game["pilots"]["convex"]["before"]["pooled"])
        realised = (np.array(cell["pooled_losses"]) - before)[result.game["remaining"]]
        np.testing.assert_allclose(seen.changes[close.index(True)], realised, atol=1e-6)


def test_a_score_is_perfect_for_what_the_model_made_and_nothing_for_noise():
    rng = np.random.default_rng(0)

    def evidence(changes):
        columns = rng.normal(size=(6, 5, 2))
        pilot, thin = np.arange(6) < 3, np.arange(6) == 5
        made = changes(columns)
        made[thin] += wrong
        return Trainings(columns, made, pilot, thin)

    wrong = 0.0

    exact = score([evidence(lambda columns: columns @ np.array([2.0, 3.0])) for _ in range(3)])
    found = (exact.r2, exact.r2_paid, exact.r2_enough, exact.r2_pilots)
    assert min(*exact.within, *exact.across, *found) == pytest.approx(1.0)
    np.testing.assert_allclose(exact.constants, [[2.0, 3.0]] * 3)
    wrong = 100.0  # thin trainings count in one R2 and not in the others
    thinned = score([evidence(lambda columns: columns @ np.array([2.0, 3.0])) for _ in range(3)])
    assert thinned.r2 < 0.5
    assert min(thinned.r2_enough, thinned.r2_pilots) == pytest.approx(1.0)
    wrong = 0.0
    noise = score([evidence(lambda columns: rng.normal(size=(6, 5))) for _ in range(20)])
    assert abs(np.mean(noise.within)) < 0.2
    assert noise.r2 < 0.1


@pytest.mark.parametrize("sampling", [0.0, 0.3, 40.0, 4000.0])
def test_a_saturating_model_finds_the_constants_that_made_the_losses(sampling):
    """From amounts where the line holds to those where nothing is left of it, and with noise as a solver of its own finds."""
    rng = np.random.default_rng(3)
    room = rng.uniform(0.0, 3.0, 5)
    room[0] = 0.0  # a client that loses as much as it can already

    def evidence(noise):
        thin = 1.0 / rng.uniform(5, 1000, 12)
        columns = np.stack([rng.normal(size=(12, 5)), np.broadcast_to(thin[:, None], (12, 5))], axis=-1)
        blank = Trainings(columns, np.zeros((12, 5)), thin > 0, thin < 0, room)
        made = np.array(
            [
                [
                    0.7 * d + (sampling * t * r / (sampling * t + r) if r > 0 else 0.0)
                    for d, r in zip(row, room, strict=True)
                ]
                for row, t in zip(columns[..., 0], thin, strict=True)
            ]
        )
        np.testing.assert_allclose(blank.predict(np.array([0.7, sampling])), made, rtol=1e-12, atol=1e-15)
        return replace(blank, changes=made + noise * rng.normal(size=made.shape))

    np.testing.assert_allclose(fitted([evidence(0.0)]), [0.7, sampling], rtol=1e-4, atol=1e-6)
    noisy = [evidence(0.05), evidence(0.05)]

    def errors(constants):
        return np.concatenate([(item.predict(constants) - item.changes).ravel() for item in noisy])

    starts = [least_squares(errors, [0.5, a], bounds=(0, np.inf), x_scale=[1, a]) for a in (0.1, 10.0, 1e3)]
    best = min(2.0 * found.cost for found in starts)
    assert (errors(fitted(noisy)) ** 2).sum() <= best * (1 + 1e-6)


def test_the_saturating_model_is_the_labels_model_with_a_limit(results):
    for result in results:
        line, curve = (gather(result, CONVEX, model) for model in ("labels", SATURATING))
        np.testing.assert_array_equal(line.columns, curve.columns)
        before = np.array(result.game["pilots"]["convex"]["before"]["own"])[result.game["remaining"]]
        np.testing.assert_allclose(curve.room, np.maximum(np.log(10) - before, 0.0))
        assert (curve.predict(np.array([0.0, 1e12])) <= curve.room + 1e-9).all()
        constants = np.array([0.4, 1e-3])  # so little that nothing saturates
        np.testing.assert_allclose(curve.predict(constants), line.predict(constants), atol=1e-6)


def test_who_stays_is_written_down(results):
    for result in results:
        staying = result.game["staying"]
        assert {"unpaid", "full", "certified", "capped-labels"} <= staying.keys()
        for name, found in staying.items():
            if name not in ("outside", "lost_alone"):
                assert set(found["stay"]) <= set(result.game["remaining"])
        if "retention" in staying:
            assert staying["retention"]["stay"] == result.game["remaining"]
            budget = result.plan(PlanKey("certified", 0.5))["budget"]
            assert staying["retention"]["spend"] <= budget * (1 + 1e-6)


def test_measured_answers_are_what_is_paid_for(tmp_path):
    asked = replace(TINY.lean, answers=True, retraining=False)
    made = Experiment(asked, replace(SETTINGS, budgets=(0.5,)), tmp_path / "runs", tmp_path / "cache")
    (result,) = load_results(made.run(0.5, 0))
    assert not any(key.backdoor or key.method in ("head", "scratch", "federaser") for key in result.cells)
    for mechanism in BUDGETED:
        key = CellKey(ANSWERED, PlanKey(mechanism, 0.5))
        plan, answer = result.plan_of(key), result.cells[key]["answer"]
        assert answer["spend"] == pytest.approx(np.dot(plan["payments"], answer["participation"]), rel=1e-5)
        assert np.all(np.array(answer["participation"]) <= np.array(plan["caps"]) + 1e-6)
        used = sum(
            round(x * result.run["sizes"][i])
            for i, x in zip(result.game["remaining"], answer["participation"], strict=True)
        )
        assert result.cells[key]["cost"]["samples"] == pytest.approx(used * asked.passes, abs=used + 1)
        if mechanism.startswith("capped"):
            assert answer["spend"] <= plan["budget"] * (1 + 1e-6)
    assert TABLES["answers"]([result]).rows


def test_a_finished_run_is_not_computed_again(finished, monkeypatch):
    monkeypatch.setattr(materials, "train_federation", lambda *args, **kwargs: pytest.fail("trained again"))
    before = {path: path.stat().st_mtime_ns for path in (finished / "runs").rglob("*.json")}
    tiny(finished).run(0.5, 0)
    assert {path: path.stat().st_mtime_ns for path in (finished / "runs").rglob("*.json")} == before


def test_a_run_from_when_there_were_fewer_views_gets_the_others(finished, tmp_path):
    """Its cells stay as they are, and the views are those of a run that had them from the start."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "runs" / "digits-b0.5-s0" / "game.json"
    whole = json.loads(path.read_text())
    fewer = {view: seen for view, seen in whole["views"].items() if "gradients" not in view}
    assert len(fewer) == 3
    path.write_text(json.dumps({**whole, "views": fewer}))
    (result,) = load_results(path.parent)
    assert gather(result, CONVEX, "gradients") is None
    before = {p: p.stat().st_mtime_ns for p in path.parent.glob("*.json") if p != path}
    tiny(tmp_path).run(0.5, 0)
    assert {p: p.stat().st_mtime_ns for p in path.parent.glob("*.json") if p != path} == before
    again = json.loads(path.read_text())
    for view, seen in whole["views"].items():
        assert again["views"][view]["squared_distances"] == seen["squared_distances"]
        for approach, constants in seen["calibration"].items():  # pilots are kept with seven digits
            found = again["views"][view]["calibration"][approach]
            assert found["loss_constant"] == pytest.approx(constants["loss_constant"], rel=1e-5)
            assert found["sampling_constant"] == pytest.approx(constants["sampling_constant"], rel=1e-5)
    assert {**again, "views": None} == {**whole, "views": None}


def test_a_killed_run_keeps_its_cells_and_ends_as_if_never_killed(finished, tmp_path, monkeypatch):
    class Kill(BaseException):
        pass

    written = []
    real = run.write_json

    def dies_after_ten(path, value):
        if len(written) == 10:
            raise Kill
        written.append(path)
        return real(path, value)

    with monkeypatch.context() as patched:
        for writer in (materials, playing, run):
            patched.setattr(writer, "write_json", dies_after_ten)
        with pytest.raises(Kill):
            tiny(tmp_path).run(0.5, 0)
    folder = tmp_path / "runs" / "digits-b0.5-s0"
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert len(kept) >= 9
    tiny(tmp_path).run(0.5, 0)
    again = {path: path.stat().st_mtime_ns for path in kept if path.name != "run.json"}
    assert again == {path: stamp for path, stamp in kept.items() if path.name != "run.json"}
    resumed, straight = (load_results(f / "runs" / "digits-b0.5-s0")[0] for f in (tmp_path, finished))
    assert resumed.cells.keys() == straight.cells.keys()
    for name, cell in straight.cells.items():
        for key in ("losses", "accuracies", "membership_auc", "agreement", "backdoor_success"):
            assert resumed.cells[name].get(key) == cell.get(key), (name, key)
    assert not list(tmp_path.rglob(".*.json.*"))


def test_a_method_that_diverges_is_a_result_and_not_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "MoDe", partial(MoDe, momentum=1e30))
    folder = tiny(tmp_path).run(0.5, 0)
    (result,) = load_results(folder)
    assert MODE not in result.cells
    assert "mode diverged" in result.diverged[MODE]
    assert MODE.with_backdoor() in result.diverged
    assert CellKey(HEAD, PlanKey("certified", 0.5)) in result.cells
    assert "| MoDe (1 of 1 diverged) | – |" in TABLES["accuracy"]([result]).markdown()
    (kept,) = collect(folder, tmp_path / "kept")
    assert load_results(kept)[0].diverged == result.diverged
    for table in TABLES.values():
        table([result]).markdown()


def test_other_settings_do_not_mix_with_finished_cells(finished):
    with pytest.raises(FileFormatError, match="other settings"):
        tiny(finished, loss_constant=3.0).run(0.5, 0)


def test_calibrated_constant_is_used(tmp_path):
    asked = replace(TINY.lean, retraining=False)
    settings = replace(SETTINGS, budgets=(0.5,), loss_constant=None)
    folder = Experiment(asked, settings, tmp_path / "runs", tmp_path / "cache").run(0.5, 0)
    game = json.loads((folder / "game.json").read_text())
    fitted = game["views"]["features"]["calibration"]["convex"]["loss_constant"]
    assert game["loss_constant"] == pytest.approx(fitted)


def test_missing_data_is_named_before_anything_starts(tmp_path):
    with pytest.raises(DatasetError, match="'cifar100' was not found"):
        Experiment(preset("cifar100"), Settings(), tmp_path / "runs", tmp_path / "cache", tmp_path)
    assert not (tmp_path / "runs").exists()


def test_presets_are_complete():
    assert {"digits", "fashion-mnist", "ag-news", "cifar100"} <= PRESETS.keys()
    with pytest.raises(InputError, match="preset"):
        preset("imagenet")
    assert run_name("digits", 0.2, 3) == "digits-b0.2-s3"


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ELSEWHERE])
def test_tables_render(results, name):
    table = TABLES[name](results)
    assert table.rows
    assert all(len(row) == len(table.columns) for row in table.rows)
    lines = table.markdown().splitlines()
    assert len(lines) == 4 + len(table.rows)
    assert all(line.count("|") == len(table.columns) + 1 for line in lines[2:])
    assert len(table.csv().splitlines()) == 1 + len(table.rows)
    assert len(json.loads(table.json())["rows"]) == len(table.rows)


def test_constants_of_one_partition_are_tested_on_another_of_the_same_data(results):
    def called(**changes):
        return [replace(result, run={**result.run, **changes}) for result in results]

    mine = results[0].run["preset"]
    table = TABLES["transfer"]([*results, *called(preset="divided otherwise")])
    assert {row[:2] for row in table.rows} == {(mine, "divided otherwise"), ("divided otherwise", mine)}
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert not TABLES["transfer"]([*results, *called(preset="other features", backbone="another")]).rows
    assert not TABLES["transfer"](results).rows


def test_table_one_shows_differences_from_retrain(results):
    rows = {row[2]: row for row in TABLES["accuracy"](results).rows}
    assert list(rows) == [
        "retrain",
        "full participation",
        "uniform",
        "FedEraser",
        "FedRecovery",
        "projected ascent",
        "SIFU",
        "MoDe",
        "NoT",
        "FedOSD",
        "inspired by QuickDrop",
        "HAIPO",
        "certified",
        "certified, finite-sample",
    ]
    shown = list({row[2]: row for row in TABLES["convex"](results).rows})
    assert shown[shown.index("certified, finite-sample") + 1 :][:4] == [
        "capped, features, calibrated",
        "capped, labels, calibrated",
        "unpaid",
        "same share for all",
    ]
    mean = np.mean([100 * result.cells[RETRAIN]["v_accuracy"] for result in results])
    assert rows["retrain"][3].startswith(f"{mean:.2f} (")
    gain = np.mean(
        [100 * (result.cells[MODE]["s_accuracy"] - result.cells[RETRAIN]["s_accuracy"]) for result in results]
    )
    assert rows["MoDe"][4].startswith(f"{gain:+.2f} (")


def test_collected_results_give_the_same_tables(finished, results, tmp_path):
    collect(finished / "runs", tmp_path)
    assert TABLES["accuracy"](load_results(tmp_path)).csv() == TABLES["accuracy"](results).csv()
    assert all(path.stat().st_size < 250_000 for path in tmp_path.iterdir())
    with pytest.raises(InputError, match="holds no runs"):
        load_results(tmp_path / "nowhere")


def test_participation_figure_shows_the_payments(results):
    figure = participation_figure(results[0], ("certified",))
    axis = figure.axes[0]
    rings = axis.collections[0]
    positions = np.column_stack([results[0].game["heterogeneity"], 100 * np.array(results[0].game["alpha"])])
    np.testing.assert_allclose(rings.get_offsets(), positions)
    plan = results[0].plan(PlanKey("certified", 0.5))
    assert len(axis.collections) - 1 == np.count_nonzero(plan["participation"])
    paid = np.multiply(plan["payments"], plan["participation"])
    assert np.argmax(rings.get_sizes()) == np.argmax(paid)


def test_figures_are_written_alike_every_time(results, tmp_path):
    for name, draw in (("prediction", prediction_figure), ("budget", budget_figure)):
        first = save(draw(results), tmp_path / f"{name}-0.5")
        assert [path.suffix for path in first] == [".png", ".svg"]
        content = [path.read_bytes() for path in first]
        assert [path.read_bytes() for path in save(draw(results), tmp_path / f"{name}-0.5")] == content


def test_command_line(finished, tmp_path):
    runner = CliRunner()
    ran = runner.invoke(
        app,
        [
            "run",
            "digits",
            "--beta",
            "0.8",
            "--rounds",
            "2",
            "--budget",
            "0.5",
            "--out",
            str(tmp_path / "runs"),
            "--cache",
            str(tmp_path / "cache"),
        ],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0
    assert "| digits | 0.8 | certified |" in ran.output
    assert "and the game" in ran.output
    shown = runner.invoke(app, ["table", str(tmp_path / "runs"), "--name", "cost", "--format", "csv"])
    assert "wall clock / Retrain" in shown.output
    drawn = runner.invoke(
        app, ["figure", str(tmp_path / "runs" / "digits-b0.8-s0"), "--out", str(tmp_path / "f")]
    )
    assert drawn.exit_code == 0
    assert (tmp_path / "f" / "participation-digits-b0.8-s0.svg").is_file()
    packed = runner.invoke(app, ["collect", str(tmp_path / "runs"), str(tmp_path / "results")])
    assert packed.exit_code == 0
    assert (tmp_path / "results" / "digits-b0.8-s0.json").is_file()


def test_command_line_names_what_is_missing(tmp_path, monkeypatch, capsys):
    from stackfu_integration.cli import main

    monkeypatch.setattr("sys.argv", ["stackfu-lab", "run", "ag-news", "--data-root", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "'ag-news' was not found" in capsys.readouterr().err

"""Studies of many federations: nothing that is compared differs in more than what it should."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from stackfu.errors import InputError
from stackfu_integration.cli import app
from stackfu_integration.lab.experiment import Settings
from stackfu_integration.lab.mechanisms import CAPPED_LABELS, FULL, SAME_SHARE, UNPAID
from stackfu_integration.lab.presets import preset
from stackfu_integration.lab.runs.source import Source
from stackfu_integration.lab.studies import Bench, Cascades, Regime, Regimes, Streams
from stackfu_integration.lab.studies.bench import halves, one_thread
from stackfu_integration.lab.studies.cascades import offers_of, outside_options, unfold
from stackfu_integration.lab.studies.regimes import PLAYED, predicted


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    return Source(preset("digits"), Settings(), folder / "out", folder / "cache")


@pytest.fixture(scope="module")
def bench(source):
    with one_thread():
        made = Bench(source, 0.2, 0)
        _ = made.pilots
        return made


def test_full_participation_is_the_reference(bench):
    full = bench.train(dict.fromkeys(bench.remaining, 1.0))
    np.testing.assert_array_equal(full.losses, bench.reference.losses)
    s = full.mean(full.losses, range(10)) - bench.original.mean(bench.original.losses, range(10))
    assert bench.effects(full)["vs"] == pytest.approx(s)
    assert bench.effects(bench.original)["worst_q"] == 0.0


def test_costs_change_the_game_and_not_the_data(bench):
    cheap, dear = bench.game(1.0), bench.game(10.0)
    np.testing.assert_allclose(dear.costs, 10.0 * cheap.costs)
    assert cheap.embeddings == dear.embeddings
    x = np.full(cheap.count, 0.5)
    assert predicted(cheap, x) == predicted(dear, x)


def test_halves_share_no_sample(source):
    first, second = (halves(source.dataset, half) for half in (0, 1))
    for a, b, y in zip(first, second, (source.dataset.train.y, source.dataset.test.y), strict=True):
        assert not set(a) & set(b)
        assert len(a) + len(b) == len(y)
        counts = [np.bincount(y[rows], minlength=10) for rows in (a, b)]
        assert np.abs(counts[0] - counts[1]).max() <= 1


def test_a_cascade_ends_where_nobody_gains_by_leaving(bench):
    game = bench.game(10.0)
    budget = 0.5 * float(game.full_participation_price)
    with one_thread():
        prices, caps, retainers = offers_of(bench, game, SAME_SHARE, budget)
        ended = unfold(bench, game, prices, caps, retainers)
        # paid a fortune for staying, no client leaves, and the head is trained once
        kept = unfold(bench, game, prices, caps, np.full(game.count, 100.0))
    for number, found in enumerate(ended["rounds"]):
        gains = dict(zip(found["clients"], found["gains_by_leaving"], strict=True))
        if number < len(ended["left"]):
            assert max(gains, key=lambda k: gains[k]) == ended["left"][number]
            assert gains[ended["left"][number]] > 0
        elif not ended["collapsed"]:
            assert max(gains.values()) <= 0
    assert set(ended["stay"]).isdisjoint(ended["left"])
    assert kept["left"] == []
    assert len(kept["rounds"]) == 1
    # the gain is outside minus payout, costs and loss
    first = kept["rounds"][0]
    trained = bench.train(dict(zip(first["clients"], first["participation"], strict=True)))
    k = 0
    client = first["clients"][k]
    inside = prices[k] * first["participation"][k] + 100.0
    inside -= game.costs[k] * first["participation"][k] + trained.pooled[client]
    assert first["gains_by_leaving"][k] == pytest.approx(-bench.pilots.alone["pooled"][k] - inside)


def test_retainers_keep_everybody_in_the_game_itself(bench):
    game = bench.game(10.0)
    outside = outside_options(bench, game)
    with one_thread():
        prices, caps, retainers = offers_of(bench, game, "retainers", 2.0 * float(game.costs.sum()) + 10.0)
    ended = game.cascade(prices, caps, outside=outside, retainers=retainers)
    assert len(ended.stayed) == game.count


def test_a_map_is_resumed_and_collected(source, tmp_path):
    regimes = (
        Regime(cost_spread=1.0, budget=0.25, beta=0.5, clients=6, removed=2),
        Regime(cost_scale=1e-6, beta=0.5, clients=6, removed=2),
    )
    made = Regimes(source, tmp_path / "work", regimes, (0,))
    assert not made.complete(lambda name: None, lambda: True)
    assert made.complete(lambda name: None, lambda: False)
    (path,) = (tmp_path / "work").iterdir()
    before = path.stat().st_mtime_ns
    assert made.complete(lambda name: pytest.fail("again"), lambda: False)
    assert path.stat().st_mtime_ns == before
    (federation,) = json.loads(made.collect(tmp_path).read_text())["federations"]
    played, free = (item["played"] for item in federation["regimes"])
    assert set(played) == set(PLAYED)
    assert free == {}  # all take part unpaid: nothing to buy
    assert played[CAPPED_LABELS]["spend"] <= 1 + 1e-6
    assert played[UNPAID]["spend"] == 0
    assert played[FULL]["used"] == 1.0
    # the designed plan is the best of all plans that are posted within the budget, up to its gap
    posted = [played[name]["predicted"] for name in (SAME_SHARE, "cheapest-first", "random-clients")]
    assert played[CAPPED_LABELS]["predicted"] <= min(posted) * (1 + 2e-3)


def test_a_stream_spends_one_budget(source, tmp_path):
    made = Streams(source, tmp_path, (0.8,), (0,), clients=8, requests=3)
    assert made.complete(lambda name: None, lambda: False)
    (federation,) = json.loads(made.collect(tmp_path).read_text())["federations"]
    for answers in federation["streams"].values():
        assert sum(item.get("spend", 0.0) for item in answers) <= federation["budget"] * (1 + 1e-6)
        assert [item["request"] for item in answers] == list(range(len(answers)))


def test_cascades_of_a_preset_are_one_file_per_federation(source, tmp_path):
    made = Cascades(source, tmp_path, (0.8,), (1,), cost_scales=(10.0,))
    assert made.complete(lambda name: None, lambda: False)
    (federation,) = json.loads(made.collect(tmp_path).read_text())["federations"]
    assert next(item["mechanism"] for item in federation["cascades"]) == UNPAID


def test_a_study_of_trained_layers_is_refused():
    said = CliRunner().invoke(app, ["study", "regimes", "cifar100-finetune"])
    assert isinstance(said.exception, InputError)

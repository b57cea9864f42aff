"""Clients keep the names they came with."""

import json

import numpy as np
import pytest

import stackfu as sf
from stackfu.cli import main

NAMES = ["Leeds", "York", "Hull", "Bath 2", "Bath 10"]


def game(**options):
    points = np.random.default_rng(0).normal(size=(5, 3))
    return sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        [4, 3, 2, 1, 5],
        **{"names": NAMES, "removed": "Leeds", **options},
    )


def test_clients_with_names_are_removed_by_name():
    assert game(removed=["Leeds", "Hull"]).removed == (0, 2)
    with pytest.raises(sf.InputError, match="0 as a position would be 'Leeds', but these clients have names"):
        game(removed=0)
    assert game().names == ("York", "Hull", "Bath 2", "Bath 10")
    assert "removed ('Leeds',)" in repr(game())


def test_names_survive_files_editing_and_summaries(tmp_path):
    named = game()
    for file in ("g.json", "g.npz"):
        named.save(tmp_path / file)
        assert sf.load(tmp_path / file).all_names == tuple(NAMES)
    assert named.replace(lambda_q=2.0).names == named.names
    for summary in (named.summary(), named.equilibrium().summary(), named.solve(0.1).summary()):
        assert summary["names"] == list(named.names)


def test_errors_name_the_client():
    with pytest.raises(sf.InputError, match=r"sizes\[client York\] = -1"):
        sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(5)), [1, -1, 1, 1, 1], names=NAMES)
    with pytest.raises(sf.InputError, match=r"payments\[client Hull\]"):
        game().equilibrium([0.0, -1.0, 0.0, 0.0])
    with pytest.raises(sf.InputError, match=r"costs\[client York\]"):
        game(costs=[0.0, 1.0, 1.0, 1.0])
    with pytest.raises(sf.InputError, match=r"'Paris': there is no such client; the clients are Leeds, York"):
        game(removed="Paris")
    with pytest.raises(sf.InputError, match="two clients have this name"):
        game(names=["a", "a", "b", "c", "d"], removed=())
    with pytest.raises(sf.InputError, match=r"must hold one name per client \(5\)"):
        game(names=["a"], removed=())
    assert game(names=None, removed="1").removed == (1,)


def test_the_command_line_shows_names_in_natural_order(tmp_path, capsys):
    rows = [f"{name},{i},{i * i}" for i, name in enumerate(["ward 10", "ward 2", "ward 1"] * 4)]
    (tmp_path / "clients.csv").write_text("client,a,b\n" + "\n".join(rows) + "\n")
    file = str(tmp_path / "game.json")
    assert main(["embed", str(tmp_path / "clients.csv"), "--removed", "ward 2", "-o", file]) == 0
    assert sf.load(file).all_names == ("ward 1", "ward 2", "ward 10")
    capsys.readouterr()
    assert main(["equilibria", file]) == 0
    shown = capsys.readouterr().out
    assert "ward 10" in shown
    assert "forgotten: ward 2" in shown
    main(["equilibria", file, "--json"])
    assert json.loads(capsys.readouterr().out)["names"] == ["ward 1", "ward 10"]


@pytest.mark.parametrize("argument", ["sizes", "costs"])
@pytest.mark.parametrize("kind", ["list", "dictionary", "array", "series"])
def test_true_among_numbers_is_refused_and_not_read_as_one(argument, kind):
    pandas = pytest.importorskip("pandas")
    names = ["Leeds", "York", "Hull"]
    values = {
        "list": [2.0, True, 1.0],
        "dictionary": {"Leeds": 2.0, "York": True, "Hull": 1.0},
        "array": np.array([True, True, False]),
        "series": pandas.Series([2.0, True, 1.0], index=names, dtype=object),
    }[kind]
    emb = sf.MeanEmbeddings.from_features(np.eye(3), names=names)
    with pytest.raises(sf.InputError, match=rf"{argument}.*True.*must be a"):
        sf.StackelbergGame(emb, **{"sizes": [1, 2, 3], argument: values}, removed=["Leeds"])

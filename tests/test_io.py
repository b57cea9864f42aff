"""Files: lossless, versioned, never half-written."""

import json

import numpy as np
import pytest

import stackfu as sf


def game_of(kind):
    rng = np.random.default_rng(0)
    sizes = [10, 20, 30, 40]
    if kind == "gram":
        points = rng.normal(size=(4, 3)) / 3
        return sf.StackelbergGame(sf.MeanEmbeddings.from_gram(points @ points.T), sizes, (1,), lambda_s=1 / 3)
    if kind == "samples":
        samples = [rng.normal(size=(n, 2)) for n in sizes]
        return sf.StackelbergGame(sf.MeanEmbeddings.from_samples(samples), sizes, (1,))
    features = rng.normal(size=(4, 2)).astype(np.float32)
    return sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(features), sizes, (1,), costs=[0.1, 0.2, 1e-300]
    )


@pytest.mark.parametrize("ending", [".json", ".npz"])
@pytest.mark.parametrize("kind", ["gram", "samples", "features"])
def test_games_come_back_to_the_last_bit(tmp_path, kind, ending):
    game = game_of(kind)
    game.save(tmp_path / f"game{ending}")
    back = sf.load(tmp_path / f"game{ending}")
    assert back == game
    assert np.array_equal(back.geometry.gram, game.geometry.gram)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_solutions_and_equilibria_come_back(tmp_path, ending):
    game = game_of("gram")
    solution = game.solve(0.5)
    for thing in (solution, solution.equilibrium):
        thing.save(tmp_path / f"thing{ending}")
        back = sf.load(tmp_path / f"thing{ending}")
        assert back.game == game
        assert np.array_equal(back.payments, thing.payments)
        assert np.array_equal(back.participation, thing.participation)
        assert back.status is thing.status
        assert back.verify()
    assert back.uniqueness is solution.equilibrium.uniqueness


def test_infinite_and_nan_numbers_survive(tmp_path):
    solution = game_of("gram").solve(0.5, method="uniform")
    solution.save(tmp_path / "s.json")
    back = sf.load(tmp_path / "s.json")
    assert back.lower_bound == -np.inf
    assert np.isnan(back.shadow_price)


def test_broken_files_are_named(tmp_path):
    path = tmp_path / "game.json"
    game_of("gram").save(path)
    whole = path.read_text()
    for content, message in [
        (whole[: len(whole) // 2], "not a readable"),
        ("{}", "not a stackfu file"),
        (json.dumps({**json.loads(whole), "version": 99}), "newer stackfu"),
        (json.dumps({**json.loads(whole), "version": "x"}), "version"),
        (json.dumps({**json.loads(whole), "kind": "cake"}), "cake"),
        (json.dumps({k: v for k, v in json.loads(whole).items() if k != "sizes"}), "damaged"),
        (json.dumps({**json.loads(whole), "removed": [17]}), "no such client"),
    ]:
        path.write_text(content)
        with pytest.raises(sf.FileFormatError, match=message):
            sf.load(path)
    (tmp_path / "game.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(sf.FileFormatError):
        sf.load(tmp_path / "game.npz")
    with pytest.raises(FileNotFoundError):
        sf.load(tmp_path / "none.json")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "game.npz"
    game = game_of("gram")
    game.save(path)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        game.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["game.npz"]


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(sf.InputError, match="path"):
        game_of("gram").save(tmp_path / "game.pickle")


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_flipped_bytes_are_reported_as_a_damaged_file(tmp_path, ending):
    path = tmp_path / f"game{ending}"
    game_of("gram").save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.integers(len(damaged))] = rng.integers(32, 127)
        path.write_bytes(damaged)
        try:
            sf.load(path)
        except sf.StackfuError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize(
    "field", ["budget", "objective", "lower_bound", "goal", "limits", "own_options", "seconds"]
)
@pytest.mark.parametrize("value", [None, "x", [1]])
def test_a_solution_with_a_field_of_the_wrong_kind_is_refused(tmp_path, field, value):
    path = tmp_path / "solution.json"
    game_of("gram").solve(0.05, max_nodes=0).save(path)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, field: value}))
    with pytest.raises(sf.errors.FileFormatError):
        sf.load(path)

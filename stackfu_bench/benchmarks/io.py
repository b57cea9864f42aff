"""Files: how long a game and a solution take to write and to read back, and how large they are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import stackfu as sf


def dense_game(clients: int) -> sf.StackelbergGame:
    points = np.random.default_rng(0).normal(size=(clients, 16)) / 4.0
    gram = np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(axis=2))
    return sf.StackelbergGame(sf.MeanEmbeddings.from_gram(gram), np.arange(1.0, clients + 1.0), removed=[0])


def wide_game(clients: int) -> sf.StackelbergGame:
    features = np.random.default_rng(0).normal(size=(clients, 64)).astype(np.float32) / 8.0
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), np.ones(clients), removed=[0])


class Games:
    """Games known by their Gram matrix and by features."""

    params = (["gram-10", "gram-300", "features-20000"], [".json", ".npz"])
    param_names = ("game", "format")

    def setup(self, game: str, ending: str) -> None:
        kind, clients = game.split("-")
        self.folder = tempfile.TemporaryDirectory()
        if kind == "features" and ending == ".json":
            raise NotImplementedError  # large games belong in .npz
        self.path = Path(self.folder.name) / f"game{ending}"
        self.game = (dense_game if kind == "gram" else wide_game)(int(clients))
        self.game.save(self.path)

    def teardown(self, game: str, ending: str) -> None:
        self.folder.cleanup()

    def time_save(self, game: str, ending: str) -> None:
        self.game.save(self.path)

    def time_load(self, game: str, ending: str) -> None:
        sf.load(self.path)

    def peakmem_load(self, game: str, ending: str) -> None:
        sf.load(self.path)

    def track_size(self, game: str, ending: str) -> float:
        return self.path.stat().st_size / 1e6

    track_size.unit = "MB"  # type: ignore[attr-defined]

    def track_lossless(self, game: str, ending: str) -> int:
        return int(sf.load(self.path) == self.game)

    track_lossless.unit = "1 if every bit came back"  # type: ignore[attr-defined]


class Solutions:
    """A solution with its game and equilibrium."""

    params = ([".json", ".npz"],)
    param_names = ("format",)

    def setup(self, ending: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / f"solution{ending}"
        self.solution = dense_game(8).solve(1.0)
        self.solution.save(self.path)

    def teardown(self, ending: str) -> None:
        self.folder.cleanup()

    def time_save(self, ending: str) -> None:
        self.solution.save(self.path)

    def time_load(self, ending: str) -> None:
        sf.load(self.path)

    def time_explorer_page(self, ending: str) -> None:
        from stackfu.explorer import explorer_page

        explorer_page(self.solution.game.frontier([1.0]), "bench")


class Start:
    """Waiting time of a user before anything happens."""

    def timeraw_import(self) -> str:
        return "import stackfu"

    def timeraw_help(self) -> str:
        return """
        import contextlib, io
        from stackfu.cli import main
        with contextlib.redirect_stdout(io.StringIO()):
            main(["--help"])
        """

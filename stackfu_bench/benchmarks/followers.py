"""Payments to equilibria."""

import numpy as np

import stackfu as sf
from stackfu import catalog


def game_of(count, dimension, seed=0, cost_scale=20.0):
    rng = np.random.default_rng(seed)
    emb = sf.MeanEmbeddings.from_features(rng.normal(size=(count, dimension)))
    game = sf.StackelbergGame(emb, rng.integers(10, 200, size=count), cost_scale=cost_scale)
    return game, game.costs * rng.uniform(0, 0.9, count)


class Path:
    """One equilibrium, verified, with its uniqueness settled."""

    params = ([5, 10, 30, 100, 300], [4, 400])
    param_names = ("clients", "dimension")

    def setup(self, clients, dimension):
        self.game, self.payments = game_of(clients, dimension)
        self.game.equilibrium(self.payments, method="path")

    def time_equilibrium(self, clients, dimension):
        self.game.equilibrium(self.payments, method="path")

    def track_pieces(self, clients, dimension):
        return self.game.equilibrium(self.payments, method="path").iterations

    def track_residual(self, clients, dimension):
        return self.game.equilibrium(self.payments, method="path").residual

    track_residual.unit = "relative"


class Several:
    """The reference game with three equilibria."""

    def setup(self):
        self.game = catalog.three_equilibria().game
        self.game.equilibria()

    def time_equilibria(self):
        self.game.equilibria()


class Continuum:
    """Identical clients: the face is described by small linear programmes."""

    params = ([4, 16],)
    param_names = ("twins",)

    def setup(self, twins):
        points = np.vstack([np.zeros((twins, 2)), np.eye(2)])
        emb = sf.MeanEmbeddings.from_gram(points @ points.T)
        self.game = sf.StackelbergGame(emb, np.ones(twins + 2), costs=np.full(twins + 2, 2.0))
        self.game.equilibria()

    def time_equilibria(self, twins):
        self.game.equilibria()


class Sweeps:
    """One equilibrium of a large game from features."""

    params = ([1_000, 10_000, 100_000], [32, 128])
    param_names = ("clients", "dimension")
    timeout = 300

    def setup(self, clients, dimension):
        self.game, self.payments = game_of(clients, dimension, cost_scale=150.0)
        self.game.equilibrium(self.payments, method="sweeps")

    def time_equilibrium(self, clients, dimension):
        self.game.equilibrium(self.payments, method="sweeps")

    def peakmem_equilibrium(self, clients, dimension):
        self.game.equilibrium(self.payments, method="sweeps")

    def track_sweeps(self, clients, dimension):
        return self.game.equilibrium(self.payments, method="sweeps").iterations


class Judges:
    """Verification from the definition and contraction diagnostics."""

    params = ([10, 100],)
    param_names = ("clients",)

    def setup(self, clients):
        self.game, self.payments = game_of(clients, 200)
        self.found = self.game.equilibrium(self.payments)
        self.found.verify()

    def time_verify(self, clients):
        self.found.verify()

    def time_diagnose(self, clients):
        from stackfu.judging.diagnostics import diagnose

        diagnose(self.found)

"""Payments with a certificate: time, and the quality that was reached."""

import numpy as np

import stackfu as sf


def game_of(clients, seed=0):
    rng = np.random.default_rng([8, seed])
    points = rng.normal(size=(clients + 3, 5)) * 0.3
    sizes = rng.dirichlet(np.full(clients + 3, 0.7)) * 1000 + 1
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(points @ points.T), sizes, range(3), cost_scale=3.0)
    return game, 0.1 * game.costs.sum()


class Certified:
    params = [5, 12, 30]
    param_names = ["clients"]
    timeout = 300

    def setup(self, clients):
        self.game, self.budget = game_of(clients)
        self.game.solve(self.budget)

    def time_solve(self, clients):
        self.game.solve(self.budget)

    def peakmem_solve(self, clients):
        self.game.solve(self.budget)

    def track_relative_gap(self, clients):
        return self.game.solve(self.budget).gap / self.game.equilibrium().server_loss

    def track_nodes(self, clients):
        return self.game.solve(self.budget).nodes


class Baselines:
    params = ["haipo", "uniform"]
    param_names = ["method"]

    def setup(self, method):
        self.game, self.budget = game_of(7)
        self.game.solve(self.budget, method=method)

    def time_solve(self, method):
        self.game.solve(self.budget, method=method)

    def track_loss_above_certified(self, method):
        return (
            self.game.solve(self.budget, method=method).server_loss / self.game.solve(self.budget).server_loss
        )


class Frontier:
    def setup(self):
        self.game, self.budget = game_of(7)

    def time_frontier(self):
        self.game.frontier(np.linspace(0, 2, 6) * self.budget)

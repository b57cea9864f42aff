"""Payments with a certificate: time, and the quality that was reached."""

import time

import numpy as np

import stackfu as sf
from stackfu.judging.bound_check import check_bound


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


def federation_of(clients, width, gram=False, seed=0, cost=3.0):
    """Clusters of clients with costs per sample that differ by cluster and by client; a budget that binds."""
    rng = np.random.default_rng([clients, seed])
    gone, clusters = max(clients // 50, 3), 20
    who = rng.integers(0, clusters, clients + gone)
    points = rng.normal(size=(clusters, width))[who] + rng.normal(size=(clients + gone, width))
    points = (0.35 / np.sqrt(width) * points).astype(np.float32)
    sizes = rng.pareto(2.0, size=clients + gone) + 1
    alpha = sizes[gone:] / sizes[gone:].sum()
    kappa = np.exp(rng.normal(size=clients) + rng.normal(size=clusters)[who[gone:]])
    rows = points.astype(float)
    embeddings = (
        sf.MeanEmbeddings.from_gram(rows @ rows.T) if gram else sf.MeanEmbeddings.from_features(points)
    )
    game = sf.StackelbergGame(embeddings, sizes, range(gone), costs=cost * alpha * kappa / (alpha @ kappa))
    return game, 0.05 * game.full_participation_price


class Many:
    """To a thousandth of the unpaid loss; what is tracked says whether that was reached within five minutes."""

    params = ([1_000, 10_000, 100_000], [False, True])
    param_names = ["clients", "gram"]
    timeout = 1200
    number = repeat = 1
    warmup_time = 0.0

    def setup(self, clients, gram):
        if gram and clients > 1_000:
            raise NotImplementedError
        self.game, self.budget = federation_of(clients, 64 if clients == 1_000 else 128, gram)

    def solve(self):
        return self.game.solve(self.budget, gap=1e-3, time_limit=300.0)

    def time_solve(self, clients, gram):
        self.solve()

    def peakmem_solve(self, clients, gram):
        self.solve()

    def track_relative_gap(self, clients, gram):
        return self.solve().gap / self.game.equilibrium().server_loss


def features_of(clients, width=128, seed=0):
    """Feature rows, costs over a decade and more, and a budget that binds."""
    rng = np.random.default_rng([9, seed])
    points = rng.normal(size=(clients + 3, width)) / np.sqrt(width)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        rng.integers(50, 500, size=clients + 3),
        range(3),
        costs=rng.lognormal(0, 1, size=clients),
    )
    return game, 0.05 * game.full_participation_price


class Judge:
    """Cost of checking a certificate, relative to finding it."""

    params = [[12, 30, 100], ["auto", "intervals", "balls"]]
    param_names = ["clients", "arithmetic"]
    timeout = 300

    def setup(self, clients, arithmetic):
        self.game, self.budget = features_of(clients)
        self.gap = 1e-6 if clients <= 30 else 1e-5
        self.game.solve(self.budget, gap=self.gap)
        self.solution = self.game.solve(self.budget, gap=self.gap)

    def time_check(self, clients, arithmetic):
        assert check_bound(self.game, self.solution.goal, self.solution.certificate, arithmetic)

    def track_share_of_the_solution(self, clients, arithmetic):
        """Time of the check over that of the solve, which contains one."""
        began = time.process_time()
        self.game.solve(self.budget, gap=self.gap)
        solved = time.process_time()
        self.time_check(clients, arithmetic)
        return (time.process_time() - solved) / (solved - began)


class CertifiedFeatures(Certified):
    """The same for feature rows in 128 dimensions and a budget that binds, to 1e-6 (1e-5 for a hundred clients)."""

    params = [12, 30, 100]

    def setup(self, clients):
        self.game, self.budget = features_of(clients)
        self.gap = 1e-6 if clients <= 30 else 1e-5
        self.game.solve(self.budget, gap=self.gap)

    def time_solve(self, clients):
        self.game.solve(self.budget, gap=self.gap)

    def peakmem_solve(self, clients):
        self.game.solve(self.budget, gap=self.gap)


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

"""Offers with a price and a quantity: time, the gap reached, and the saving over linear payments."""

import numpy as np

import stackfu as sf

#: Options that keep the best plan from using no data at all.
KINDS = ("sampling", "floor", "finite")


def game_of(clients, kind, seed=0, share=0.1):
    """A game, a budget as a share of the price of full participation, and the options of its kind."""
    rng = np.random.default_rng([16, seed])
    points = rng.normal(size=(clients + 3, 5)) * 0.3
    points /= max(1.0, 1.001 * float(np.sqrt((points**2).sum(axis=1).max())))  # a kernel with k(a, a) = 1
    sizes = rng.dirichlet(np.full(clients + 3, 0.7)) * 1000 + 1
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, range(3), cost_scale=3.0)
    if kind == "sampling":
        game = game.replace(sampling_constant=0.02 * game.geometry.scale * float(game.sizes.sum()))
    options = {"sampling": {}, "floor": {"min_total": 0.3}, "finite": {"finite_sample": True}}[kind]
    return game, share * game.full_participation_price, options


class Capped:
    """To 1e-4 of the unpaid loss with 7 clients and to 1e-3 with 12."""

    params = ([7, 12], KINDS)
    param_names = ["clients", "kind"]
    timeout = 300

    def setup(self, clients, kind):
        self.game, self.budget, self.options = game_of(clients, kind)
        self.gap = 1e-4 if clients <= 7 else 1e-3
        self.solve()

    def solve(self):
        return self.game.solve(self.budget, offers="capped", gap=self.gap, progress=False, **self.options)

    def time_solve(self, clients, kind):
        self.solve()

    def track_relative_gap(self, clients, kind):
        return self.solve().gap / self.game.equilibrium().server_loss

    def track_nodes(self, clients, kind):
        return self.solve().nodes

    def track_loss_beside_linear(self, clients, kind):
        linear = self.game.solve(self.budget, progress=False, **self.options)
        return self.solve().objective / linear.objective


class Contract:
    params = [5, 7]
    param_names = ["clients"]
    timeout = 300

    def setup(self, clients):
        self.game, self.budget, _ = game_of(clients, "sampling")

    def solve(self):
        return self.game.solve(self.budget, offers="contract", progress=False, time_limit=10.0)

    def time_solve(self, clients):
        self.solve()

    def track_relative_gap(self, clients):
        return self.solve().gap / self.game.equilibrium().server_loss

    def track_loss_beside_capped(self, clients):
        plan = self.game.solve(self.budget, offers="capped", gap=1e-3, progress=False)
        return self.solve().objective / plan.objective


class ManyCapped:
    """No target but a plan no worse than that of linear payments, within its time, and the bound that could be proved."""

    params = [300, 3_000, 20_000]
    param_names = ["clients"]
    timeout = 600
    number = repeat = 1
    warmup_time = 0.0

    def setup(self, clients):
        rng = np.random.default_rng([17, clients])
        points = (rng.normal(size=(clients + 3, 32)) * 0.3 / np.sqrt(32)).astype(np.float32)
        self.game = sf.StackelbergGame(
            sf.MeanEmbeddings.from_features(points),
            rng.integers(50, 500, size=clients + 3),
            range(3),
            costs=rng.lognormal(0, 1, size=clients) / clients,
        )
        self.budget = 0.05 * self.game.full_participation_price

    def solve(self):
        return self.game.solve(
            self.budget, offers="capped", min_total=0.3, gap=1e-3, time_limit=20.0, progress=False
        )

    def track_relative_gap(self, clients):
        return self.solve().gap / self.game.equilibrium().server_loss

    def track_loss_beside_linear(self, clients):
        linear = self.game.solve(self.budget, min_total=0.3, gap=1e-3, time_limit=20.0, progress=False)
        return self.solve().objective / linear.objective

    def peakmem_solve(self, clients):
        self.solve()

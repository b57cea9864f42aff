"""Evaluating the paper's statements and proving equilibria."""

import numpy as np

import stackfu as sf
from stackfu.judging.proof import check_certificate


def make_game(clients):
    rng = np.random.default_rng(clients)
    emb = sf.MeanEmbeddings.from_features(rng.normal(size=(clients, max(4, clients // 2))) / 4)
    return sf.StackelbergGame(emb, rng.integers(10, 100, size=clients), cost_scale=3.0)


class Report:
    """``stackfu.lemmas.report`` on a game, its equilibrium included."""

    params = (5, 20)
    param_names = ("clients",)

    def setup(self, clients):
        self.game = make_game(clients)
        sf.lemmas.report(self.game)

    def time_report(self, clients):
        sf.lemmas.report(self.game)


class Proof:
    """Proving an equilibrium in ball arithmetic, and checking the certificate."""

    params = (5, 20, 80)
    param_names = ("clients",)

    def setup(self, clients):
        self.equilibrium = make_game(clients).equilibrium()
        self.certificate = self.equilibrium.prove()

    def time_prove(self, clients):
        self.equilibrium.prove()

    def time_check(self, clients):
        check_certificate(self.certificate)

    def track_radius(self, clients):
        return self.certificate.radius

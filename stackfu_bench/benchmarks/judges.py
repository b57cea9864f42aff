"""Cost of checking an equilibrium, relative to finding it; for bounds see ``leader.Judge``."""

import time

from stackfu.followers.path import follow_path

from .followers import game_of


def least(job, repeat):
    """The shortest of some runs: everything else only adds to it."""
    best = float("inf")
    for _ in range(repeat):
        began = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - began)
    return best


class JudgedEquilibrium:
    """An equilibrium with all its proofs, compared with the path alone."""

    params = [5, 10, 30, 100]
    param_names = ("clients",)

    def setup(self, clients):
        game, payments = game_of(clients, 16)
        self.game, self.payments = game, game.check_payments(payments)
        self.game.equilibrium(self.payments)

    def time_judged(self, clients):
        self.game.equilibrium(self.payments)

    def time_unjudged(self, clients):
        follow_path(self.game, self.payments)

    def track_judged_over_unjudged(self, clients):
        repeat = 4000 // clients
        judged = least(lambda: self.game.equilibrium(self.payments), repeat)
        return judged / least(lambda: follow_path(self.game, self.payments), repeat)

    track_judged_over_unjudged.unit = "times"

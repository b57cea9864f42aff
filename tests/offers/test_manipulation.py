"""Gains from misreporting if best responses of the clients do not converge."""

import numpy as np

import stackfu as sf
from stackfu.leader.misreports import manipulation
from stackfu.model.offers import Offers


def test_clients_whose_answers_go_round_in_a_circle_are_where_their_equilibrium_is():
    inner = np.zeros((4, 4))
    inner[1, 1] = 2.0**-8
    costs = [0.0002465598225555435, 7.79690618762475e-06, 0.0007796906187624749]
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(inner), [1, 1000, 1, 1], removed=[0], costs=costs)
    budget = 0.0009166361944539566
    payments = game.costs * min(1.0, budget / game.costs.sum())
    found = manipulation(game, lambda reported: Offers.linear(payments), "fixed", kinds=("cost",))
    assert found.worst == 0.0

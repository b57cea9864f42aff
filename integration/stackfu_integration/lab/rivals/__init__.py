"""Simple payment rules that the designed mechanisms are compared with, registered with stackfu under their names.

==================  ======================================================================================================
unpaid              no payments: the clients' own equilibrium
same-share          every client brings the same share of its data, as large as the budget allows
random-clients      whole clients in random order, until the budget is spent
cheapest-first      whole clients by cost per sample, until the budget is spent
price-per-sample    one price for the samples of all clients
reverse-auction     clients bid costs; the proportional-share auction of Singer (2010), which is truthful
reward-pool         a pool shared by data (the client level of Lin et al. 2024)
==================  ======================================================================================================

All of them need no embeddings to choose *whom* and *how much*. ``shapley`` and ``leave-one-out``, which do, are stackfu's own
(:mod:`stackfu.leader.by_value`). Rules that choose a plan post it as capped offers, as the designed mechanisms do, so that a
comparison shows what the choice is worth.

Importing this module registers all of them. On the command line set ``STACKFU_MECHANISMS=stackfu_integration.lab.rivals``.

>>> import stackfu as sf
>>> from stackfu.demo import digits_game
>>> import stackfu_integration.lab.rivals
>>> found = digits_game(sampling_constant=30.0).solve(0.1, method="same-share")
>>> found.status.name, bool(found.spend <= 0.1), len(set(found.participation.round(9).tolist()))
('CONVERGED', True, 1)
"""

from __future__ import annotations

from stackfu import register_mechanism
from stackfu.leader import mechanism_names
from stackfu_integration.lab.rivals.plans import (
    cheapest_first,
    random_clients,
    reverse_auction,
    reward_pool,
    same_share,
)
from stackfu_integration.lab.rivals.prices import price_per_sample, unpaid

__all__ = [
    "RULES",
    "cheapest_first",
    "price_per_sample",
    "random_clients",
    "reverse_auction",
    "reward_pool",
    "same_share",
    "unpaid",
]

RULES = {
    "unpaid": unpaid,
    "same-share": same_share,
    "random-clients": random_clients,
    "cheapest-first": cheapest_first,
    "price-per-sample": price_per_sample,
    "reverse-auction": reverse_auction,
    "reward-pool": reward_pool,
}

for _name, _rule in RULES.items():
    if _name not in mechanism_names():
        register_mechanism(_name, _rule)

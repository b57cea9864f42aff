"""
A mechanism of one's own, property-tested
=========================================

Write a rule, let hypothesis look for games in which it misbehaves, mend it, and see how far from the optimum it is. (Below
this page it can be downloaded as a notebook, with what it printed and drew.)
"""

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf
from stackfu import testing
from stackfu.demo import digits_game

# %%
# A first idea: every client is paid the same share of its cost, with as much as the budget allows if all of them come.


def share_of_cost(game, budget):
    """Pay every client the same share of its cost."""
    return game.costs * min(1.0, budget / game.costs.sum())


testing.check_mechanism(share_of_cost, ["budget", "rationality"], every=True, max_examples=15)

# %%
# Two properties hold: the budget in every equilibrium of every drawn game, and no client would rather do nothing. But a
# client that lies about its cost gains, as the smallest example shows:

try:
    testing.check_mechanism(share_of_cost, ["manipulation"], max_examples=10, max_clients=3)
except AssertionError as error:
    print(error)

# %%
# Prices per share of data do not look at reported costs at all, so there is nothing to gain:


def price_per_share(game, budget):
    """One price per share of data, such that all of it would cost the budget."""
    return budget * game.alpha


testing.check_mechanism(
    price_per_share, ["budget", "rationality", "manipulation"], max_examples=8, max_clients=3
)

# %%
# Registered, it is known everywhere by its name. What does honesty cost? The certified bound holds for every mechanism.

sf.register_mechanism("per-share", price_per_share)
game = digits_game()
budgets = [0.02, 0.05, 0.1, 0.2]
traced = game.frontier(budgets)
fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
sf.plot.frontier(traced, ax)
own = [game.solve(budget, method="per-share") for budget in budgets]
ax.plot(budgets, [s.server_loss for s in own], "o--", color="tab:purple", label="a price per share")
ax.set_ylim(bottom=0)
ax.legend()

# %%
# Whom does the rule bring in, and whom would the certified payments?

fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
for ax, solution in zip(axes, (own[-1], traced[-1]), strict=True):
    sf.plot.participation(solution, ax)
    ax.set_title(solution.method)
print(np.round([own[-1].server_loss, traced[-1].lower_bound], 5))

"""
How clients find an equilibrium
===============================

Rounds of best responses under certified payments: one after another, and all at once.
"""

import matplotlib.pyplot as plt

import stackfu as sf
from stackfu.demo import digits_game

game = digits_game()
solution = game.solve(budget=0.05)

fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
for ax, kind in zip(axes, ("sequential", "simultaneous"), strict=True):
    sf.plot.dynamics(game, solution.payments, ax=ax, rounds=20, kind=kind)
    ax.set_title(kind)

# %%
# The diagnostics of the equilibrium say what to expect.

print(solution.equilibrium.diagnostics)

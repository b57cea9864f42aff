"""
Three equilibria of one game
============================

The equilibria are the zeros of one scalar function of the total participation.
"""

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf

game = sf.catalog.three_equilibria().game
found = game.equilibria()
print(found)

# %%
# The whole curve, and a closer look at its zeros.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
sf.plot.level(found, left)
sf.plot.level(found, right, points=400)
right.set(xlim=(0.36, 0.56), ylim=(-0.06, 0.06), title="closer")

# %%
# Which of them do clients reach who answer each other one after another? The one in the middle repels: a little
# to either side of it, and they end up at one of the others.

fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
for ax, factor in zip(axes, (0.98, 1.02), strict=True):
    start = np.clip(factor * found[1].participation, 0.0, 1.0)
    sf.plot.dynamics(game, start=start, ax=ax, rounds=40)
    ax.set_title(f"started with {factor:.0%} of the one in the middle")
    reached = game.equilibrium(start=start)
    print(f"{factor:.0%}: S = {reached.total:.4f}")

"""
Three equilibria of one game
============================

The equilibria are the zeros of one scalar function of the total participation.
"""

import matplotlib.pyplot as plt

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
# Which of them do clients reach who answer each other one after another? The one in the middle repels: a
# tenth of the way to either neighbour, and they go there.

fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
middle = found[1].participation
for ax, neighbour in zip(axes, (found[0], found[2]), strict=True):
    start = middle + 0.1 * (neighbour.participation - middle)
    sf.plot.dynamics(game, start=start, ax=ax, rounds=40)
    reached = game.equilibrium(start=start).total
    ax.set_title(f"towards S = {neighbour.total:.4f}: reached {reached:.4f}")

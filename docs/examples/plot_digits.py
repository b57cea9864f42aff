"""
A federation, its payments, its frontier
========================================

Ten clients share handwritten digits; clients 0, 1 and 2 are to be forgotten.
"""

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf
from stackfu.demo import digits_game

game = digits_game()
print(game)

# %%
# Who is like whom? The map keeps the distances between the clients' mean embeddings as well as two
# dimensions can.

sf.plot.distance_map(game)

# %%
# Without payments a small, unusual client takes part fully and the large ones hardly. With a budget of 0.05
# the server gets the mixture it needs.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
sf.plot.participation(game.equilibrium(), left)
solution = game.solve(budget=0.05)
sf.plot.participation(solution, right)
print(solution)

# %%
# What does a budget buy, and how do the published heuristic and a uniform price compare?

others = [game.solve(0.05, method=method) for method in ("haipo", "uniform")]
sf.plot.frontier(game.frontier(0.15 * np.linspace(0.1, 1.0, 12) ** 2), others=others)

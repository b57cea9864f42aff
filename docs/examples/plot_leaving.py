"""
Who leaves, and what keeps them
===============================

A client that is better off outside leaves, and that changes what the others get. Offers can prevent every departure.
"""

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf
from stackfu.demo import digits_game

game = digits_game()
solution = game.solve(budget=0.1)
outside = float(np.median(solution.equilibrium.utilities))

# %%
# An outside offer gives every client the median of the utilities here. Round by round:

found = game.cascade(solution.payments, outside=outside)
print(found)
sf.plot.cascade(found)

# %%
# Capped offers with the same outside options in mind: what each client has inside, and what it would have outside.

kept = game.cheapest(1.2 * solution.server_loss, offers="capped", min_total=0.2, outside=outside, gap=0.05)
print(kept)
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
sf.plot.retention(kept, ax)

# %%
# How much the outside option costs the server:

options = np.linspace(outside - 0.05, outside, 4)
spends = [
    game.cheapest(1.2 * solution.server_loss, offers="capped", min_total=0.2, outside=o, gap=0.05).spend
    for o in options
]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(options, spends, "o-")
ax.set(xlabel="utility outside, for everybody", ylabel="least spend that keeps everybody")
ax.set_ylim(bottom=0)

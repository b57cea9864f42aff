"""
Several equilibria, and what caps do about them
===============================================

Under prices alone clients may settle in one of several equilibria, and the server does not choose which. A price with a
limit (*capped offer*) leaves one. (Below this page it can be downloaded as a notebook, with what it printed and drew.)
"""

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf
from stackfu.model.offers import capped_offers

game = sf.catalog.three_equilibria().game
found = game.equilibria()
print(found)

# %%
# Each zero of the level function is an equilibrium: three of them here, with different amounts of data and different losses.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
sf.plot.level(found, left)
right.bar([f"E{i + 1}" for i in range(len(found))], [eq.server_loss for eq in found])
right.set(ylabel="server loss", title="what the server gets, depending on where they settle")

# %%
# Who does what in each of them?

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
width = 0.8 / len(found)
for i, eq in enumerate(found):
    ax.bar(np.arange(game.count) + i * width, eq.participation, width, label=f"E{i + 1}")
ax.set(
    xticks=np.arange(game.count) + 0.4 - width / 2,
    xticklabels=game.names,
    xlabel="client",
    ylabel="takes part with",
)
ax.legend()

# %%
# Capped offers for the middle one, which best responses would not find: prices at which every client wants at least the plan, and
# limits that keep it from more. Every equilibrium of these offers is listed, and there is one.

plan = found[1].participation
offers = capped_offers(game, game.profile(plan))
under_caps = game.equilibria(offers.prices, caps=offers.caps)
print(under_caps)
print("the plan:    ", np.round(plan, 4))
print("what they do:", np.round(under_caps[0].participation, 4))

# %%
# The server need not name the plan: the search for the best one is certified too. Prices have no such freedom, so capped
# offers that use as much data never cost more loss.

budget = 0.05 * game.full_participation_price
prices = game.solve(budget, gap=1e-3)
capped = game.solve(budget, offers="capped", min_total=prices.equilibrium.total, gap=1e-3)
print(prices)
print(capped)
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
sf.plot.participation(prices, left)
left.set_title("prices")
sf.plot.participation(capped, right)
right.set_title("capped offers")

"""
Unknown costs
=============

Prices for wrong costs can spend several times the budget. A price with a limit cannot, and the answers to it reveal the costs.
"""

import matplotlib.pyplot as plt
import numpy as np

from stackfu.demo import digits_game
from stackfu.leader.posted_prices import regret_curve
from stackfu.model.offers import capped_offers

game = digits_game(sampling_constant=30.0)
budget = 0.1 * game.full_participation_price

# %%
# The server knows each cost up to a factor of four. It posts capped offers as if costs were lower than they may be: a client that
# still brings its cap costs at most that; a client that holds back reveals its cost. For comparison: linear payments for costs that
# were guessed too high, as if they were 1.1, 1.25 and 1.67 times the true ones.

curve = regret_curve(
    game,
    0.5 * game.costs,
    2.0 * game.costs,
    budget,
    requests=6,
    linear_guesses=(1.0, 1.1, 1.25, 1.67),
    gap=1e-2,
)
print("loss above that of a server who knows the costs:", np.round(curve.regrets, 5))
print("spend, in budgets:", np.round(curve.spends / budget, 3))
print(
    "linear payments for costs 1, 1.1, 1.25, 1.67 times too high spend",
    np.round(curve.linear_spends / budget, 2),
)

# %%
# In the paper's own game, without a sampling term, they break the budget by more: payments for a budget of 0.05, true costs
# 10, 20 and 40 percent lower than assumed. The same plan as capped offers costs what was planned, whatever the costs.

paper = digits_game()
linear = paper.solve(0.05, gap=1e-3)
lower = (1.0, 0.9, 0.8, 0.6)
spends = [paper.replace(costs=f * paper.costs).equilibrium(linear.payments).spend / 0.05 for f in lower]
offers = capped_offers(paper, paper.profile(linear.participation))
kept = [
    paper.replace(costs=f * paper.costs).equilibrium(offers.prices, caps=offers.caps).spend / 0.05
    for f in lower
]
print("linear payments spend", np.round(spends, 2), "budgets, capped offers", np.round(kept, 2))

# %%
# Within a few requests little is lost, and not one request costs more than the budget.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
requests = np.arange(1, 1 + len(curve.losses))
left.plot(requests, curve.losses, "o-", label="posted capped offers")
left.axhline(curve.informed, color="0.4", linestyle="--", label="costs known")
left.set(xlabel="request", ylabel="server loss", xticks=requests)
left.legend()
places = np.arange(len(lower))
right.bar(places - 0.2, spends, 0.4, label="linear payments")
right.bar(places + 0.2, kept, 0.4, label="capped offers")
right.axhline(1.0, color="0.4", linestyle="--")
right.set(
    xlabel="true costs, relative to assumed ones", ylabel="spend / budget", xticks=places, xticklabels=lower
)
right.legend()

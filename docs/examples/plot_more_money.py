"""
What would one more euro do?
============================

Derivatives of equilibria and of certified payments: what one more euro for each client brings, what a larger budget brings, and
where such rates do not exist. (Below this page it can be downloaded as a notebook, with what it printed and drew.)
"""

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf

# %%
# Six hospitals with measurements of patients; Leeds asks to be forgotten. Costs and payments are in euros.

rng = np.random.default_rng(3)
centres = {
    "Leeds": (0, 0),
    "York": (1, 0),
    "Hull": (0, 1.5),
    "Ripon": (2, 1),
    "Selby": (1, 2),
    "Goole": (2, -1),
}
counts = [120, 200, 80, 60, 150, 40]
samples = {
    name: rng.normal(centre, 1.0, size=(count, 2))
    for (name, centre), count in zip(centres.items(), counts, strict=True)
}
game = sf.StackelbergGame(
    sf.MeanEmbeddings.from_samples(samples),
    counts,
    removed="Leeds",
    cost_scale=20_000.0,
    lambda_q=20_000.0,
    currency="EUR",
)
solution = game.solve(1000.0)
solution

# %%
# The last column but one says how many samples one more euro for a client would bring, from all clients together: others
# answer too. On the command line it is ``stackfu solve game.json --budget 1000 --sensitivity``.

effects = solution.marginal_effects()
for place in range(game.count):
    print(effects.words(place, game.currency))

# %%
# These are rates at the present payments. How far do they hold? For the client that brings most, the samples at payments that
# are higher or lower, and the rate as a straight line:

best = int(np.argmax(effects.together))
changes = np.linspace(-300.0, 600.0, 31)
found = []
for change in changes:
    payments = np.array(solution.payments)
    payments[best] = max(payments[best] + change, 0.0)
    found.append(game.equilibrium(payments).samples_used)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(changes, found, label="equilibria, solved again")
ax.plot(
    changes,
    solution.samples_used + effects.together[best] / effects.step * changes,
    "--",
    label="at the present rate",
)
ax.set(xlabel=f"more for {effects.names[best]} (EUR)", ylabel="samples used")
ax.legend()

# %%
# A larger budget is another question: the payments themselves then change. At a certified optimum the derivatives with respect to
# the budget follow from its conditions; the multiplier of the budget is what one more euro saves.

print(
    f"one more euro of budget lowers the server loss by {-solution.sensitivity('budget', 'server_loss'):.3g}"
)
print(f"and brings {solution.sensitivity('budget', 'samples').sum():.3g} samples; payments change by")
for name, change in zip(game.names, solution.sensitivity("budget"), strict=True):
    print(f"  {name:6} {change:+.3f} EUR")

# %%
# Solved again with 10 euros more, the loss falls at the same rate:

again = game.solve(1010.0)
print(f"{(solution.server_loss - again.server_loss) / 10:.3g} per euro")

# %%
# Every number of the game can be asked about: what if York's costs were higher, or Hull had more data?

for parameter in ("costs", "sizes"):
    change = solution.equilibrium.sensitivity(parameter, "server_loss")
    print(f"server loss by {parameter}: {np.array2string(change, precision=2)}")

# %%
# Where a client is exactly at a threshold, raising and lowering its payment do different things. That is refused, with its name;
# either side can be asked for. Payments that are just enough for full participation are such a case:

payments = game.payments_for(np.array([1.0, 0.5, 0.5, 0.5, 1.0]))
equilibrium = game.equilibrium(payments)
try:
    equilibrium.sensitivity("payments", "samples")
except sf.NotDifferentiableError as error:
    print(error)
for side in ("up", "down"):
    print(side, equilibrium.sensitivity("payments", "samples", side)[:, 0].round(3))

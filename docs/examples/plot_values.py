"""
What is a client worth?
=======================

Shapley and leave-one-out values: of the server's loss, of an accuracy that is measured, and as a rule for payments. (Below this
page it can be downloaded as a notebook, with what it printed and drew.)
"""

import matplotlib.pyplot as plt
import numpy as np

from stackfu.demo import digits_federation, digits_game
from stackfu.values import values_of_measure

# %%
# Ten clients share handwritten digits; three of them leave. What do the data of the others contribute to the fall of the server's
# loss? All coalitions of the seven are evaluated: each client is worth what it adds, averaged over all orders.

game = digits_game()
game.values()

# %%
# The two columns answer different questions. Shapley values add up to what all clients achieve together. What is lost without a
# client is small where others hold similar data, even if that data is needed.
#
# What clients bring at an equilibrium can be valued as well, and compared with what they receive. Certified payments do not follow
# values: they buy the data that is cheap to get and moves the mixture.

solution = game.solve(0.05)
values = solution.values()
shares = np.array([solution.payouts / solution.spend, values.shares])
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
place = np.arange(game.count)
for shift, share, label in zip((-0.2, 0.2), shares, ("of the spend", "of the value"), strict=True):
    ax.bar(place + shift, share, 0.4, label=label)
ax.set_xticks(place, game.names)
ax.set(xlabel="client", ylabel="share")
ax.legend()

# %%
# Should payments follow values? Prices in proportion to them are mechanisms like any other: ``stackfu solve game.json --method
# shapley``. The certified bound says what that costs.

for method in ("shapley", "leave-one-out", "certified"):
    found = game.solve(0.05, method)
    print(
        f"{method:14} server loss {found.server_loss:.5f}, {found.samples_used:.0f} samples, spend {found.spend:.4f}"
    )

# %%
# The loss is a distance between distributions. What clients contribute to the accuracy of a trained model can be valued by training
# one for every coalition. Here: the nearest class mean, tested on digits of the whole federation.

federation = digits_federation()
pictures, digits = np.concatenate(federation.samples), np.concatenate(federation.labels)


def accuracy(clients):
    """Return the accuracy of the nearest class mean, trained on the data of some clients."""
    if not clients:
        return 0.1  # a guess among ten digits
    samples = np.concatenate([federation.samples[int(name)] for name in clients])
    labels = np.concatenate([federation.labels[int(name)] for name in clients])
    known = np.unique(labels)
    means = np.array([samples[labels == digit].mean(axis=0) for digit in known])
    nearest = ((pictures[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    return float(np.mean(known[nearest] == digits))


measured = values_of_measure(accuracy, game.names, name="accuracy")
measured

# %%
# Accuracy and distance agree about most clients, and both are measured of the data alone:

loss = game.values()
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.plot(loss.shares, measured.shares, "o")
for name, across, up in zip(game.names, loss.shares, measured.shares, strict=True):
    ax.annotate(name, (across, up), textcoords="offset points", xytext=(5, 3))
ax.set(xlabel="share of the value: server loss", ylabel="share of the value: accuracy")

# %%
# Training a model for every coalition is impossible for many clients. Then values are estimated from random orders, within
# intervals that hold together with a stated probability. For the server's loss the intervals are narrow, because its structure
# bounds what a client can add; for a measure that could be anything between 0 and 1 they are wide.

estimate = game.values(orders=300, confidence=0.95)
rough = values_of_measure(accuracy, game.names, bounds=(0.0, 1.0), orders=30, name="accuracy")
for found, exact in ((estimate, loss), (rough, measured)):
    inside = np.all((found.low <= exact.shapley) & (exact.shapley <= found.high))
    width = float(np.mean(found.high - found.low))
    print(f"{found.measure}: mean width {width:.3g}, all exact values inside: {inside}")

"""
Learning a payment policy
=========================

Equilibria are a differentiable function in torch, so a rule that sets payments from what is known of the clients can be trained by
gradient descent over many games, and then be used on games it has not seen. (Below this page it can be downloaded as a notebook,
with what it printed and drew.)
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch

import stackfu as sf
from stackfu.sensitivity.pytorch import equilibrium_of

# %%
# A distribution of federations: five clients remain, with data, sizes and costs that are drawn.

rng = np.random.default_rng(5)


def draw():
    """Draw a game."""
    rows = rng.normal(size=(6, 3)) * np.array([0.6, 0.3, 0.1])
    sizes = rng.uniform(1.0, 4.0, 6)
    costs = sizes[1:] / sizes[1:].sum() * rng.uniform(1.0, 3.0, 5)
    return sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), sizes, removed=[0], costs=costs)


train, unseen = [draw() for _ in range(40)], [draw() for _ in range(40)]

# %%
# What the policy sees of a client: its cost per share of the data, how far its data are from the mixture that takes part without
# payments, and whether a little more of its data would bring the mixture nearer to what the server wants.


def features(game):
    """Return three numbers per client."""
    profile = game.equilibrium().profile
    pull = game.loss_centre[1] - game.geometry.inner(profile.mixture)
    pull = pull - profile.mixture @ pull
    far = profile.to_clients
    columns = [game.kappa / game.kappa.mean(), np.sqrt(far / far.mean()), pull / np.abs(pull).max()]
    return torch.tensor(np.stack(columns, axis=1))


# %%
# The policy is one linear layer: a client is offered a share of its cost. The loss function plays every game: the server's loss
# relative to the one without payments, plus a weight times the spend. ``backward`` runs through the clients' equilibrium.

policy = torch.nn.Linear(3, 1, dtype=torch.float64)
torch.nn.init.zeros_(policy.weight)
torch.nn.init.zeros_(policy.bias)
optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)


def payments_of(game, seen):
    """Return the payments of the policy."""
    return torch.tensor(np.array(game.costs)) * torch.sigmoid(policy(seen)[:, 0] - 1.0)


unpaid = [game.equilibrium().server_loss for game in train]
seen = [features(game) for game in train]
history = []
for _ in range(40):
    optimiser.zero_grad()
    total = 0.0
    for game, known, before in zip(train, seen, unpaid, strict=True):
        payments = payments_of(game, known)
        loss = equilibrium_of(game, of="server_loss", side="up", payments=payments)
        spend = equilibrium_of(game, of="spend", side="up", payments=payments)
        objective = loss / before + 0.7 * spend / game.full_participation_price
        objective.backward()
        total += objective.item()
    optimiser.step()
    history.append(total / len(train))
fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.plot(history)
ax.set(xlabel="step", ylabel="mean objective of the training games")
print("weights of cost, distance, pull:", policy.weight.detach().numpy().round(2)[0])

# %%
# On games that it has not seen: each is played with the policy, with one price for all data at the same spend, and with certified
# payments within that spend, which no policy can beat. (Where the spend would buy all data, ``solve`` warns; not here.)

rows = []
warnings.simplefilter("ignore")
for game in unseen:
    found = game.equilibrium(payments_of(game, features(game)).detach().numpy())
    uniform = game.solve(found.spend, "uniform", warn_below=0)
    best = game.solve(found.spend, gap=1e-3, warn_below=0)
    rows.append((found.server_loss, uniform.server_loss, best.server_loss))
policy_loss, uniform_loss, best_loss = np.array(rows).T
print(
    f"mean loss: policy {policy_loss.mean():.4f}, uniform {uniform_loss.mean():.4f}, certified {best_loss.mean():.4f}"
)
print(
    f"the policy is better than one price in {(policy_loss < uniform_loss).sum()} of {len(unseen)} unseen games"
)
fig, ax = plt.subplots(figsize=(5, 5), layout="constrained")
ax.plot(uniform_loss, policy_loss, "o", label="policy")
ax.plot(uniform_loss, best_loss, ".", color="tab:green", label="certified")
ends = [0.0, uniform_loss.max()]
ax.plot(ends, ends, ":", color="grey")
ax.set(xlabel="server loss at one price", ylabel="server loss at the same spend")
ax.legend()

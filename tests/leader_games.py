"""Random games for the leader, and a brute-force reference that shares no code with it."""

import numpy as np

import stackfu as sf


def random_game(seed, count, **options):
    """Three removed clients, low-rank embeddings, equal or unequal costs, few or many volunteers."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count + 3, rng.integers(1, 6))) * rng.choice([0.1, 0.3, 1.0])
    sizes = rng.dirichlet(np.full(count + 3, 0.7)) * 1000 + 1
    if seed % 2:
        options["costs"] = rng.uniform(0.05, 1, size=count) * rng.choice([0.1, 1, 10])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(points @ points.T),
        sizes,
        removed=range(3),
        cost_scale=rng.choice([0.3, 1, 3, 10]),
        lambda_v=rng.uniform(0, 2),
        lambda_s=rng.uniform(0.1, 2),
        **options,
    )
    budget = rng.uniform(0.01, 0.8) * game.costs.sum() * rng.choice([0.02, 0.2, 1])
    return game, float(budget)


def grid_optimum(game, budget, steps):
    """Least server loss over a grid of participation profiles with inducing payments within the budget.

    Written from the definitions: embedding, distances, the equilibrium conditions and the price of a profile.
    """
    axis = np.linspace(0, 1, steps)
    x = np.stack(np.meshgrid(*[axis] * game.count, indexing="ij"), axis=-1).reshape(-1, game.count)[1:]
    y = x * game.alpha
    total = y.sum(axis=1)
    z = y / total[:, None]
    gram = game.embeddings.gram
    keep = game.remaining
    weights = np.zeros((len(z), len(gram)))
    weights[:, keep] = z
    inner = weights @ gram
    square = (inner * weights).sum(axis=1)
    d2 = np.diag(gram)[keep] - 2 * inner[:, keep] + square[:, None]
    thin = game.sampling_constant / (
        game.loss_constant * game.sizes.sum() * total
    )  # a / S on every squared distance
    bracket = game.costs - 2 * game.lam * game.alpha * (d2 + 0.5 * thin[:, None]) / total[:, None]
    inducible = ((x == 1) | (bracket >= -1e-12 * game.costs)).all(axis=1)
    spend = (np.maximum(bracket, 0) * x).sum(axis=1)
    remaining = np.zeros(len(gram))
    remaining[keep] = game.alpha
    original = game.all_sizes / game.all_sizes.sum()
    loss = np.zeros(len(z))
    for weight, target in ((game.lam_v, remaining), (game.lam_s, original)):
        loss += weight * (square - 2 * inner @ target + target @ gram @ target + thin)
    feasible = inducible & (spend <= budget)
    return float(loss[feasible].min()) if feasible.any() else np.inf

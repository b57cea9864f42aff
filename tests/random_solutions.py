"""Small random games of every kind that certificates are written for, solved."""

import warnings

import numpy as np

import stackfu as sf

KINDS = ("linear", "capped")


def random_solution(seed):
    """Return a solution of a random game of 2 to 6 clients; seeds walk through the kinds of game and of request."""
    rng = np.random.default_rng(seed)
    count, width = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    sizes = rng.integers(5, 80, count + 1).astype(float)
    points = rng.normal(size=(count + 1, width)) * rng.choice([0.05, 0.4, 1.0])
    removed = [int(rng.integers(0, count + 1))] if rng.random() < 0.7 else []
    offers = KINDS[int(rng.integers(0, 2))]
    stored = rng.random()
    if stored < 0.5:
        kept = points.astype(np.float32) if rng.random() < 0.3 else points
        emb = sf.MeanEmbeddings.from_features(kept)
    elif stored < 0.75:
        emb = sf.MeanEmbeddings.from_gram(points @ points.T)
    else:
        samples = [
            points[k] + 0.3 * rng.normal(size=(max(int(n) // 4, 2), width)) for k, n in enumerate(sizes)
        ]
        emb = sf.MeanEmbeddings.from_samples(samples, bandwidth="median")
    finite = stored >= 0.75 and rng.random() < 0.4
    thin = offers == "capped" or rng.random() < 0.4
    costs = rng.uniform(0.02, 0.5, len(sizes) - len(removed)) * rng.choice([0.1, 1.0])
    own = {}
    if rng.random() < 0.2:
        shares = rng.dirichlet(np.ones(len(sizes)), size=2)
        own["server_loss"] = sf.ServerLoss.to_mixtures(shares, rng.uniform(0.2, 2.0, 2))
    else:
        own |= {"lambda_v": float(rng.uniform(0.3, 2)), "lambda_s": float(rng.uniform(0.3, 2))}
    game = sf.StackelbergGame(
        emb, sizes, removed, costs=costs, sampling_constant=float(rng.uniform(0.1, 3)) if thin else 0.0, **own
    )
    asked = {"gap": float(rng.choice([1e-2, 1e-3, 1e-4])), "max_nodes": 400, "progress": False}
    if finite:
        asked["finite_sample"] = True
    if rng.random() < 0.3:
        asked["min_total"] = float(rng.uniform(0.05, 0.6))
    if rng.random() < 0.2:
        asked["payment_weight"] = float(rng.uniform(0.01, 1.0))
    if offers == "capped":
        asked["offers"] = "capped"
        if rng.random() < 0.3:
            asked["outside"] = np.where(
                rng.random(game.count) < 0.5, -np.inf, -rng.uniform(0.2, 3.0, game.count)
            )
    budget = float(game.costs.sum() * rng.choice([0.02, 0.1, 0.3, 0.7]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sf.StackfuWarning)
            return game.solve(budget, **asked)
    except sf.InfeasibleError:
        return None

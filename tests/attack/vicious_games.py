"""Games at the edges of what floats can be: exact ties, clients alike to the last bit, shares of nothing, prices beyond all."""

import numpy as np

import stackfu as sf

KINDS = (
    "lattice", "alike", "last bit", "decades", "gram", "tiny caps", "denormal", "prices", "sampling", "symmetric", "at costs"
)  # fmt: skip


def vicious_game(rng):
    """A game, payments and caps for it, and the name of its kind; what cannot be a game is drawn again."""
    with np.errstate(all="ignore"):
        while True:
            try:
                return _draw(rng)
            except sf.InputError:  # a cost of 0, or a payment that is no float any more
                continue


def _draw(rng):
    kind = str(rng.choice(KINDS))
    count, width = int(rng.choice([2, 3, 3, 4, 4, 5, 6, 8])), int(rng.integers(1, 4))
    points, sizes = rng.normal(size=(count, width)), rng.uniform(0.5, 2.0, count)
    kappa, lambda_q, constant = 10.0 ** rng.uniform(-1, 1, count), 1.0, 0.0
    costs = payments = caps = None
    if kind == "lattice":
        points = rng.integers(-2, 3, size=(count, width)).astype(rng.choice([np.int64, np.float64, np.int8]))
        sizes, costs = rng.integers(1, 4, count), rng.integers(1, 5, count)
        payments = rng.choice([0, 1, 2], count) if rng.random() < 0.5 else costs * rng.integers(0, 2, count)
    elif kind == "alike":
        points = np.tile(points[:1], (count, 1))
        sizes = rng.integers(1, 8, count).astype(float)
        costs = sizes * rng.choice([1.0, 1.0, 2.0, 3.0], count)
        payments = costs * rng.choice([0.0, 0.5, 1.0, 1.0, 2.0], count)
        constant = float(10.0 ** rng.uniform(-8, 3)) * (rng.random() < 0.6)
    elif kind == "last bit":
        points = np.tile(points[:1], (count, 1)) * (1 + rng.integers(0, 3, size=points.shape) * 2.2e-16)
    elif kind == "decades":
        kappa, sizes = 10.0 ** rng.uniform(-6, 6, count), 10.0 ** rng.uniform(0, 7, count)
    elif kind == "gram" and rng.random() < 0.5:
        points = rng.integers(-2, 3, size=(count, width)) + 100.0 * rng.integers(0, 2)
    elif kind == "tiny caps":
        caps = rng.choice([0.0, 5e-324, 1e-300, 1e-160, 1e-17, 1e-9, 0.5, 1.0], count)
    elif kind == "denormal":
        sizes = 10.0 ** rng.choice([-323.0, -300.0, -10.0, 0.0, 0.0, 100.0, 300.0], count)
        kappa = kappa * 10.0 ** rng.choice([-300.0, 0.0, 0.0, 0.0, 200.0], count)
    elif kind == "sampling":
        constant = float(10.0 ** rng.choice([-300.0, -100.0, -20.0, -8.0, 0.0, 8.0, 20.0, 100.0, 300.0]))
    elif kind == "symmetric":
        points = np.eye(count)[:, : count - int(rng.integers(0, 2))] * 10.0 ** rng.choice(
            [-150.0, -8.0, 0.0, 0.0, 8.0, 150.0]
        )
        sizes, kappa = np.ones(count), np.full(count, kappa[0])
    if rng.random() < 0.2 or kind == "prices":
        lambda_q = float(10.0 ** rng.choice([-300.0, -100.0, -12.0, -6.0, 6.0, 12.0, 100.0, 300.0]))
    if costs is None:
        alpha = sizes / sizes.sum()
        spread = float(alpha @ ((points - alpha @ points) ** 2).sum(axis=1))
        costs = kappa * alpha * max(spread, 1e-300) * (lambda_q if rng.random() < 0.5 else 1.0)
    if kind == "prices":
        payments = costs * 10.0 ** rng.choice([-300.0, -3.0, 0.0, 0.0, 3.0, 100.0, 200.0], count)
    elif payments is None:
        choice = rng.random()
        payments = np.zeros(count)
        if choice < 0.15 or kind == "at costs":
            payments = costs.copy()
        elif choice < 0.3:
            payments = costs * rng.choice([0.0, 0.5, 1 - 1e-15, 1.0, 1 + 1e-15, 1.5, 1e9], count)
    if caps is None and rng.random() < 0.25:
        caps = rng.choice([0.0, 0.1, 0.5, 1.0], count)
    if constant == 0.0 and rng.random() < 0.15:
        constant = float(10.0 ** rng.uniform(-12, 4))
    embeddings = (
        sf.MeanEmbeddings.from_gram(points @ points.T)
        if kind == "gram"
        else sf.MeanEmbeddings.from_features(points)
    )
    game = sf.StackelbergGame(embeddings, sizes, costs=costs, lambda_q=lambda_q, sampling_constant=constant)
    game.check_payments(payments)
    game.check_caps(caps)
    return game, payments, caps, kind

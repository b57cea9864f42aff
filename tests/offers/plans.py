"""Random plans for tests of offers, and references that share no code with them: utilities from the definition, brute force."""

import itertools

import numpy as np

import stackfu as sf
from stackfu.model.offers import capped_offers, contract_offers
from stackfu.model.responses import best_responses


def random_plan(seed, most=6, sampling=None):
    """A game with 2 to ``most`` remaining clients, often with a sampling constant, and a plan with some clients left out."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, most + 1))
    points = rng.normal(size=(count + 2, rng.integers(1, 4))) * rng.choice([0.1, 1.0])
    sizes = rng.dirichlet(np.full(count + 2, 0.7)) * 1000 + 1
    scale = float(np.ptp(points, axis=0).max() ** 2)
    if sampling is None:
        sampling = float(rng.choice([0.0, 0.01, 0.3]))
    lam = 0.5
    alpha = sizes[2:] / sizes[2:].sum()
    costs = 2 * lam * alpha * scale * 10.0 ** rng.uniform(-1.5, 1.5, size=count)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        sizes,
        removed=[0, 1],
        costs=costs,
        lambda_q=lam,
        sampling_constant=sampling * scale * sizes[2:].sum(),
    )
    x = rng.uniform(size=count) * (rng.uniform(size=count) < 0.85)
    x[rng.integers(count)] = rng.uniform(0.1, 1.0)
    if rng.uniform() < 0.3:
        x[rng.integers(count)] = 1.0
    return game, x


def responses_below(game, w, profile, upper):
    """Best responses in y with the game's sampling term."""
    return best_responses(upper, w, profile, game.sampling)


def as_capped(game, x, outside=None):
    """The cheapest capped offers for a participation."""
    return capped_offers(game, game.profile(x), outside)


def as_contract(game, x, outside=None):
    """The cheapest contracts for a participation."""
    return contract_offers(game, game.profile(x), outside)


def utility(game, payouts, x):
    """``U_k`` from the embeddings themselves."""
    rows = np.asarray(game.embeddings.features)[game.remaining]
    y = game.alpha * x
    gaps = y @ rows / y.sum() - rows
    d2 = np.einsum("ij,ij->i", gaps, gaps)
    used = float(game.sizes @ x)
    drift = game.loss_constant * d2 + game.sampling_constant / used
    return payouts - game.costs * x - game.lambda_q * drift


def capped_equilibria(game, prices, caps, tolerance=1e-9):
    """Every equilibrium of capped offers, by trying each pattern {out, inside, at the cap} and solving for who is inside.

    For a pattern the conditions on S and on those inside are solved by Newton steps from many starts; whatever
    satisfies the conditions is kept.
    """
    from scipy.optimize import fsolve

    rows = np.asarray(game.embeddings.features)[game.remaining]
    a = game.sampling
    w = (game.costs - prices) / (2 * game.lam * game.alpha)
    top = game.alpha * caps
    able = np.flatnonzero(top > 0)
    unit = game.geometry.scale + a

    def inclination(y):
        total = y.sum()
        gaps = y @ rows / total - rows
        return np.einsum("ij,ij->i", gaps, gaps) + a / (2 * total) - total * w

    rng = np.random.default_rng(0)
    found = []
    for kinds in itertools.product((0, 1, 2), repeat=len(able)):
        kinds = np.array(kinds)
        full, inside = able[kinds == 2], able[kinds == 1]
        base = np.zeros(game.count)
        base[full] = top[full]
        starts = 1 if len(inside) == 0 else 6
        for _ in range(starts):
            y = base.copy()
            if len(inside):

                def conditions(part, base=base, inside=inside):
                    trial = base.copy()
                    trial[inside] = part
                    if trial.sum() <= 0:
                        return np.full(len(inside), unit)
                    return inclination(trial)[inside] / unit

                part, _, done, _ = fsolve(
                    conditions,
                    top[inside] * rng.uniform(0.02, 0.98, len(inside)),
                    full_output=True,
                    xtol=1e-13,
                )
                y[inside] = part
                if done != 1 or (part < 0).any() or (part > top[inside]).any():
                    continue
            if y.sum() <= 0:
                continue
            g = inclination(y) / unit
            ok = (g[inside] ** 2 <= tolerance**2).all() and (g[full] >= -tolerance).all()
            out = able[kinds == 0]
            if (
                ok
                and (g[out] <= tolerance).all()
                and not any(np.abs(y - other).max() < 1e-6 for other in found)
            ):
                found.append(y)
    return [y / game.alpha for y in found]

"""Random games for the followers' tests, and an exhaustive search for their equilibria."""

from __future__ import annotations

import itertools

import numpy as np

import stackfu as sf


def game_from(points, alpha, w, form="gram", **options) -> sf.StackelbergGame:
    """A game with embeddings ``points`` (or their inner products), shares alpha, and, if all are positive, reluctances w."""
    points, alpha, w = (np.asarray(a, dtype=float) for a in (points, alpha, w))
    alpha = alpha / alpha.sum()
    needed = 2.0 * alpha * w
    costs = np.maximum(needed, 1e-300) if np.all(needed > 0) else np.abs(needed) + 1.0
    emb = sf.MeanEmbeddings.from_features(points)
    if form == "gram":
        emb = sf.MeanEmbeddings.from_gram(points @ points.T)
    return sf.StackelbergGame(emb, alpha, costs=costs, **options)


def payments_for_w(game, w):
    """Payments at which the game's reluctances are w; costs were chosen so that none is negative."""
    return np.maximum(game.costs - 2.0 * game.lam * game.alpha * np.asarray(w, dtype=float), 0.0)


def random_batch(rng, count, clients, dimension):
    """Points, shares and reluctances of ``count`` games; widely spread w make several equilibria likelier."""
    points = rng.normal(size=(count, clients, dimension))
    alpha = rng.exponential(size=(count, clients))
    alpha /= alpha.sum(axis=1, keepdims=True)
    spread = rng.choice([0.2, 1.0, 2.5], size=(count, 1))
    level = rng.choice([0.2, 1.0, 5.0], size=(count, 1))
    w = level * np.exp(spread * rng.normal(size=(count, clients)))
    return points, alpha, w


def enumerate_supports(points, alpha, w, caps=None, a=0.0):
    """All equilibria y of every game of a batch, by trying every pattern {out, inside, full}^N.

    For a pattern, y is polynomial in S and the equilibrium condition a polynomial equation in S; every real
    root is tested against the definition: g_k = 0 inside, g_k <= 0 out, g_k >= 0 full. ``caps`` are positive.
    """
    count, N = alpha.shape
    mean = np.einsum("bk,bkd->bd", alpha, points)
    alpha = alpha if caps is None else alpha * caps
    points = points - mean[:, None, :]
    gram = points @ points.transpose(0, 2, 1)
    diagonal = np.einsum("bkk->bk", gram)
    scale = (diagonal[:, :, None] + diagonal[:, None, :] - 2 * gram).max(axis=(1, 2))
    found = [[] for _ in range(count)]
    for pattern in itertools.product((-1, 0, 1), repeat=N):
        kind = np.array(pattern)
        A, C = np.flatnonzero(kind == 0), np.flatnonzero(kind == 1)
        if len(A) == 0 and len(C) == 0:
            continue
        if len(A) > points.shape[2] + 1:
            continue  # more indifferent clients than unknowns m and S: impossible for drawn w
        y = np.zeros((count, N, 3))
        y[:, C, 0] = alpha[:, C]
        if len(A) == 0:
            totals = alpha[:, C].sum(axis=1)[:, None]
        else:
            n = len(A)
            system = np.zeros((count, n + 1, n + 1))
            system[:, :n, :n] = 2 * gram[:, A[:, None], A]
            system[:, :n, n] = system[:, n, :n] = 1.0
            right = np.zeros((count, n + 1, 3))
            right[:, :n, 0] = -2 * np.einsum("bij,bj->bi", gram[:, A[:, None], C], alpha[:, C])
            right[:, :n, 1] = diagonal[:, A]
            right[:, :n, 2] = -w[:, A]
            right[:, n, 0] = -alpha[:, C].sum(axis=1)
            right[:, n, 1] = 1.0
            solution = np.linalg.solve(system, right)
            y[:, A] = solution[:, :n]
            inner = gram @ y
            poly = np.zeros((count, 5))
            poly[:, 1:4] = solution[:, n]
            for i, j in itertools.product(range(3), range(3)):
                poly[:, i + j] += np.einsum("bk,bk->b", y[:, :, i], inner[:, :, j])
            poly[:, 1] += 0.5 * a
            if len(C) == 0 and a > 0:  # alone the distance is 0
                poly = poly[:, 1:] if n > 1 else poly[:, 1:4]
            elif len(C) == 0:
                if n == 1:
                    continue  # alone: d = 0, no zero with w != 0
                poly = poly[:, 2:]
            elif n == 1:
                poly = poly[:, :4]
            totals = batch_roots(poly)
        for r in range(totals.shape[1]):
            s = totals[:, r]
            good = np.isfinite(s) & (s > 0) & (s <= 1 + 1e-12)
            for b in np.flatnonzero(good):
                candidate = y[b] @ np.array([1.0, s[b], s[b] ** 2])
                if is_equilibrium(gram[b], alpha[b], w[b], candidate, kind, 1e-9 * scale[b], a):
                    found[b].append(candidate)
    return [distinct(ys) for ys in found]


def is_equilibrium(gram, alpha, w, y, kind, slack, a=0.0):
    if np.any(y < -1e-9) or np.any(y > alpha + 1e-9):
        return False
    total = y.sum()
    z = y / total
    inner = gram @ z
    g = np.diag(gram) - 2 * inner + z @ inner + 0.5 * a / total - total * w
    slack = max(slack, 1e-9 * a / total)
    return bool(
        np.all(np.abs(g[kind == 0]) <= slack)
        and np.all(g[kind < 0] <= slack)
        and np.all(g[kind > 0] >= -slack)
    )


def batch_roots(poly):
    """Real roots of many polynomials (coefficients ascending), NaN where complex.

    Eigenvalues are good to rounding of the *largest* root, which may be 10^8 times the one that matters; Newton steps,
    taken where they lower the residual, make each root good by itself.
    """
    degree = poly.shape[1] - 1
    companion = np.zeros((len(poly), degree, degree))
    companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1.0
    companion[:, :, -1] = -poly[:, :-1] / poly[:, -1:]
    roots = np.linalg.eigvals(companion)
    real = np.where(np.abs(roots.imag) < 1e-7 * np.abs(roots), roots.real, np.nan)
    ascending = poly.T[:, :, None]
    slopes = ascending[1:] * np.arange(1, degree + 1)[:, None, None]
    for _ in range(3):
        value = np.polynomial.polynomial.polyval(real, ascending, tensor=False)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = real - value / np.polynomial.polynomial.polyval(real, slopes, tensor=False)
        residual = np.abs(np.polynomial.polynomial.polyval(moved, ascending, tensor=False))
        real = np.where(residual < np.abs(value), moved, real)
    return real


def distinct(ys):
    """Profiles that differ, by ascending total."""
    kept = []
    for y in sorted(ys, key=lambda v: v.sum()):
        if not any(np.abs(y - other).max() < 1e-7 for other in kept):
            kept.append(y)
    return kept

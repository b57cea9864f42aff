"""Chains of profiles for the completeness checker, from the plain NumPy path."""

import numpy as np

from stackfu.followers.reference import follow_slowly


def small_total(game, w):
    """A total below which some pair of clients surely wants more."""
    roots = np.sqrt(np.maximum(w, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = game.geometry.pairwise / (roots[:, None] + roots[None, :]) ** 2
    reach = np.where(game.geometry.pairwise > 0, reach, 0.0)
    return 0.5 * np.minimum(reach, np.minimum.outer(game.alpha, game.alpha)).max()


def slow_chain(game, payments):
    """Control profiles along the path, and the equilibria on it."""
    w = game.reluctance(payments)
    scale = game.geometry.scale
    pieces = follow_slowly(game.geometry.gram / scale, game.alpha, w / scale)
    end = small_total(game, w)
    chain, found = [np.ones(game.count)], []
    for piece in pieces:
        bottom = max(piece.bottom, end)
        if piece.top <= bottom:
            break

        def at(s, y=piece.y):
            return y @ np.array([1.0, s, s * s])

        def add(top, low, depth, piece=piece, at=at):
            middle = at(top) + 0.5 * (low - top) * (piece.y @ np.array([0.0, 1.0, 2.0 * top]))
            share = (middle / game.alpha)[piece.inside]
            if depth and (
                share.min() < 0 or share.max() > 1
            ):  # a control point that the caps do not allow: shorter segments
                add(top, 0.5 * (top + low), depth - 1)
                add(0.5 * (top + low), low, depth - 1)
                return
            for y in (middle, at(low)):
                chain.append(
                    np.where(piece.inside, np.clip(y / game.alpha, 0.0, 1.0), piece.full.astype(float))
                )

        add(piece.top, bottom, 12)
        found += [
            np.where(piece.inside, np.clip(at(s) / game.alpha, 0.0, 1.0), piece.full.astype(float))
            for s in piece.roots
        ]
    return np.array(chain), found

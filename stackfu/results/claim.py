"""The claim of a certificate: a digest of the game, the objective, the offers and the bound that it is about.

``docs/theory/certificate_format.md`` lists the bytes. The digest is no signature: it tells one claim from another, so that a
certificate that was copied into another file is refused before anything is computed.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from .solution import Solution

__all__ = ["claim_digest"]

#: Rows of features that are turned into bytes together.
_BLOCK = 65536


def claim_digest(solution: Solution) -> str:
    """Return the SHA-256 digest, in hexadecimal, of what a solution claims.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> claims = [claim_digest(game.solve(budget)) for budget in (0.0, 0.0, 0.1)]
    >>> claims[0] == claims[1], claims[0] == claims[2]
    (True, False)
    """
    game, goal, offers = solution.game, solution.goal, solution.offers
    digest = hashlib.sha256(b"stackfu claim 1\n")

    def add(name: str, *arrays: Any) -> None:
        digest.update(f"{name}\n".encode())
        for array in arrays:
            for start in range(0, max(len(array), 1), _BLOCK):
                # adding 0 turns -0 into 0
                digest.update(
                    (np.asarray(array[start : start + _BLOCK], dtype=np.float64) + 0.0)
                    .astype(">f8")
                    .tobytes()
                )

    embeddings, count = game.embeddings, len(game.all_sizes)
    if embeddings.features is not None:
        add(f"features {count} {embeddings.features.shape[1]}", embeddings.features)
    else:
        add(f"products {count}", embeddings._inner_products)
        add(f"norms {count}", np.diagonal(embeddings.gram))
    counts = embeddings.sample_counts
    add(f"counts {count}", game.all_sizes if counts is None else counts)
    add(f"sizes {count}", game.all_sizes)
    add(f"removed {len(game.removed)}", sorted(game.removed))
    add(f"costs {game.count}", game.costs)
    add("constants 3", [game.lambda_q, game.loss_constant, game.sampling_constant])
    for weight, target in zip(game.loss.weights, game.loss.targets, strict=True):
        add(f"target {target.kind} {len(target.values)}", [weight], target.values)
    add("sampling 1", [game.loss.sampling])
    limits = [goal.budget, goal.payment_weight, goal.loss_weight, goal.max_loss, goal.min_total]
    add("objective 6", [*limits, goal.finite_sample])
    add(f"offers {offers.kind} {game.count}", offers.prices, offers.caps, offers.retainers)
    outside = () if solution.outside is None else solution.outside
    add(f"outside {len(outside)}", outside)
    add("bound 1", [solution.lower_bound])
    return digest.hexdigest()

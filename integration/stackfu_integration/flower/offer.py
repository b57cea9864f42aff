"""A client's information for its decision, and the decision.

The server announces the sum ``a = sum_i y_i mu_i`` and the total ``S = sum_i y_i`` of what everybody would
bring. Client k takes out its own part and is left with that of the others, ``a_0 = a - y_k mu_k`` and
``S_0 = S - y_k``. With

    q = |a_0 - S_0 mu_k|^2        w = (c_k - p_k) / (2 lam alpha_k)

its best response is ``y_k = clip((q / w)^(1/3) - S_0, 0, cap_k alpha_k)``, and the upper end where it is paid its
cost or more. D + 1 public numbers and its own embedding are all it needs: no other client's data, embedding
or price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stackfu_integration.arrays import FloatArray

__all__ = ["Offer"]


@dataclass(frozen=True)
class Offer:
    """A price for one client, and the announced behaviour of all.

    ``own`` is the embedding that the client sent in and ``share`` its announced participation. ``bias`` is what
    privacy noise adds to ``|a - S mu_k|^2``: what the embeddings as they were sent say, less what the game says that was
    solved; 0 where no noise was asked for. ``cap`` is the largest share that is taken and paid.
    """

    price: float
    cost: float
    alpha: float
    lam: float
    share: float
    total: float
    aggregate: FloatArray
    own: FloatArray
    bias: float = 0.0
    cap: float = 1.0

    @property
    def others(self) -> float:
        """``S_0``: what all the others would bring."""
        rest = self.total - self.alpha * self.share
        # the difference of two equal sums is a rounding error
        return rest if rest > 1e-12 * self.total else 0.0

    @property
    def squared_gap(self) -> float:
        """``|a_0 - S_0 mu_k|^2`` without the bias of the noise; the own part drops out of it."""
        gap = self.aggregate - (self.alpha * self.share + self.others) * self.own
        return float(gap @ gap) - self.bias

    def best_response(self) -> float:
        """Return the share of its data with which the client does best, the others fixed.

        >>> here, there = np.array([1.0, 0.0]), np.array([0.0, 1.0])
        >>> offer = Offer(
        ...     price=0.0, cost=1.0, alpha=0.5, lam=1.0, share=0.0, total=0.5, aggregate=there / 2, own=here
        ... )
        >>> round(offer.best_response(), 6)
        0.587401
        """
        others = self.others
        q = max(self.squared_gap, 0.0) if others > 0.0 else 0.0
        w = (self.cost - self.price) / (2.0 * self.lam * self.alpha)
        if w > 0.0:
            return float(np.clip((np.cbrt(q / w) - others) / self.alpha, 0.0, self.cap))
        if w < 0.0 or q > 0.0:
            return self.cap
        return min(self.share, self.cap)  # indifferent

"""The game of a removal request, rebuilt from the ledger whenever a phase needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import stackfu as sf
from stackfu.errors import StackfuError
from stackfu_integration.flower.events import (
    ClientExcluded,
    EmbeddingReceived,
    GameFounded,
    RemovalRequested,
)
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.privacy import nearest_gram, unbiased_gram
from stackfu_integration.flower.terms import Terms

__all__ = ["Board"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Board:
    """The game as it stands: the clients that are in it, and what they sent.

    ``clients`` are all that sent an embedding and were not left out, in ascending number, and ``remaining``
    those of them that stay. ``features``, ``deviations`` and ``sizes`` follow ``clients``, the game's arrays
    follow ``remaining``. ``clipped`` is what the nearest matrix of inner products changed.
    """

    clients: list[int]
    remaining: list[int]
    features: FloatArray
    deviations: FloatArray
    sizes: FloatArray
    game: sf.StackelbergGame
    clipped: float

    @classmethod
    def from_ledger(
        cls, ledger: PaymentLedger, request: str, terms: Terms, costs: Mapping[int, float] | None = None
    ) -> Board:
        """Rebuild the game among the clients that are not left out; without ``costs``, with those founded."""
        if costs is None:
            costs = ledger.need(request, GameFounded).costs
        out = ledger.by_client(request, ClientExcluded)
        sent = {c: e for c, e in ledger.by_client(request, EmbeddingReceived).items() if c not in out}
        removed = ledger.need(request, RemovalRequested).removed
        clients = sorted(sent)
        remaining = [c for c in clients if c not in removed]
        if len(remaining) < 2:
            raise StackfuError(f"{request}: a game needs two remaining clients, there are {remaining}")
        features = np.array([sent[c].mean for c in clients])
        deviations = np.array([sent[c].deviation for c in clients])
        sizes = np.array([sent[c].size for c in clients], dtype=np.float64)
        clipped = 0.0
        if deviations.any():
            gram, clipped = nearest_gram(unbiased_gram(features, deviations))
            embeddings = sf.MeanEmbeddings.from_gram(gram)
        else:
            embeddings = sf.MeanEmbeddings.from_features(features)
        game = sf.StackelbergGame(
            embeddings,
            sizes,
            removed=[k for k, c in enumerate(clients) if c in removed],
            costs=[costs[c] for c in remaining],
            lambda_v=terms.lambda_v,
            lambda_s=terms.lambda_s,
            lambda_q=terms.lambda_q,
            loss_constant=terms.loss_constant,
        )
        return cls(clients, remaining, features, deviations, sizes, game, clipped)

    def size_of(self, client: int) -> int:
        """Training samples of a client."""
        return int(self.sizes[self.clients.index(client)])

    @cached_property
    def _kept(self) -> list[int]:
        place = {client: k for k, client in enumerate(self.clients)}
        return [place[client] for client in self.remaining]

    @cached_property
    def rows(self) -> FloatArray:
        """Embeddings of the remaining clients."""
        return self.features[self._kept]

    @cached_property
    def noise(self) -> FloatArray:
        """``D sigma_k^2`` of the remaining clients."""
        return np.asarray(self.features.shape[1] * self.deviations[self._kept] ** 2)

    def offers(self, prices: FloatArray, x: FloatArray) -> dict[int, Offer]:
        """What every remaining client is told when ``x`` is announced."""
        y = self.game.alpha * x
        rows, noise = self.rows, self.noise
        aggregate, total, energy = y @ rows, float(y.sum()), float(y**2 @ noise)
        return {
            client: Offer(
                price=float(prices[k]),
                cost=float(self.game.costs[k]),
                alpha=float(self.game.alpha[k]),
                lam=self.game.lam,
                share=float(x[k]),
                total=total,
                aggregate=aggregate,
                own=rows[k],
                noise=energy,
                own_noise=float(noise[k]),
            )
            for k, client in enumerate(self.remaining)
        }

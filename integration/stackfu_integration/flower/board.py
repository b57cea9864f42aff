"""The game of a removal request, rebuilt from the ledger whenever a phase needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import stackfu as sf
from stackfu.errors import StackfuError
from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.events import (
    ClientExcluded,
    EmbeddingReceived,
    GameFounded,
    GroupSumReceived,
    RemovalRequested,
)
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.privacy import denoised_gram
from stackfu_integration.flower.terms import Terms

__all__ = ["Board"]


@dataclass(frozen=True)
class Board:
    """The game as it stands: the clients that are in it, and what they sent.

    ``remaining`` are the clients that sent an embedding, were not left out and stay, in ascending number; ``rows``,
    ``deviations``, ``sizes`` and the game's arrays follow them. Of those who leave the game needs one mixture: in it
    they are one member, with the sum of their sizes. ``clipped`` is what the nearest matrix of inner products changed.
    """

    remaining: list[int]
    rows: FloatArray
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
        remaining = [c for c in sorted(sent) if c not in removed]
        if len(remaining) < 2:
            there = f"only {ledger.naming.all(remaining)} is left" if remaining else "none is left"
            raise StackfuError(f"{request}: a game needs two remaining clients, {there}")
        rows = np.array([sent[c].mean for c in remaining])
        deviations = np.array([sent[c].deviation for c in remaining])
        sizes = np.array([sent[c].size for c in remaining], dtype=np.float64)
        group = ledger.last(request, GroupSumReceived)
        total, size, variance = np.zeros(rows.shape[1]), 0.0, 0.0
        if group is not None:
            total, size, variance = total + group.total, float(group.size), group.deviation**2
        for client in removed:
            event = sent.get(client)
            if event is not None and (group is None or client not in group.clients):
                total, size = total + event.size * event.mean, size + event.size
                variance += (event.size * event.deviation) ** 2
        return cls(
            remaining,
            rows,
            deviations,
            sizes,
            *_game(terms, costs, remaining, rows, deviations, sizes, total, size, variance),
        )

    def size_of(self, client: int) -> int:
        """Training samples of a client."""
        return int(self.sizes[self.remaining.index(client)])

    def offers(self, prices: FloatArray, x: FloatArray, caps: FloatArray | None = None) -> dict[int, Offer]:
        """Return the announcement of ``x`` to every remaining client."""
        y = self.game.alpha * x
        aggregate, total = y @ self.rows, float(y.sum())
        bias = self._bias(x, aggregate, total)
        return {
            client: Offer(
                price=float(prices[k]),
                cost=float(self.game.costs[k]),
                alpha=float(self.game.alpha[k]),
                lam=self.game.lam,
                share=float(x[k]),
                total=total,
                aggregate=aggregate,
                own=self.rows[k],
                bias=float(bias[k]),
                cap=1.0 if caps is None else float(caps[k]),
            )
            for k, client in enumerate(self.remaining)
        }

    def _bias(self, x: FloatArray, aggregate: FloatArray, total: float) -> FloatArray:
        """Return the noise's part of every ``|a - S mu_k|^2``: the embeddings as sent minus those of the solved game.

        Both must answer alike. If the expected noise were subtracted instead, the clients would play a game with inner
        products no vectors have, and the plan that was certified would not be an equilibrium of theirs.
        """
        if not (self.deviations.any() and total > 0.0):
            return np.zeros(len(self.remaining))
        gaps = aggregate - total * self.rows
        return np.asarray((gaps**2).sum(axis=1) - total**2 * self.game.profile(x).to_clients)


def _game(
    terms: Terms,
    costs: Mapping[int, float],
    remaining: list[int],
    rows: FloatArray,
    deviations: FloatArray,
    sizes: FloatArray,
    removed_total: FloatArray,
    removed_size: float,
    removed_variance: float,
) -> tuple[sf.StackelbergGame, float]:
    """Return the game, and how far the inner products were from a matrix of inner products.

    The game is made of inner products alone, or of coordinates that follow from them (a triangular factor): a file of it
    does not hold the embeddings.
    """
    removed: list[int] = []
    if removed_size > 0:
        removed = [0]
        rows = np.vstack([removed_total / removed_size, rows])
        sizes = np.append(removed_size, sizes)
        deviations = np.append(np.sqrt(removed_variance) / removed_size, deviations)
    clipped = 0.0
    if deviations.any():
        gram, clipped = denoised_gram(rows, deviations)
        embeddings = sf.MeanEmbeddings.from_gram(gram)
    else:
        factor = np.linalg.qr(rows.T, mode="r")
        signs = np.where(np.diag(factor) < 0, -1.0, 1.0)
        embeddings = sf.MeanEmbeddings.from_features((signs[:, None] * factor).T)
    game = sf.StackelbergGame(
        embeddings,
        sizes,
        removed=removed,
        costs=[costs[c] for c in remaining],
        lambda_v=terms.lambda_v,
        lambda_s=terms.lambda_s,
        lambda_q=terms.lambda_q,
        loss_constant=terms.loss_constant,
    )
    return game, clipped

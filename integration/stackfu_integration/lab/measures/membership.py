"""Membership inference by reference models: was a sample of a removed client trained on?

The statistic of a sample ``(x, y)`` is the log odds that a model gives its label, ``phi = log p_y - log (1 - p_y)``.
Reference federations are trained as the attacked one was, with the remaining clients as they are and every removed
client holding a random half of its training and test samples; the next reference holds the other half. So every
sample has as many references that trained on it as references that did not, and its score is their log likelihood
ratio with one variance for all samples,

    score = (m_in - m_out) (phi - (m_in + m_out) / 2) / s^2.

Members are the removed clients' training samples, strangers their test samples. The attack says what it is worth: its
**power** is the true positive rate at a false positive rate of 1% *before* unlearning. Where that cannot be told from
1%, a model that passes the attack has shown nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stackfu.errors import InputError
from stackfu_integration.lab.federation.clients import Client, LabelledTensors, LabFederation
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.federation.trained import Trained, train_federation
from stackfu_integration.lab.intervals import rate_interval
from stackfu_integration.lab.measures.performance import logits_on
from stackfu_integration.ranks import separation

__all__ = ["FALSE_POSITIVES", "Detection", "LikelihoodRatioAttack", "detection", "log_odds"]

FALSE_POSITIVES = 0.01
_HALVES = 51  # seed stream


def log_odds(scores: Tensor, labels: Tensor) -> Tensor:
    """``log p_y - log (1 - p_y)`` of class scores, without leaving the logarithms.

    >>> log_odds(torch.tensor([[0.0, 0.0]]), torch.tensor([0])).item()
    0.0
    """
    exact = scores.double()
    own = exact.gather(1, labels[:, None]).flatten()
    others = exact.scatter(1, labels[:, None], -math.inf)
    return own - others.logsumexp(1)


@dataclass(frozen=True)
class Detection:
    """Number of members found by an attack that accuses at most 1% of the non-members.

    Counts, so that runs can be pooled: ``found`` of ``members``, ``accused`` of ``strangers``.
    """

    members: int
    found: int
    strangers: int
    accused: int
    auc: float

    @property
    def rate(self) -> float:
        """True positive rate."""
        return self.found / self.members

    @property
    def sees(self) -> bool:
        """True if members are found more often than non-members are accused, beyond chance."""
        return rate_interval(self.found, self.members)[0] > rate_interval(self.accused, self.strangers)[1]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)


def detection(members: Tensor, strangers: Tensor, false_positives: float = FALSE_POSITIVES) -> Detection:
    """Take the threshold that accuses at most that share of the strangers, and count.

    Fewer strangers than ``1 / false_positives`` set the threshold above all of them.

    >>> found = detection(torch.arange(50.0) + 60, torch.arange(100.0))
    >>> found.found, found.accused
    (11, 1)
    """
    if not len(members) or not len(strangers):
        raise InputError(
            "members", "and strangers must both have samples", value=(len(members), len(strangers))
        )
    allowed = math.floor(false_positives * len(strangers))
    threshold = strangers.sort(descending=True).values[allowed]
    return Detection(
        len(members),
        int((members > threshold).sum()),
        len(strangers),
        int((strangers > threshold).sum()),
        separation(members, strangers),
    )


@dataclass(frozen=True)
class LikelihoodRatioAttack:
    """Statistics of the references for every sample of the removed clients: training samples first, then test samples."""

    inside: Mapping[int, Tensor]  # mean of phi over references that trained on the sample
    outside: Mapping[int, Tensor]
    variance: float
    references: int

    @classmethod
    def prepare(
        cls,
        trained: Trained,
        removed: Sequence[int],
        references: int,
        seed: int,
        after_reference: Callable[[int], None] = lambda number: None,
    ) -> LikelihoodRatioAttack:
        """Train ``references`` federations (an even number, at least four) and keep their means."""
        if references < 4 or references % 2:
            raise InputError("references", "must be even and at least 4", value=references)
        federation = trained.federation
        pools = {i: _pool(federation.clients[i]) for i in removed}
        seen: dict[int, list[Tensor]] = {i: [] for i in removed}
        held: dict[int, list[Tensor]] = {i: [] for i in removed}
        for number in range(references):
            halves = {
                i: _half(len(pools[i]), number, client_seed(seed, i, number // 2, _HALVES)) for i in removed
            }
            clients = list(federation.clients)
            for i in removed:
                clients[i] = replace(clients[i], train=pools[i].take(halves[i].nonzero().flatten()))
            shadow = LabFederation(tuple(clients), federation.model, federation.device)
            fitted = train_federation(shadow, trained.settings, trained.rounds, seed + 1 + number)
            for i in removed:
                seen[i].append(log_odds(logits_on(shadow, fitted.final, pools[i].x), pools[i].y))
                held[i].append(halves[i])
            after_reference(number + 1)
        return cls.of(
            {i: torch.stack(values) for i, values in seen.items()},
            {i: torch.stack(values) for i, values in held.items()},
        )

    @classmethod
    def of(cls, statistics: Mapping[int, Tensor], held: Mapping[int, Tensor]) -> LikelihoodRatioAttack:
        """From the references' statistics and who held what, both of shape (references, samples)."""
        inside, outside, squares, count = {}, {}, 0.0, 0
        for client, phi in statistics.items():
            mine = held[client]
            mean_in = (phi * mine).sum(0) / mine.sum(0)
            mean_out = (phi * ~mine).sum(0) / (~mine).sum(0)
            rest = phi - torch.where(mine, mean_in, mean_out)
            squares += float(rest.square().sum())
            count += rest.numel() - 2 * rest.shape[1]  # two means were fitted to every sample
            inside[client], outside[client] = mean_in, mean_out
        references = len(next(iter(statistics.values())))
        return cls(inside, outside, max(squares / count, 1e-12), references)

    def scores(self, federation: LabFederation, weights: Tensor, client: int) -> tuple[Tensor, Tensor]:
        """Scores of a removed client's members and strangers under the attacked model."""
        pool, cut = _pool(federation.clients[client]), len(federation.clients[client].train)
        phi = log_odds(logits_on(federation, weights, pool.x), pool.y)
        inside, outside = self.inside[client], self.outside[client]
        score = (inside - outside) * (phi - 0.5 * (inside + outside)) / self.variance
        return score[:cut], score[cut:]

    def run(self, federation: LabFederation, weights: Tensor) -> tuple[Detection, dict[int, Detection]]:
        """Attack a model: over all removed clients with one threshold, and each of them with its own strangers."""
        scored = {client: self.scores(federation, weights, client) for client in self.inside}
        whole = detection(
            torch.cat([members for members, _ in scored.values()]),
            torch.cat([strangers for _, strangers in scored.values()]),
        )
        return whole, {client: detection(*pair) for client, pair in scored.items()}

    def state(self) -> dict[str, Any]:
        """Plain tensors, for a checkpoint."""
        return {
            "inside": dict(self.inside),
            "outside": dict(self.outside),
            "variance": self.variance,
            "references": self.references,
        }


def _pool(client: Client) -> LabelledTensors:
    return LabelledTensors(
        torch.cat([client.train.x, client.test.x]), torch.cat([client.train.y, client.test.y])
    )


def _half(size: int, number: int, seed: int) -> Tensor:
    """Return the samples of reference ``number``: a random half, or the complement of the reference before it."""
    chosen = np.zeros(size, dtype=bool)
    chosen[np.random.default_rng(seed).permutation(size)[: size // 2]] = True
    return torch.from_numpy(chosen if number % 2 == 0 else ~chosen)

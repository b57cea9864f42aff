"""Convex heads: go back to public layers, then train a regularised softmax head to its optimum.

Whatever was trained on the removed clients' data is reset to the public weights that training started from; on frozen
features there is nothing to reset. On the features of the public layers the head minimises

    F(W) = mean cross-entropy of the participants' samples + l2/2 ||W||^2,

whose optimum ``W*`` is a function of their data alone. Started from zero, the outcome never met the removed data, wherever
it stops: steps of second order make that cheap enough to need no shortcut. Started from the trained head it must be
followed until nothing is left of the start, and a certificate says how far from ``W*`` it can be
(:class:`~stackfu_integration.lab.federation.convex.Certificate`).

With ``privacy = (epsilon, delta)`` the objective gets a random linear term, ``B ~ N(0, sigma^2)`` with
``sigma = tolerance sqrt(2 ln(1.5 / delta)) / epsilon``: certified removal after Guo et al. (2020, theorem 3). The
density of the outcome is then within ``e^epsilon``, up to ``delta``, of that of a head trained to the exact optimum
without the removed data, for readers who do not know ``B``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import fedavg
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.convex import Curvature, largest_norm, minimise_softmax
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import Classifier, head_matrix, read_weights, write_weights
from stackfu_integration.lab.unlearning.base import CertifiedWeights, Guarantee
from stackfu_integration.lab.unlearning.participation import ParticipationMethod, with_features

__all__ = ["GRID", "ConvexHead", "Validation", "choose_l2"]

#: Weights of the penalty that validation chooses from, in units of the mean squared norm of the features.
GRID = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
_NOISE, _HELD_OUT, _ROUNDS = 41, 42, 43  # seed streams


@dataclass(frozen=True)
class ConvexHead(ParticipationMethod):
    """Public layers and the optimal head on them.

    ``l2`` is the weight for all remaining data; who trains on a part of them, ``n`` of ``n_N`` samples, uses
    ``l2 n_N / n``, which leaves the penalty relative to the *sum* of losses as it is: less data, more caution.
    ``score_gap`` is how far any class score may be from the optimum's, on inputs with features as long as the
    cohort's longest; it fixes the tolerance of the gradient, ``score_gap l2 / max ||z||``. ``warm`` starts from
    the trained head. ``passes`` over the data may be limited, and ``rounds`` of FedAvg with the federation's own
    settings may follow, for all layers: both need a start that has not met the removed data.

    >>> ConvexHead().guarantee, ConvexHead(warm=True).guarantee
    ('exact', 'certified')
    """

    name: ClassVar[str] = "convex-head"

    l2: float = 1e-3
    score_gap: float = 0.1
    warm: bool = False
    curvature: Curvature = "kronecker"
    passes: int | None = None
    rounds: int = 0
    privacy: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.score_gap <= 0 or self.l2 <= 0:
            raise InputError("score_gap", "and l2 must be positive", value=(self.score_gap, self.l2))
        if (self.rounds or self.passes is not None) and self.guarantee != "exact":
            raise InputError(
                "rounds",
                "and limited passes need a cold start and no noise: no certificate would survive them",
            )
        if self.passes is not None and self.passes < 3:
            raise InputError(
                "passes", "must be at least 3: a start, a step, a certificate", value=self.passes
            )
        if self.privacy is not None:
            epsilon, delta = self.privacy
            if not (epsilon > 0 and 0 < delta < 1):
                raise InputError("privacy", "needs epsilon > 0 and 0 < delta < 1", value=self.privacy)

    @property
    def guarantee(self) -> Guarantee:
        """A cold start is exact; a warm one is certified."""
        return "certified" if self.warm or self.privacy else "exact"

    def before(self, trained: Trained, removed: Sequence[int], seed: int) -> Tensor:
        """Return the head from the same training on all data, removed clients included.

        Changes of loss are measured against this model where the federation was trained in another way: a client
        should not be said to gain by a removal what it gains by another optimiser.
        """
        everybody = trained.federation.cohort(range(len(trained.federation.clients)))
        return self._fit(trained, everybody, tuple(removed), seed, Effort()).weights

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> CertifiedWeights:
        return self._fit(trained, self._cohort(trained, removed, seed), removed, seed, effort)

    def _fit(
        self,
        trained: Trained,
        drawn: dict[int, LabelledTensors],
        removed: tuple[int, ...],
        seed: int,
        effort: Effort,
    ) -> CertifiedWeights:
        federation = trained.federation
        model = federation.model(trained.seed)
        write_weights(model, trained.initial)
        cohort = with_features(model, drawn, federation.device, effort)
        whole = sum(len(federation.clients[i].train) for i in federation.remaining(removed))
        l2 = self.l2 * whole / sum(len(data) for data in cohort.values())
        tolerance = self.score_gap * l2 / largest_norm(cohort)
        found = minimise_softmax(
            cohort,
            model.head.out_features,
            l2=l2,
            tolerance=tolerance,
            start=head_matrix(trained.final, model) if self.warm else None,
            linear=self._noise(tolerance, model, seed),
            curvature=self.curvature,
            passes=self.passes,
            effort=effort,
        )
        head = torch.cat([found.head[:, :-1].reshape(-1), found.head[:, -1]])
        write_weights(model.head, head)
        weights = read_weights(model)
        if not self.rounds:
            return CertifiedWeights(weights, found.certificate)
        stream = client_seed(seed, 0, 0, _ROUNDS)
        tuned = fedavg(
            model,
            drawn,
            weights,
            self.rounds,
            trained.settings,
            stream,
            effort=effort,
            device=federation.device,
        )
        return CertifiedWeights(tuned, None)

    def _noise(self, tolerance: float, model: Classifier, seed: int) -> Tensor | None:
        if self.privacy is None:
            return None
        epsilon, delta = self.privacy
        sigma = tolerance * math.sqrt(2.0 * math.log(1.5 / delta)) / epsilon
        generator = torch.Generator().manual_seed(client_seed(seed, 0, 0, _NOISE))
        shape = (model.head.out_features, model.head.in_features + 1)
        return sigma * torch.randn(shape, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Validation:
    """Losses and accuracies on held-out samples along the grid, and the weight that was chosen."""

    l2: float
    grid: tuple[float, ...]
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]

    @property
    def price(self) -> float:
        """Accuracy that the chosen weight gives up against the best one on the grid."""
        return max(self.accuracies) - self.accuracies[self.grid.index(self.l2)]


def choose_l2(
    cohort: Mapping[int, LabelledTensors],
    classes: int,
    seed: int,
    *,
    grid: Sequence[float] = GRID,
    held_out: float = 0.2,
    curvature: Curvature = "kronecker",
    passes: int | None = None,
    effort: Effort | None = None,
) -> Validation:
    """Hold out a share of every client's samples and fit along the grid.

    The grid is in units of the mean squared norm of the features, so that it means the same for every backbone.
    Chosen is the largest weight with a held-out loss within one standard error of the smallest: a stronger
    penalty needs fewer passes and has a tighter certificate. Every head starts from the one before it, with at
    most ``passes`` passes each. A client with a single sample keeps it for training.
    """
    if not grid or min(grid) <= 0:
        raise InputError("grid", "must hold positive weights", value=tuple(grid))
    train: dict[int, LabelledTensors] = {}
    held: list[LabelledTensors] = []
    for client, data in sorted(cohort.items()):
        generator = torch.Generator().manual_seed(client_seed(seed, client, 0, _HELD_OUT))
        order = torch.randperm(len(data), generator=generator)
        cut = round(held_out * len(data)) if len(data) > 1 else 0
        held.append(data.take(order[:cut]))
        train[client] = data.take(order[cut:])
    x = torch.cat([data.x for data in held]).double()
    y = torch.cat([data.y for data in held])
    if not len(y):
        raise InputError("held_out", "leaves nothing to validate on", value=held_out)
    reach = largest_norm(train)
    count = sum(len(data) for data in train.values())
    scale = sum(float((1.0 + data.x.double().square().sum(1)).sum()) for data in train.values()) / count
    start, losses, accuracies, errors = None, [], [], []
    ordered = tuple(sorted((float(f"{scale * value:.1g}") for value in grid), reverse=True))
    for l2 in ordered:
        # a score within 1 of the optimum's is near enough to compare losses a factor of ten in l2 apart
        found = minimise_softmax(
            train,
            classes,
            l2=l2,
            tolerance=l2 / reach,
            start=start,
            curvature=curvature,
            passes=passes,
            effort=effort,
        )
        start = found.head
        scores = torch.addmm(start[:, -1].double(), x, start[:, :-1].double().t())
        each = torch.nn.functional.cross_entropy(scores, y, reduction="none")
        losses.append(float(each.mean()))
        errors.append(float(each.std()) / math.sqrt(len(y)) if len(y) > 1 else 0.0)
        accuracies.append(float((scores.argmax(1) == y).double().mean()))
    best = int(np.argmin(losses))
    chosen = next(l2 for l2, loss in zip(ordered, losses, strict=True) if loss <= losses[best] + errors[best])
    return Validation(chosen, ordered, tuple(losses), tuple(accuracies))

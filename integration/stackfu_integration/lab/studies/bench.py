"""One federation with a convex head: its game with constants from pilots, and the losses of any participation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from stackfu.calibration import Calibration, pilot_profiles
from stackfu.errors import StackfuWarning
from stackfu.game import StackelbergGame
from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.data import dirichlet_partition
from stackfu_integration.lab.data.datasets import Dataset
from stackfu_integration.lab.federation import (
    Effort,
    LabFederation,
    Trained,
    build_federation,
    train_federation,
)
from stackfu_integration.lab.measures import evaluate, pooled_losses
from stackfu_integration.lab.measures.performance import Performance
from stackfu_integration.lab.models import write_weights
from stackfu_integration.lab.payments import build_game
from stackfu_integration.lab.pilots import PILOT_SEED, Pilots, calibrated_game, run_pilots
from stackfu_integration.lab.runs.source import Source
from stackfu_integration.lab.runtime import single_thread
from stackfu_integration.lab.unlearning import ConvexHead, choose_l2
from stackfu_integration.lab.unlearning.participation import with_features

__all__ = ["Bench", "Measured", "halves", "one_thread"]

_SEED = 1000  # training draws from other streams than the partition


@dataclass(frozen=True)
class Measured:
    """One trained head: losses and accuracies of all clients, own test samples and pooled ones."""

    losses: FloatArray
    pooled: FloatArray
    accuracies: FloatArray
    sizes: FloatArray

    def mean(self, values: FloatArray, clients: Sequence[int]) -> float:
        """Average over clients, weighted by data size."""
        chosen = list(clients)
        return float(np.average(values[chosen], weights=self.sizes[chosen]))


class Bench:
    """A federation of a preset's data, drawn by ``seed``; ``removed`` clients leave.

    ``half`` of 0 or 1 uses a random half of the training and test pools, disjoint from the other.
    """

    def __init__(
        self,
        source: Source,
        beta: float,
        seed: int,
        clients: int = 10,
        removed: Sequence[int] = (0, 1, 2),
        half: int | None = None,
        removed_share: tuple[float, float] = (0.1, 0.6),
    ) -> None:
        self.source, self.preset = source, source.preset
        self.seed, self.removed = seed, tuple(removed)
        train, test = halves(source.dataset, half)
        pools = source.pools[0][train], source.pools[1][test]
        labels = source.dataset.train.y[train], source.dataset.test.y[test]
        partition = dirichlet_partition(
            *labels,
            beta=beta,
            seed=seed,
            clients=clients,
            min_train=self.preset.min_train,
            min_test=self.preset.min_test,
            removed=self.removed,
            removed_share=removed_share,
        )
        self.federation: LabFederation = build_federation(
            partition,
            (pools[0], labels[0]),
            (pools[1], labels[1]),
            source.backbone,
            source.dataset.classes,
            device=source.device,
        )
        self.remaining = self.federation.remaining(self.removed)

    @cached_property
    def trained(self) -> Trained:
        """The federation with its first weights: heads start from zero, so that no round of training is needed."""
        return train_federation(self.federation, self.preset.training, 0, self.seed)

    @cached_property
    def l2(self) -> float:
        """Weight of the penalty, chosen on held-out samples of the remaining clients."""
        model = self.federation.model(self.seed)
        write_weights(model, self.trained.initial)
        cohort = with_features(
            model, self.federation.cohort(self.remaining), self.federation.device, Effort()
        )
        return choose_l2(cohort, self.source.dataset.classes, self.seed, passes=self.preset.passes).l2

    @cached_property
    def head(self) -> ConvexHead:
        """The learner."""
        return ConvexHead(
            l2=self.l2, curvature="kronecker", score_gap=self.preset.score_gap, passes=self.preset.passes
        )

    def game(self, cost_scale: float = 10.0, costs: FloatArray | None = None) -> StackelbergGame:
        """Return the calibrated labels game; costs in proportion to size, or given for the remaining clients."""
        game = self._calibrated[0]
        sizes = np.asarray(game.all_sizes, dtype=np.float64)
        remaining = np.asarray(game.remaining)
        paid = cost_scale * sizes[remaining] / sizes.sum() if costs is None else costs
        return game.replace(costs=paid)

    @property
    def calibration(self) -> Calibration:
        """Constants that the pilots fit, and how sure they are."""
        return self._calibrated[1]

    @cached_property
    def _calibrated(self) -> tuple[StackelbergGame, Calibration]:
        return calibrated_game(self._bare, self.pilots, "pooled")

    @cached_property
    def _bare(self) -> StackelbergGame:
        labels = [client.train.y.numpy() for client in self.federation.clients]
        return build_game(labels, self.removed, labels=labels, view="labels", loss_constant=1.0)

    @cached_property
    def before(self) -> Tensor:
        """The head trained on the data of all clients, removed ones included."""
        return self.head.before(self.trained, self.removed, self.seed)

    @cached_property
    def original(self) -> Measured:
        """Performance of that head."""
        return self._measured(self.before)

    @cached_property
    def pilots(self) -> Pilots:
        """Pilot trainings, and every remaining client alone."""
        seed = self.seed + PILOT_SEED
        profiles = np.asarray(pilot_profiles(self._bare, self.preset.pilots, seed))
        return run_pilots(self.trained, self.removed, self.head, self.before, profiles, seed)

    def train(self, shares: dict[int, float], removed: Sequence[int] | None = None) -> Measured:
        """Train the head with shares of the remaining clients' data, and measure it on all clients."""
        gone = self.removed if removed is None else tuple(removed)
        outcome = replace(self.head, shares=shares).unlearn(self.trained, gone, self.seed + _SEED)
        return self._measured(outcome.weights)

    def _measured(self, weights: Tensor) -> Measured:
        found: Performance = evaluate(self.federation, weights)
        return Measured(found.losses, pooled_losses(self.federation, found), found.accuracies, found.sizes)

    def effects(self, found: Measured) -> dict[str, float]:
        """Return V + S and the worst Q in loss, and S in points of accuracy.

        V is relative to the head trained on all remaining data in the same way, S and Q to the head trained on all data.
        """
        everyone = range(len(found.losses))
        reference, original = self.reference, self.original
        v = found.mean(found.losses, self.remaining) - reference.mean(reference.losses, self.remaining)
        s = found.mean(found.losses, everyone) - original.mean(original.losses, everyone)
        points = 100 * (found.mean(found.accuracies, everyone) - original.mean(original.accuracies, everyone))
        kept = list(self.remaining)
        return {
            "vs": v + s,
            "s_points": points,
            "worst_q": float((found.losses - original.losses)[kept].max()),
        }

    @cached_property
    def reference(self) -> Measured:
        """The head of the remaining clients with all of their data."""
        return self.train(dict.fromkeys(self.remaining, 1.0))


def halves(data: Dataset, half: int | None) -> tuple[Any, Any]:
    """Return the rows of a half of the training and test pools; the two halves share no row, and None is all.

    Every class is divided by its own random order.
    """

    def rows(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if half is None:
            return np.arange(len(y))
        rng = np.random.default_rng(0)
        parts = [rng.permutation(np.flatnonzero(y == label))[half::2] for label in np.unique(y)]
        return np.sort(np.concatenate(parts))

    return rows(data.train.y), rows(data.test.y)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, as heads are too small to gain from more, and no warnings of units and few samples."""
    with warnings.catch_warnings(), single_thread():
        warnings.simplefilter("ignore", StackfuWarning)
        yield

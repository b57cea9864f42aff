"""Inputs of a run's cells: partition, trainings, the retrained model, references of attacks."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

import stackfu as sf
from stackfu.errors import FileFormatError
from stackfu_integration.lab.data import Partition, dirichlet_partition
from stackfu_integration.lab.data.partition import clusters, renamed
from stackfu_integration.lab.federation import (
    Effort,
    LabelledTensors,
    LabFederation,
    Observer,
    Trained,
    UpdateHistory,
    build_federation,
    train_federation,
)
from stackfu_integration.lab.measures import LikelihoodRatioAttack, evaluate
from stackfu_integration.lab.measures.performance import Performance
from stackfu_integration.lab.models import write_weights
from stackfu_integration.lab.runs.source import Source, run_name
from stackfu_integration.lab.unlearning import ConvexHead, DistilledSets, Retrain, choose_l2
from stackfu_integration.lab.unlearning.participation import with_features
from stackfu_integration.storage import write_checkpoint, write_json

__all__ = ["UNLEARNING_SEED", "Materials"]


UNLEARNING_SEED = 1000  # unlearning draws from other streams than training
_REPEATS = 4  # of a marked sample in a removed client's data: whoever plants a backdoor makes it strong
_CANARY_SHARE = 0.1  # of a removed client's samples, which get a wrong label
_REFERENCE_SEED = 2000


class Materials:
    """Inputs of one run's cells, each computed when first needed and kept with the run."""

    def __init__(self, source: Source, beta: float, seed: int) -> None:
        self.source, self.beta, self.seed = source, beta, seed
        self.preset, self.settings, self.reporter = source.preset, source.settings, source.reporter
        self.removed = self.settings.removed
        self.folder = source.out / run_name(self.preset.name, beta, seed)
        self.identity = self._identity()
        self.scratch = source.cache / "checkpoints" / self.identity
        self._refuse_other_run()

    def _refuse_other_run(self) -> None:
        path = self.folder / "run.json"
        if path.is_file() and json.loads(path.read_text()).get("identity") != self.identity:
            raise FileFormatError(
                f"{self.folder}: holds a run with other settings or data; choose another folder"
            )

    def _identity(self) -> str:
        content = {
            "dataset": self.source.dataset.digest,
            "backbone": self.source.backbone.fingerprint,
            "preset": asdict(self.preset),
            "settings": asdict(self.settings),
            "beta": self.beta,
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]

    @cached_property
    def partition(self) -> Partition:
        """Assignment of samples to clients; drawn once and kept in the run's folder."""
        path = self.folder / "partition.json"
        if path.is_file():
            return Partition.load(path)
        data, s = self.source.dataset, self.settings
        groups = data.train.y, data.test.y
        if self.preset.scheme == "covariate":
            groups = clusters(*self.source.pools, data.classes)
        partition = dirichlet_partition(
            *groups,
            by_classes=self.preset.scheme == "classes",
            beta=self.beta,
            seed=self.seed,
            clients=s.clients,
            min_train=self.preset.min_train,
            min_test=self.preset.min_test,
            removed=s.removed,
            removed_share=s.removed_share,
            dataset_digest=data.digest,
        )
        partition.save(path)
        return partition

    def labels(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the labels of the training and of the test data as the clients see them."""
        data = self.source.dataset
        y_train, y_test = data.train.y, data.test.y
        if self.preset.scheme == "concept":  # every second client calls things by other names
            y_train, y_test = y_train.copy(), y_test.copy()
            for client in self.partition.clients[1::2]:
                y_train[client.train] = renamed(y_train[client.train], data.classes)
                y_test[client.test] = renamed(y_test[client.test], data.classes)
        return y_train, y_test

    def _federation(self, poisoned: dict[int, LabelledTensors] | None = None) -> LabFederation:
        data, (x_train, x_test) = self.source.dataset, self.source.pools
        y_train, y_test = self.labels()
        return build_federation(
            self.partition,
            (x_train, y_train),
            (x_test, y_test),
            self.source.backbone,
            data.classes,
            device=self.source.device,
            poisoned=poisoned,
        )

    @cached_property
    def _poison(self) -> dict[int, LabelledTensors]:
        """Removed clients' data, with marked samples and canaries in place of some of the originals.

        A canary is a sample with a wrong label: a model that predicts that label has memorised it.
        """
        pool, labels = self.source.pools[0], self.source.dataset.train.y
        poisoned = {}
        for client, marked in zip(self.removed, self.source.marked, strict=True):
            held = self.partition.clients[client].train
            x, y = pool[held].copy(), labels[held].copy()
            for row, index in enumerate(held):
                if int(index) in marked.where:
                    x[row], y[row] = marked.train[marked.where[int(index)]], marked.target
            rows, wrong = self.canaries(client)
            y[rows] = wrong
            carriers = np.array(
                [row for row, index in enumerate(held) if int(index) in marked.where], dtype=int
            )
            again = np.concatenate([np.arange(len(held)), np.repeat(carriers, _REPEATS - 1)])
            x, y = x[again], y[again]
            poisoned[client] = LabelledTensors(torch.from_numpy(x), torch.from_numpy(y))
        return poisoned

    def canaries(self, client: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Rows of a removed client's data that carry no mark, and the wrong labels that they get."""
        marked = self.source.marked[self.removed.index(client)]
        held = self.partition.clients[client].train
        plain = np.array([row for row, index in enumerate(held) if int(index) not in marked.where])
        rng = np.random.default_rng([self.seed, client, 61])
        rows = np.sort(
            rng.choice(plain, min(len(plain), max(2, round(_CANARY_SHARE * len(held)))), replace=False)
        )
        return rows, self.wrong_labels(self.source.dataset.train.y[held][rows], rng)

    def wrong_labels(self, labels: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """For each label another one."""
        classes = self.source.dataset.classes
        return (labels + rng.integers(1, classes, len(labels))) % classes

    def _train(self, federation: LabFederation, name: str) -> Trained:
        p = self.preset
        observers: dict[str, Observer] = {}
        if p.history:
            observers["history"] = UpdateHistory()
        if p.distil_interval:
            observers["distilled"] = DistilledSets(
                self.seed, interval=p.distil_interval, batch=p.distil_batch
            )
        self.reporter.begin(f"{self.folder.name}: training ({name})", p.rounds)
        return train_federation(
            federation,
            p.training,
            p.rounds,
            self.seed,
            observers=observers,
            checkpoint=self.scratch / f"{name}.pt",
            identity=self.identity,
            after_round=lambda number: self.reporter.advance(number + 1),
        )

    @cached_property
    def trained(self) -> Trained:
        """The trained federation of all clients."""
        return self._train(self._federation(), "clean")

    @cached_property
    def infected(self) -> Trained:
        """The same with what removed clients planted."""
        return self._train(self._federation(self._poison), "backdoor")

    @cached_property
    def original(self) -> Performance:
        """Performance of the trained model before the removal."""
        return evaluate(self.trained.federation, self.trained.final)

    @cached_property
    def retrained(self) -> tuple[Tensor, dict[str, Any]]:
        """Weights of the retrained model and their cost; kept with the checkpoint."""
        path = self.scratch / "retrain.pt"
        if path.is_file():
            stored = torch.load(path, weights_only=True)
            return stored["weights"], stored["cost"]
        outcome = Retrain().unlearn(self.trained, self.removed, self.seed + UNLEARNING_SEED)
        write_checkpoint(path, {"weights": outcome.weights, "cost": outcome.cost})
        return outcome.weights, outcome.cost

    @cached_property
    def reference(self) -> Performance:
        """Performance of the retrained model."""
        return evaluate(self.trained.federation, self.retrained[0])

    @cached_property
    def attack(self) -> LikelihoodRatioAttack | None:
        """The membership attack's references; trained once and kept with the checkpoint."""
        if not self.preset.references:
            return None
        path = self.scratch / "attack.pt"
        if path.is_file():
            return LikelihoodRatioAttack(**torch.load(path, weights_only=True))
        reporter = self.reporter
        reporter.begin(f"{self.folder.name}: references", self.preset.references)
        made = LikelihoodRatioAttack.prepare(
            self.trained, self.removed, self.preset.references, self.seed + _REFERENCE_SEED, reporter.advance
        )
        write_checkpoint(path, made.state())
        return made

    @cached_property
    def validation(self) -> dict[str, Any]:
        """The weight of the convex heads' penalty, chosen on held-out samples of the remaining clients."""
        path = self.folder / "validation.json"
        if path.is_file():
            stored: dict[str, Any] = json.loads(path.read_text())
            return stored
        if self.preset.l2 is not None:
            return {"l2": self.preset.l2}
        federation, effort = self.trained.federation, Effort()
        model = federation.model(self.trained.seed)
        write_weights(model, self.trained.initial)
        cohort = with_features(
            model, federation.cohort(federation.remaining(self.removed)), federation.device, effort
        )
        start = time.process_time()
        chosen = choose_l2(
            cohort,
            self.source.dataset.classes,
            self.seed,
            passes=self.preset.passes,
            effort=effort,
        )
        found = {
            **asdict(chosen),
            "price": chosen.price,
            "samples": effort.samples,
            "cpu_seconds": time.process_time() - start,
        }
        write_json(path, found)
        return found

    def convex_head(self, **changes: Any) -> ConvexHead:
        """Heads that are optimal for a convex loss, as the preset asks for them."""
        p = self.preset
        # a few cheap steps come close; only the last digits of an optimum are worth a Hessian
        curvature = p.curvature if changes.get("passes") is None else "kronecker"
        return ConvexHead(l2=self.validation["l2"], curvature=curvature, score_gap=p.score_gap, **changes)

    def describe(self) -> None:
        """Write down what this run is."""
        data, p = self.source.dataset, self.preset
        write_json(
            self.folder / "run.json",
            {
                "identity": self.identity,
                "preset": p.name,
                "beta": self.beta,
                "seed": self.seed,
                "dataset": data.name,
                "origin": data.origin,
                "classes": data.classes,
                "dataset_digest": data.digest,
                "backbone": self.source.backbone.name,
                "training": {**asdict(p.training), "rounds": p.rounds},
                "removed": list(self.removed),
                "partition_digest": self.partition.digest,
                "partition_repaired": self.partition.repaired,
                "sizes": self.partition.sizes.tolist(),
                "extraction_seconds": self.source.extraction_seconds,
                "settings": asdict(self.settings),
                "versions": {"stackfu": sf.__version__, "torch": torch.__version__, "numpy": np.__version__},
            },
        )

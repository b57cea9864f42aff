"""The lab's clients as participants of a Flower federation: same data, model and seeds as in process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from torch.nn import functional

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.client import Participant
from stackfu_integration.flower.policy import Policy
from stackfu_integration.flower.removal_tasks import (
    distil,
    only_train,
    part_with,
    summed_curvature,
    summed_gradient,
)
from stackfu_integration.flower.wire import PartingOrder
from stackfu_integration.flower.wire.records import setting
from stackfu_integration.lab.data import dirichlet_partition, load_dataset
from stackfu_integration.lab.federation import (
    Client,
    LabFederation,
    LocalTraining,
    build_federation,
    client_seed,
    local_train,
)
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.models import Classifier, Identity
from stackfu_integration.lab.unlearning.participation import SHARE_STREAM
from stackfu_integration.ranks import separation

__all__ = [
    "TRAINING",
    "LabParticipant",
    "initial_arrays",
    "load_federation",
    "read_arrays",
    "write_arrays",
]

TRAINING = LocalTraining(epochs=2.0, batch=32, learning_rate=0.5)  # unless the run config says otherwise


@lru_cache(maxsize=4)
def _federation(
    dataset: str, clients: int, beta: float, seed: int, min_train: int, min_test: int
) -> LabFederation:
    data = load_dataset(dataset)
    partition = dirichlet_partition(
        data.train.y,
        data.test.y,
        beta=beta,
        seed=seed,
        clients=clients,
        min_train=min_train,
        min_test=min_test,
        dataset_digest=data.digest,
    )
    backbone = Identity(int(np.prod(data.train.x.shape[1:])))
    device = torch.device("cpu")
    train, test = backbone.prefix(data.train.x, device), backbone.prefix(data.test.x, device)
    return build_federation(partition, (train, data.train.y), (test, data.test.y), backbone, data.classes)


def load_federation(run_config: Mapping[str, Any]) -> LabFederation:
    """Return the federation that a run config describes, the same on every machine."""
    return _federation(
        str(run_config.get("dataset", "digits")),
        int(run_config.get("clients", 10)),
        float(run_config.get("beta", 0.5)),
        int(run_config.get("seed", 0)),
        int(run_config.get("min-train", 12)),
        int(run_config.get("min-test", 5)),
    )


def read_arrays(model: torch.nn.Module) -> ArrayRecord:
    """Return a model's state as Flower's record."""
    state = model.state_dict()
    return ArrayRecord(
        OrderedDict((name, Array(value.detach().cpu().numpy().copy())) for name, value in state.items())
    )


def write_arrays(model: torch.nn.Module, arrays: ArrayRecord) -> None:
    """Set a model's state."""
    model.load_state_dict({name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()})


def initial_arrays(run_config: Mapping[str, Any]) -> ArrayRecord:
    """Return the first model of a run."""
    return read_arrays(load_federation(run_config).model(int(run_config.get("seed", 0))))


class LabParticipant(Participant):
    """One client of a lab federation; its data is loaded when a message needs it."""

    def __init__(
        self,
        federation: Callable[[], LabFederation],
        number: int,
        settings: LocalTraining,
        folder: Path | None = None,
        policy: Policy | None = None,
    ) -> None:
        torch.set_num_threads(1)  # the models are small, and sums keep their order
        self._load, self._number, self.settings = federation, number, settings
        self.folder, self.policy = folder, policy

    @cached_property
    def federation(self) -> LabFederation:
        """All clients; this one looks at its own data only."""
        return self._load()

    @property
    def _data(self) -> Client:
        return self.federation.clients[self._number]

    @classmethod
    def from_context(cls, context: Context) -> LabParticipant:
        """Build the participant of a node: its number is ``partition-id``, its records are in ``client-folder``.

        What concerns the client's own safety comes from the node's config, which is the client's, and never from the
        run's, which is the server's.
        """
        run = context.run_config
        settings = LocalTraining(
            epochs=float(run.get("local-epochs", TRAINING.epochs)),
            batch=int(run.get("batch-size", TRAINING.batch)),
            learning_rate=float(run.get("learning-rate", TRAINING.learning_rate)),
        )
        number, folder = int(context.node_config["partition-id"]), context.node_config.get("client-folder")
        open_policy = Policy.open() if context.node_config.get("policy") == "open" else None
        return cls(
            lambda: load_federation(run), number, settings, Path(str(folder)) if folder else None, open_policy
        )

    @property
    def client(self) -> int:
        """The partition's number."""
        return self._number

    @property
    def size(self) -> int:
        """Training samples."""
        return len(self._data.train)

    def _model(self, arrays: ArrayRecord) -> Classifier:
        model = self.federation.model(0)
        write_arrays(model, arrays)
        return model

    def _shared(self, share: float, config: ConfigRecord) -> LabelledTensors:
        """Return the share of the data that the seed draws."""
        seed = client_seed(setting(config, "seed", int), self.client, 0, SHARE_STREAM)
        return self._data.train.share(share, seed)

    def samples(self, arrays: ArrayRecord) -> FloatArray:
        """Return penultimate features of the training data."""
        model = self._model(arrays)
        with torch.no_grad():
            parts = [model.features(x).float() for x in self._data.train.x.split(512)]
        return np.asarray(torch.cat(parts).numpy(), dtype=np.float64)

    def train(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[ArrayRecord, int]:
        """Train one round on the share that the seed draws."""
        seed, number = setting(config, "seed", int), setting(config, "server-round", int) - 1
        data = self._shared(share, config)
        distil(self._model(arrays), self._data.train, self.client, config, self.folder, self.policy)
        model, settings = self._model(arrays), self.settings
        if "learning-rate" in config:
            settings = replace(settings, learning_rate=setting(config, "learning-rate", float))
        only_train(model, config)
        local_train(model, data, client_seed(seed, self.client, number), settings)
        return read_arrays(model), len(data)

    def part(self, order: PartingOrder) -> tuple[ArrayRecord, int]:
        """Work for the method that makes the model forget this client, as the lab's clients do."""
        model = self._model(order.model)
        aside = None if order.aside is None else self._model(order.aside)
        used = part_with(order, model, aside, self._data.train, self.settings, self.client, self.folder)
        return read_arrays(model), used

    def gradient(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the summed gradient over the share that :meth:`train` draws."""
        data = self._shared(share, config)
        return summed_gradient(self._model(arrays), data, arrays, config), len(data)

    def curvature(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the summed Hessian of the head over the same share."""
        data = self._shared(share, config)
        return summed_curvature(self._model(arrays), data, arrays, config), len(data)

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return loss and accuracy on unseen data, and the success of a confidence attack on membership."""
        model = self._model(arrays)
        confidences = []
        with torch.no_grad():
            for data in (self._data.train, self._data.test):
                scores = model(data.x).double()
                confidences.append(scores.softmax(1).gather(1, data.y[:, None]).flatten())
            test = self._data.test
            loss = float(functional.cross_entropy(scores, test.y))
            accuracy = float((scores.argmax(1) == test.y).double().mean())
        return {"loss": loss, "accuracy": accuracy, "membership-auc": separation(*confidences)}

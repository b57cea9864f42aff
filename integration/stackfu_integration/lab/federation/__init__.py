"""Clients with data, local training, FedAvg in a fixed order, and what is kept along the way."""

from stackfu_integration.lab.federation.averaging import Observer, aggregate, fedavg
from stackfu_integration.lab.federation.clients import (
    Client,
    LabelledTensors,
    LabFederation,
    build_federation,
)
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import LocalTraining, client_seed, local_train
from stackfu_integration.lab.federation.trained import Trained, UpdateHistory, train_federation

__all__ = [
    "Client",
    "Effort",
    "LabFederation",
    "LabelledTensors",
    "LocalTraining",
    "Observer",
    "Trained",
    "UpdateHistory",
    "aggregate",
    "build_federation",
    "client_seed",
    "fedavg",
    "local_train",
    "train_federation",
]

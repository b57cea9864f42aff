"""The mechanism for a PyTorch model of one's own: a model, the client's data, and nothing else to write.

    class MyClient(TorchParticipant):
        def model(self): return MyNetwork()
        def data(self): return train_x, train_y, test_x, test_y

:func:`client_app` answers Flower's ordinary training too. Every random number comes from the seed that the order
carries, so that a round can be repeated to the last bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn import functional

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.client import Participant, add_mechanism, training_app
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
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.local import LocalTraining

__all__ = ["TorchParticipant", "client_app", "model_arrays"]


def model_arrays(model: nn.Module) -> ArrayRecord:
    """Return a model's state, buffers and counters included, as Flower's record."""
    state = model.state_dict()
    return ArrayRecord(
        OrderedDict((name, Array(np.asarray(t.detach().cpu().numpy()).copy())) for name, t in state.items())
    )


class TorchParticipant(Participant):
    """A client with a PyTorch classifier.

    The number is ``partition-id`` of the node's config, the records are in its ``client-folder``. What represents the data
    are the inputs of the model's last linear layer.
    """

    epochs, batch, learning_rate = 1, 32, 0.05

    def __init__(self, context: Context) -> None:
        torch.set_num_threads(1)
        self.context = context
        self._number = int(context.node_config["partition-id"])
        folder = context.node_config.get("client-folder")
        self.folder = Path(str(folder)) if folder else None
        if context.node_config.get("policy") == "open":  # the client's own word, as simulations say it
            self.policy = Policy.open()
        self._loaded: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a new model; its weights are replaced by the server's."""

    @abstractmethod
    def data(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return training inputs and labels, and test inputs and labels."""

    @property
    def client(self) -> int:
        """The partition's number."""
        return self._number

    @property
    def _data(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self._loaded is None:
            self._loaded = self.data()
        return self._loaded

    @property
    def size(self) -> int:
        """Training samples."""
        return len(self._data[0])

    def _with(self, arrays: ArrayRecord) -> nn.Module:
        model = self.model()
        model.load_state_dict({name: torch.from_numpy(np.array(a.numpy())) for name, a in arrays.items()})
        return model

    def samples(self, arrays: ArrayRecord) -> FloatArray:
        """Return what the last linear layer sees of the training data."""
        model = self._with(arrays).eval()
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        seen: list[Tensor] = []
        hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].flatten(1)))
        with torch.no_grad():
            for part in self._data[0].split(256):
                model(part)
        hook.remove()
        return np.asarray(torch.cat(seen).double().numpy())

    def _chosen(self, share: float, config: ConfigRecord) -> tuple[Tensor, Tensor]:
        """Return the samples of a share: as many as were agreed, the same ones in every round."""
        used = setting(config, "samples", int) if "samples" in config else max(1, round(share * self.size))
        generator = torch.Generator().manual_seed(setting(config, "seed", int))
        chosen = torch.randperm(self.size, generator=generator)[:used]
        return self._data[0][chosen], self._data[1][chosen]

    def gradient(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the summed gradient over the samples that :meth:`train` uses."""
        data = LabelledTensors(*self._chosen(share, config))
        return summed_gradient(self._with(arrays), data, arrays, config), len(data)

    def curvature(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the summed Hessian of the last layer over the same samples."""
        data = LabelledTensors(*self._chosen(share, config))
        return summed_curvature(self._with(arrays), data, arrays, config), len(data)

    def train(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[ArrayRecord, int]:
        """Train on as many samples as were agreed, the same ones in every round."""
        seed, number = setting(config, "seed", int), setting(config, "server-round", int)
        x, y = self._chosen(share, config)
        used = len(x)
        distil(
            self._with(arrays),
            LabelledTensors(*self._data[:2]),
            self.client,
            config,
            self.folder,
            self.policy,
        )
        torch.manual_seed(1000 * seed + number)  # dropout
        model, rate = self._with(arrays).train(), self.learning_rate
        if "learning-rate" in config:
            rate = setting(config, "learning-rate", float)
        trained = only_train(model, config)
        optimiser = torch.optim.SGD(trained, lr=rate)
        order = torch.Generator().manual_seed(1000 * seed + number)
        for _ in range(self.epochs):
            for rows in torch.randperm(used, generator=order).split(self.batch):
                if len(rows) > 1 or used == 1:  # batch normalisation cannot learn from one sample
                    optimiser.zero_grad()
                    functional.cross_entropy(model(x[rows]), y[rows]).backward()
                    optimiser.step()
        return model_arrays(model), used

    def part(self, order: PartingOrder) -> tuple[ArrayRecord, int]:
        """Work for the method that makes the model forget this client; batch normalisation stays as it is."""
        model = self._with(order.model).eval()
        aside = None if order.aside is None else self._with(order.aside).eval()
        training = LocalTraining(float(self.epochs), self.batch, self.learning_rate)
        data = LabelledTensors(*self._data[:2])
        used = part_with(order, model, aside, data, training, self.client, self.folder)
        return model_arrays(model), used

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return loss and accuracy on the client's test data."""
        model = self._with(arrays).eval()
        with torch.no_grad():
            scores = model(self._data[2]).double()
        right = (scores.argmax(1) == self._data[3]).double().mean()
        return {"loss": float(functional.cross_entropy(scores, self._data[3])), "accuracy": float(right)}


def client_app(load: Callable[[Context], TorchParticipant]) -> ClientApp:
    """Return a client app: ordinary training, and the mechanism."""
    return add_mechanism(training_app(load), load)

"""A client as the mechanism sees it, and one round of its work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord

from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.convex import CURVATURE, METHOD, NEWTON, curved, descended
from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.policy import Policy
from stackfu_integration.flower.wire import PartingOrder, setting

__all__ = ["Participant", "round_of"]


class Participant(ABC):
    """A client as the mechanism sees it; built from the node's context for every message.

    ``folder`` is where the client keeps its records: policy, key, state and receipts. Without one nothing is signed and
    nothing outlives the run. ``policy`` replaces the policy of the folder. ``cost`` is what full participation costs the
    client by its own reckoning; an offer that quotes another cost is refused. ``noise_key`` is a secret from which noise
    is drawn, by default one made of the client's key: with it, a repeated question gets the same noise.
    """

    folder: Path | None = None
    policy: Policy | None = None
    cost: float | None = None
    noise_key: bytes | None = None

    @property
    @abstractmethod
    def client(self) -> int:
        """The client's number, from 0."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of training samples."""

    @abstractmethod
    def samples(self, arrays: ArrayRecord) -> FloatArray:
        """Return the (n, d) points that represent the data, e.g. the model's penultimate features."""

    @abstractmethod
    def train(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[ArrayRecord, int]:
        """Train one round on a share of the data; return the model and the number of samples used.

        ``config`` holds ``server-round`` (from 1), ``seed``, and in unlearning ``request`` and ``samples``: how many
        samples were agreed; one more or less is no difference. They must be the same in every round of a request, and
        everything random must come from the seed, so that the round can be repeated. Where only some arrays may change, ``only``
        names them, with commas; MoDe states a ``learning-rate``.
        """

    def part(self, order: PartingOrder) -> tuple[ArrayRecord, int]:
        """Work for the method that makes the model forget this client, before it goes; return a model and the samples used.

        Asked only if the client's policy says that it does. :mod:`.removal_tasks` does it for models of PyTorch.
        """
        raise InputError("method", "this client's app knows no work for those who leave", value=order.method)

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return measures of a model on the client's own data, e.g. loss, accuracy, membership attack."""
        return {}

    def gradient(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the gradient of the sum of losses over the samples that :meth:`train` would use, and their number.

        Only softmax heads need it, for the bound that ``certify_l2`` asks for and for rounds of convex heads; entries follow the
        model's arrays, of which ``only`` in ``config`` names those that are wanted where not all are. All layers behave as in use.
        """
        raise InputError("gradient", "this client computes none")

    def curvature(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[FloatArray, int]:
        """Return the Hessian of the loss behind :meth:`gradient`, a square matrix, and the number of samples.

        Only removal by Newton steps needs it.
        """
        raise InputError("curvature", "this client computes none")

    def decide(self, offer: Offer) -> float:
        """Return the share of its data that the client takes part with: its own choice."""
        return offer.best_response()

    def paid(self, amount: float, config: ConfigRecord) -> None:
        """Take note of a payment; the same request may be told twice, and is paid once."""
        _ = amount, config


def round_of(
    participant: Participant, arrays: ArrayRecord, share: float, config: ConfigRecord
) -> tuple[ArrayRecord, int]:
    """Return one round of unlearning: a client trains, or for convex heads makes a step along its gradient.

    For Newton's method it adds its second derivatives.
    """
    if config.get("method") not in (METHOD, NEWTON):
        return participant.train(arrays, share, config)
    names = setting(config, "only", str).split(",")
    model = ArrayRecord(OrderedDict((name, array) for name, array in arrays.items() if name != CURVATURE))
    vector, used = participant.gradient(model, share, config)
    answer = descended(arrays, names, vector, used)
    if config.get("method") == NEWTON:
        hessian, counted = participant.curvature(model, share, config)
        if counted != used:
            raise InputError("curvature", f"is that of {counted} samples, the gradient that of {used}")
        answer = curved(answer, names, hessian, used)
    return answer, used

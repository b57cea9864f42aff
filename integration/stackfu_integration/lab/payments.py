"""The game of a trained federation, what a mechanism pays in it, and who then takes part with how much.

Every mechanism has the same budget, and the clients answer with the equilibrium of what is offered in the view that the
mechanism plays in. Full participation is the exception that the others are held against: it costs what it costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stackfu.embedding import MeanEmbeddings
from stackfu.errors import InputError
from stackfu.game import StackelbergGame
from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.federation.clients import LabFederation
from stackfu_integration.lab.mechanisms import BUDGETED, PAPER_VIEW, View
from stackfu_integration.lab.mechanisms import mechanism as mechanism_by_name
from stackfu_integration.lab.models.classifier import write_weights
from stackfu_integration.summary import solution_summary

__all__ = ["PaymentPlan", "build_game", "penultimate_features", "plan_payments", "warm_up"]


@dataclass(frozen=True)
class PaymentPlan:
    """Payments and the participation they lead to; arrays follow ``game.remaining``.

    ``objective`` is what the mechanism minimised: the server loss, with the finite-sample term where asked
    for. ``impacts`` are the predicted ``u_i = lambda_q C d_i^2``, ``changes`` the predicted changes ``Q_i``. ``caps``
    are the most that is taken, 1 where the offer is linear.
    """

    mechanism: str
    budget: float
    payments: FloatArray
    participation: FloatArray
    spend: float
    server_loss: float
    objective: float
    lower_bound: float | None
    impacts: FloatArray
    changes: FloatArray
    caps: FloatArray
    status: str
    seconds: float
    cpu_seconds: float

    def shares(self, game: StackelbergGame) -> dict[int, float]:
        """Share of data by client number."""
        return {int(client): float(x) for client, x in zip(game.remaining, self.participation, strict=True)}

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "mechanism": self.mechanism,
            "budget": self.budget,
            "payments": self.payments.tolist(),
            "participation": self.participation.tolist(),
            "spend": self.spend,
            "server_loss": self.server_loss,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "impacts": self.impacts.tolist(),
            "changes": self.changes.tolist(),
            "caps": self.caps.tolist(),
            "status": self.status,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
        }


def penultimate_features(federation: LabFederation, weights: Tensor) -> list[np.ndarray[Any, Any]]:
    """Return the penultimate features of every client's training data, computed by the clients."""
    model = federation.model(0)
    write_weights(model, weights)
    samples = []
    with torch.no_grad():
        for client in federation.clients:
            parts = [model.features(x.to(federation.device)).float().cpu() for x in client.train.x.split(512)]
            samples.append(torch.cat(parts).numpy())
    return samples


def build_game(
    samples: Sequence[np.ndarray[Any, Any]],
    removed: Sequence[int],
    *,
    labels: Sequence[np.ndarray[Any, Any]] | None = None,
    view: View = PAPER_VIEW,
    gradients: MeanEmbeddings | None = None,
    loss_constant: float = 10.0,
    cost_scale: float = 10.0,
    features: int | None = None,
) -> StackelbergGame:
    """Return the game of clients with these samples in a view: mean embeddings, and costs ``10 n_i / n_O``.

    The embedding is exact; ``features`` approximates it with that many random Fourier features instead.
    ``gradients`` are :func:`~stackfu_integration.lab.gradients.gradient_embeddings`, for the views that have them.
    """
    return StackelbergGame(
        _seen(samples, labels, view, gradients, features),
        [len(rows) for rows in samples],
        removed=tuple(removed),
        cost_scale=cost_scale,
        loss_constant=loss_constant,
    )


def _seen(
    samples: Sequence[np.ndarray[Any, Any]],
    labels: Sequence[np.ndarray[Any, Any]] | None,
    view: View,
    gradients: MeanEmbeddings | None,
    features: int | None,
) -> MeanEmbeddings:
    if view in ("labels", "joint", "labels+gradients") and labels is None:
        raise InputError("labels", f"are what the view {view!r} looks at", value=None)
    if view == "gradients" or view == "labels+gradients":
        if gradients is None:
            raise InputError("gradients", f"are what the view {view!r} looks at", value=None)
        if view == "gradients":
            return gradients
        # Half of either squared distance is the second-order term of the same loss, so that both have weight 1.
        return MeanEmbeddings.combined([_seen(samples, labels, "labels", None, None), gradients])
    sees_features, sees_labels = view != "labels", view != "features"
    return MeanEmbeddings.from_samples(
        samples if sees_features else None,
        bandwidth="median",
        features=features,
        seed=0,
        labels=labels if sees_labels else None,
        kernel="rbf" if view == "features" else view,
    )


def plan_payments(game: StackelbergGame, mechanism: str, budget: float) -> PaymentPlan:
    """Let ``mechanism`` spend at most ``budget`` and return what it pays and what the clients answer.

    ``"full"`` ignores the budget and pays the least for full participation of all clients.
    """
    chosen = mechanism_by_name(mechanism)
    start, used = time.perf_counter(), time.process_time()
    if chosen.method is None:
        participation = np.ones(game.count)
        payments, caps = np.asarray(game.payments_for(participation)), np.ones(game.count)
        found: dict[str, Any] = {
            "status": "BY_DEFINITION",
            "objective": game.server_loss(participation),
            "lower_bound": None,
        }
    else:
        solution = game.solve(budget, chosen.method, **chosen.options_in(game, budget))
        participation, payments = np.asarray(solution.participation), np.asarray(solution.payments)
        caps = np.asarray(solution.offers.caps)
        found = solution_summary(solution)
    return PaymentPlan(
        mechanism=mechanism,
        budget=float(budget),
        payments=payments,
        participation=participation,
        spend=float(payments @ participation),
        server_loss=game.server_loss(participation),
        objective=found["objective"],
        lower_bound=found["lower_bound"],
        impacts=np.asarray(game.client_impacts(participation)),
        changes=np.asarray(game.impacts(participation).clients),
        caps=caps,
        status=found["status"],
        seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time() - used,
    )


@cache
def warm_up() -> None:
    """Compile the game's kernels on a tiny game, once per process, so that no run is charged for it."""
    rng = np.random.default_rng(0)
    samples = [(rng.normal(size=(20, 3)) + i).astype(np.float32) for i in range(5)]
    paper = StackelbergGame(MeanEmbeddings.from_samples(samples, bandwidth="median"), [20] * 5, removed=(0,))
    for mechanism in BUDGETED:
        game = paper if mechanism_by_name(mechanism).view is None else paper.replace(sampling_constant=1.0)
        plan_payments(game, mechanism, 0.5 * paper.full_participation_price)

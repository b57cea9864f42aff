"""Flower's strategies, all that average models of arrays, for training and for unlearning; evaluation; their privacy wrappers."""

from __future__ import annotations

import flwr.serverapp.strategy as flowers
import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from scene import CLIENTS, REMOVED, Averager, Scene, client_app, initial

from stackfu_integration.flower import InProcessGrid, UnlearningMechanism, add_mechanism
from stackfu_integration.flower.verification import verify

ALL = {"fraction_evaluate": 0.0, "min_train_nodes": 2, "min_available_nodes": 2}
STRATEGIES = {
    "FedAvg": {},
    "FedAvgM": {"server_momentum": 0.5},
    "FedAdam": {"eta": 0.1},
    "FedAdagrad": {"eta": 0.1},
    "FedYogi": {"eta": 0.1},
    "FedMedian": {},
    "FedTrimmedAvg": {},
    "FedProx": {"proximal_mu": 0.1},
    "Krum": {"num_malicious_nodes": 1},
    "MultiKrum": {"num_malicious_nodes": 1, "num_nodes_to_select": 3},
    "Bulyan": {"num_malicious_nodes": 0},
    "QFedAvg": {"client_learning_rate": 0.1, "q": 0.0},
}
NOT_OF_ARRAYS = {"FedXgbBagging", "FedXgbCyclic"}  # trees as bytes
WRAPPERS = {name for name in flowers.__all__ if name.startswith("DifferentialPrivacy")}


def run(scene: Scene, app, training, unlearning):
    nodes = [{"partition-id": i, "client-folder": str(scene.client_folder(i))} for i in range(CLIENTS)]
    grid = InProcessGrid(app, nodes)
    mechanism = UnlearningMechanism(scene.folder, CLIENTS, scene.terms, wait=0.0, timeout=1.0)
    mechanism.train(grid, initial(), 2, strategy=training)
    facts = mechanism.remove(grid, REMOVED, strategy=unlearning)
    model = mechanism.model("r1")["mean"].numpy()
    mechanism.ledger.close()
    return facts, model


def test_every_strategy_of_flowers_is_in_a_test():
    assert set(flowers.__all__) == {*STRATEGIES, *NOT_OF_ARRAYS, *WRAPPERS, "Result", "Strategy"}


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n != "QFedAvg"])
def test_a_strategy_of_flowers_trains_and_unlearns(scene, name):
    made = [getattr(flowers, name)(**ALL, **STRATEGIES[name]) for _ in range(2)]
    facts, model = run(scene, client_app(), *made)
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert np.isfinite(model).all()
    assert np.abs(model).max() > 0
    assert model.dtype == np.float32
    assert all(c["rounds_passed"] == 3 for c in facts["clients"] if c["share"] > 0)
    assert verify(scene.folder).misfit is None


def test_a_strategy_that_weighs_by_loss_trains_an_app_that_tells_it(scene):
    """QFedAvg wants the loss in the reply: an app's own training can say it; rounds of unlearning have no place for it."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        client = Averager(context)
        arrays, used = client.train(message.content["arrays"], 1.0, message.content["config"])
        loss = client.measure(message.content["arrays"])["loss"]
        metrics = MetricRecord({"num-examples": used, "train_loss": loss})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    strategy = flowers.QFedAvg(**ALL, **STRATEGIES["QFedAvg"])
    facts, model = run(scene, add_mechanism(app, Averager), strategy, None)
    assert facts["aborted"] is None
    assert np.isfinite(model).all()
    assert verify(scene.folder).misfit is None


def test_a_strategy_evaluates_with_the_apps_own_handler(scene):
    """In training with all clients, in unlearning with the participants."""
    app, asked = client_app(), []

    @app.evaluate()
    def evaluate(message: Message, context) -> Message:
        asked.append((int(context.node_config["partition-id"]), message.content["config"]["server-round"]))
        loss = Averager(context).measure(message.content["arrays"])["loss"]
        metrics = MetricRecord({"num-examples": 1, "loss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    options = {
        "fraction_evaluate": 1.0,
        "min_train_nodes": 2,
        "min_evaluate_nodes": 2,
        "min_available_nodes": 2,
    }
    seen = []

    class Watched(FedAvg):
        def aggregate_evaluate(self, server_round, replies):
            metrics = super().aggregate_evaluate(server_round, replies)
            seen.append(metrics["loss"])
            return metrics

    facts, _ = run(scene, app, Watched(**options), Watched(**options))
    working = {c["client"] for c in facts["clients"] if c["share"] > 0}
    assert len(seen) == 2 + 3
    assert {client for client, _ in asked[: 2 * CLIENTS]} == set(range(CLIENTS))
    assert {client for client, _ in asked[2 * CLIENTS :]} == working


@pytest.mark.parametrize(
    ("wrap", "mods"),
    [
        (lambda s: DifferentialPrivacyServerSideFixedClipping(s, 0.1, 0.05, 8), []),
        (lambda s: DifferentialPrivacyServerSideAdaptiveClipping(s, 0.1, 8, initial_clipping_norm=0.05), []),
        (lambda s: DifferentialPrivacyClientSideFixedClipping(s, 0.1, 0.05, 8), [fixedclipping_mod]),
        (
            lambda s: DifferentialPrivacyClientSideAdaptiveClipping(s, 0.1, 8, initial_clipping_norm=0.05),
            [adaptiveclipping_mod],
        ),
    ],
    ids=["server, fixed", "server, adaptive", "client, fixed", "client, adaptive"],
)
def test_flowers_central_differential_privacy_with_its_modifiers(scene, wrap, mods):
    app = add_mechanism(client_app(mechanism=False), Averager, mods=mods)
    working = 6
    inner = FedAvg(**{**ALL, "min_train_nodes": working})
    facts, model = run(scene, app, None, wrap(inner))
    assert facts["aborted"] is None
    assert np.isfinite(model).all()
    assert verify(scene.folder).misfit is None

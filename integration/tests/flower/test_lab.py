"""The federation on Flower against the same federation in process: equilibrium, payments, final model.

Stated tolerances: prices, shares and payments to 1e-9 relative, model weights to 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import stackfu as sf
from stackfu_integration.flower import PaymentLedger
from stackfu_integration.flower.events import ClientCommitted, ClientPaid, ModelUnlearned, PriceOffered
from stackfu_integration.flower.lab import load_federation, write_arrays
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.simulation import APP_FOLDER, load_app, run_in_process, simulate
from stackfu_integration.lab.federation import LocalTraining, train_federation
from stackfu_integration.lab.models import read_weights
from stackfu_integration.lab.unlearning import ParticipationRetraining

REMOVED = (0,)
CONFIG = {
    "clients": 4,
    "removed": "0",
    "training_rounds": 2,
    "rounds": 2,
    "local_epochs": 1.0,
    "epsilon": "none",
    "features": 256,
    "policy": "open",
    "offers": "linear",
    "finite_sample": False,
    "wait": 600.0,  # a fresh environment on a busy machine imports torch for minutes
    "timeout": 600.0,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reference():
    """Training, game and unlearning by the lab alone: no message, no ledger, no Flower."""
    federation = load_federation({"clients": 4})
    settings = LocalTraining(epochs=1.0, batch=32, learning_rate=0.5)
    trained = train_federation(federation, settings, rounds=2, seed=0)
    samples = [client.train.x.numpy().astype(np.float64) for client in federation.clients]
    medians = [float(sf.median_bandwidth([x])) for x in samples]
    order = np.argsort(medians)
    # no client counts for more than the median client
    weights = np.minimum(federation.sizes, np.median(federation.sizes))[order]
    middle = np.searchsorted(np.cumsum(weights), weights.sum() / 2)
    embeddings = sf.MeanEmbeddings.from_samples(
        samples, bandwidth=medians[order[middle]], features=256, seed=0
    )
    game = sf.StackelbergGame(embeddings, federation.sizes, removed=REMOVED, loss_constant=10.0)
    solution = game.solve(0.5 * game.full_participation_price)
    shares = {int(c): float(x) for c, x in zip(game.remaining, solution.participation, strict=True)}
    unlearned = ParticipationRetraining(shares=shares).unlearn(trained, REMOVED, seed=0)
    return federation, solution, unlearned.weights


def agree(folder, reference) -> None:
    federation, solution, weights = reference
    with PaymentLedger(folder / "ledger.sqlite", create=False) as ledger:
        offers = [e.price for e in ledger.by_client("r1", PriceOffered).values()]
        shares = [e.share for e in ledger.by_client("r1", ClientCommitted).values()]
        paid = [e.amount for e in ledger.by_client("r1", ClientPaid).values()]
        model = ledger.need("r1", ModelUnlearned).model
        assert ledger.rows(kind="fault") == []
    assert offers == pytest.approx(solution.payments, rel=1e-6, abs=1e-9)
    assert shares == pytest.approx(solution.participation, rel=1e-6, abs=1e-9)
    assert paid == pytest.approx(solution.payments * solution.participation, rel=1e-6, abs=1e-9)
    network = federation.model(0)
    write_arrays(network, ModelStore(folder / "models").get(model))
    assert float((read_weights(network) - weights).abs().max()) <= 1e-6


def test_in_process_grid_agrees_with_the_lab(tmp_path, reference):
    run_in_process(folder=str(tmp_path), **CONFIG)
    agree(tmp_path, reference)


def test_simulation_engine_agrees_with_the_lab(tmp_path, reference):
    """Flower's simulation engine on Ray, the files of the app as they are."""
    simulate(folder=str(tmp_path), **CONFIG)
    agree(tmp_path, reference)
    assert (tmp_path / "audit-r1.md").is_file()


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="does not know"):
        load_app(APP_FOLDER, {"bugdet": 1.0})

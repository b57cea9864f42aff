"""Settings of the federation that trains in a second."""

from stackfu_integration.lab.federation import LocalTraining, UpdateHistory
from stackfu_integration.lab.unlearning import DistilledSets

REMOVED = (0, 1)
SETTINGS = LocalTraining(epochs=2, batch=16, learning_rate=0.2)
ROUNDS = 12


def observers() -> dict:
    return {"history": UpdateHistory(), "distilled": DistilledSets(seed=0, scale=0.05)}

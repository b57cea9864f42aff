"""Unlearning methods behind one interface; all start from one trained federation."""

from stackfu_integration.lab.unlearning.base import Outcome, UnlearningMethod
from stackfu_integration.lab.unlearning.federaser import FedEraser
from stackfu_integration.lab.unlearning.mode import MoDe
from stackfu_integration.lab.unlearning.participation import (
    HeadFineTuning,
    ParticipationRetraining,
    participants,
)
from stackfu_integration.lab.unlearning.quickdrop import DistilledSets, QuickDrop
from stackfu_integration.lab.unlearning.retrain import Retrain

__all__ = [
    "DistilledSets",
    "FedEraser",
    "HeadFineTuning",
    "MoDe",
    "Outcome",
    "ParticipationRetraining",
    "QuickDrop",
    "Retrain",
    "UnlearningMethod",
    "participants",
]

"""Unlearning methods behind one interface; all start from one trained federation."""

from stackfu_integration.unlearning.base import Outcome, UnlearningMethod
from stackfu_integration.unlearning.federaser import FedEraser
from stackfu_integration.unlearning.mode import MoDe
from stackfu_integration.unlearning.participation import HeadFineTuning, ParticipationRetraining, participants
from stackfu_integration.unlearning.quickdrop import DistilledSets, QuickDrop
from stackfu_integration.unlearning.retrain import Retrain

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

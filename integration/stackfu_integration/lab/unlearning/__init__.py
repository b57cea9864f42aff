"""Unlearning methods behind one interface; all start from one trained federation."""

from stackfu_integration.lab.unlearning.ascent import GradientAscent
from stackfu_integration.lab.unlearning.base import Guarantee, Outcome, UnlearningMethod
from stackfu_integration.lab.unlearning.convex import ConvexHead, Validation, choose_l2
from stackfu_integration.lab.unlearning.federaser import FedEraser
from stackfu_integration.lab.unlearning.fedosd import FedOSD
from stackfu_integration.lab.unlearning.mode import MoDe
from stackfu_integration.lab.unlearning.negation import NoT
from stackfu_integration.lab.unlearning.participation import (
    HeadFineTuning,
    ParticipationRetraining,
    participants,
)
from stackfu_integration.lab.unlearning.quickdrop import DistilledSets, QuickDrop
from stackfu_integration.lab.unlearning.recovery import FedRecovery
from stackfu_integration.lab.unlearning.retrain import Retrain
from stackfu_integration.lab.unlearning.shards import Shards
from stackfu_integration.lab.unlearning.sifu import Sifu

__all__ = [
    "ConvexHead",
    "DistilledSets",
    "FedEraser",
    "FedOSD",
    "FedRecovery",
    "GradientAscent",
    "Guarantee",
    "HeadFineTuning",
    "MoDe",
    "NoT",
    "Outcome",
    "ParticipationRetraining",
    "QuickDrop",
    "Retrain",
    "Shards",
    "Sifu",
    "UnlearningMethod",
    "Validation",
    "choose_l2",
    "participants",
]

"""Quality of an unlearned model, always compared with the retrained one."""

from stackfu_integration.lab.measures.forgetting import (
    agreement,
    backdoor_success,
    membership_auc,
    prediction_distance,
)
from stackfu_integration.lab.measures.membership import Detection, LikelihoodRatioAttack, detection
from stackfu_integration.lab.measures.performance import (
    Performance,
    SideEffects,
    evaluate,
    pooled_losses,
    side_effects,
)
from stackfu_integration.lab.measures.relearning import rounds_to_relearn

__all__ = [
    "Detection",
    "LikelihoodRatioAttack",
    "Performance",
    "SideEffects",
    "agreement",
    "backdoor_success",
    "detection",
    "evaluate",
    "membership_auc",
    "pooled_losses",
    "prediction_distance",
    "rounds_to_relearn",
    "side_effects",
]

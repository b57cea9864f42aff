"""How good an unlearned model is, always beside the retrained one."""

from stackfu_integration.lab.measures.forgetting import agreement, backdoor_success, membership_auc
from stackfu_integration.lab.measures.performance import Performance, SideEffects, evaluate, side_effects

__all__ = [
    "Performance",
    "SideEffects",
    "agreement",
    "backdoor_success",
    "evaluate",
    "membership_auc",
    "side_effects",
]

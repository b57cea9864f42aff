"""Results as plain values for ``--json``: numbers, text, lists and dicts; what is not finite becomes null."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..game import StackelbergGame
    from ..leader.frontier import Frontier
    from ..result import Equilibria, Equilibrium, Solution, Verification

__all__ = [
    "dump",
    "equilibria_record",
    "frontier_record",
    "game_record",
    "solution_record",
    "verification_record",
]


def dump(record: dict[str, Any]) -> str:
    """The record as JSON text that every parser accepts."""
    return json.dumps(plain(record), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """Values that strict JSON can hold."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def game_record(game: StackelbergGame) -> dict[str, Any]:
    """What a game is made of."""
    return {
        "clients": len(game.all_sizes),
        "removed": list(game.removed),
        "remaining": game.remaining,
        "sizes": game.sizes,
        "costs": game.costs,
        "heterogeneity": game.heterogeneity,
        "lambda_v": game.lambda_v,
        "lambda_s": game.lambda_s,
        "lambda_q": game.lambda_q,
        "loss_constant": game.loss_constant,
        "diameter": game.diameter,
        "full_participation_price": game.full_participation_price,
    }


def equilibrium_record(eq: Equilibrium) -> dict[str, Any]:
    """One equilibrium."""
    low, high = eq.game.thresholds(eq.participation)
    return {
        "participation": eq.participation,
        "total": eq.total,
        "mixture": eq.mixture,
        "utilities": eq.utilities,
        "thresholds": {"out_below": low, "full_above": high},
        "server_loss": eq.server_loss,
        "spend": eq.spend,
        "regret": eq.regret,
        "residual": eq.residual,
        "status": eq.status.name,
        "uniqueness": eq.uniqueness.name,
        "reason": eq.reason,
        "face": None
        if eq.face is None
        else {
            "clients": list(eq.face.clients),
            "lower": eq.face.lower,
            "upper": eq.face.upper,
            "dimension": eq.face.dimension,
        },
    }


def equilibria_record(found: Equilibria) -> dict[str, Any]:
    """Every equilibrium under given payments."""
    return {
        "remaining": found.game.remaining,
        "payments": found.payments,
        "uniqueness": found.uniqueness.name,
        "reason": found.reason,
        "complete": found.complete,
        "equilibria": [equilibrium_record(eq) for eq in found],
    }


def solution_record(solution: Solution) -> dict[str, Any]:
    """Payments and what they lead to."""
    return {
        "method": solution.method,
        "status": solution.status.name,
        "message": solution.message,
        "budget": solution.budget,
        "spend": solution.spend,
        "server_loss": solution.server_loss,
        "objective": solution.objective,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "shadow_price": solution.shadow_price,
        "remaining": solution.game.remaining,
        "payments": solution.payments,
        "equilibrium": equilibrium_record(solution.equilibrium),
        "options": solution.options,
        "nodes": solution.nodes,
        "seconds": solution.seconds,
    }


def frontier_record(frontier: Frontier) -> dict[str, Any]:
    """Solutions along a list of budgets."""
    return {
        "remaining": frontier.game.remaining,
        "full_participation_price": frontier.full_participation_price,
        "points": [
            {
                "budget": solution.budget,
                "spend": solution.spend,
                "server_loss": solution.server_loss,
                "lower_bound": bound,
                "total": solution.equilibrium.total,
                "status": solution.status.name,
                "payments": solution.payments,
                "participation": solution.participation,
            }
            for solution, bound in zip(frontier, frontier.lower_bounds, strict=True)
        ],
    }


def verification_record(check: Verification) -> dict[str, Any]:
    """The outcome of a check."""
    return {
        "passed": check.passed,
        "message": check.message,
        "residual": check.residual,
        "regret": check.regret,
        "tolerance": check.tolerance,
    }

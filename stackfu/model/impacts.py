"""Changes of all losses under a profile, relative to the original federation.

    Q_k(x) = C [ d_k^2(m) - d_k^2(mu_O) ] + A (1 / n_used - 1 / n_O),        n_used = n_N S
    V(x)   = C ||m - mu_N||^2             + A (1 / n_used - 1 / n_N)         against retraining with everybody who remains
    S(x)   = C ||m - mu_O||^2             + A (1 / n_used - 1 / n_O)         against the original model

Q is a change, so what the original model already cost client k is taken off: ``d_k^2(mu_O)``, a constant that moves no best
response. A, the *sampling constant*, is the loss per ``1 / n_used``: fewer samples represent the same mixture worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .content import Content
from .data import GameData
from .geometry import Array, frozen
from .profile import Profile

__all__ = ["Impacts", "drift_changes", "guessed", "predicted_impacts", "thinning"]


@dataclass(frozen=True, eq=False)
class Impacts(Content):
    """Predicted changes in loss: one per remaining client, against retraining, and against the original model."""

    clients: Array
    effectiveness: float
    stability: float
    #: True if C and A were fitted to observed trainings; otherwise the numbers are a guess up to these two constants.
    calibrated: bool

    @property
    def worst(self) -> float:
        """The largest predicted rise of a client's loss."""
        return float(self.clients.max())

    def summary(self) -> dict[str, Any]:
        """Return the predictions as plain values."""
        return {
            "clients": self.clients,
            "effectiveness": self.effectiveness,
            "stability": self.stability,
            "worst": self.worst,
            "calibrated": self.calibrated,
        }


def guessed(game: GameData) -> str:
    """Return the label for losses that no training has confirmed; empty for a calibrated game."""
    if game.calibrated:
        return ""
    return (
        f"A guess: losses, utilities and payments rest on the constant C = {game.loss_constant:g}, which was not fitted to "
        "trainings (stackfu calibrate)."
    )


def drift_changes(game: GameData, profile: Profile) -> Array:
    """``d_k^2(m) - d_k^2(mu_O)`` for every remaining client."""
    return np.asarray(profile.to_clients - game.distances_to_original)


def thinning(game: GameData, profile: Profile, before: float) -> float:
    """``1 / n_used - 1 / before``: how much less data is used than ``before``."""
    return 1.0 / (float(game.sizes.sum()) * profile.total) - 1.0 / before


def predicted_impacts(game: GameData, profile: Profile, calibrated: bool) -> Impacts:
    """Q_k for every remaining client, V and S."""
    constant, sampling = game.loss_constant, game.sampling_constant
    left, everything = float(game.sizes.sum()), float(game.all_sizes.sum())
    return Impacts(
        clients=frozen(
            constant * drift_changes(game, profile) + sampling * thinning(game, profile, everything)
        ),
        effectiveness=constant * profile.distances.to_remaining + sampling * thinning(game, profile, left),
        stability=constant * profile.distances.to_original + sampling * thinning(game, profile, everything),
        calibrated=calibrated,
    )

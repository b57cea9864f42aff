"""Effect of one more unit of money for each client: derivatives as numbers that tables and pages show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import NotDifferentiableError
from ..html import money, number
from ..model import Array, frozen
from ..model.content import Content
from .equilibrium_derivatives import EquilibriumDerivatives, Side

__all__ = ["MOST_CLIENTS", "MarginalEffects", "marginal_effects", "round_step", "signed"]

#: A step is at most this part of the clients' median cost, so that rates still hold over it.
SMALL = 0.01
#: Changes of loss and spend below this are what rounding left of none.
ROUNDING = 1e-15
#: Above this many clients a row per client is unreadable, and the rates of all payments take long.
MOST_CLIENTS = 200


@dataclass(frozen=True, eq=False)
class MarginalEffects(Content):
    """Effects of raising each client's payment by ``step``, at the rates of an equilibrium.

    Attributes
    ----------
    names
        The clients.
    step
        Amount of money that effects refer to: 1, or a power of ten that is small relative to the costs.
    own
        Samples that a client brings more when its own payment rises.
    together
        Samples that all clients bring more when a client's payment rises.
    loss
        Change of the server's loss when a client's payment rises.
    spend
        Change of the spend when a client's payment rises.
    reason
        Why there are no effects, if there are none: the arrays are NaN then.
    """

    names: tuple[str, ...]
    step: float
    own: Array
    together: Array
    loss: Array
    spend: Array
    reason: str = ""

    def words(self, place: int | None = None, currency: str | None = None) -> str:
        """Return the effects of one client's payment in a sentence; by default of the one that brings most samples.

        >>> import stackfu as sf
        >>> emb = sf.MeanEmbeddings.from_features(np.eye(2))
        >>> game = sf.StackelbergGame(emb, [100, 100], costs=[200.0, 200.0], lambda_q=200.0, names=["York", "Hull"])
        >>> print(marginal_effects(game.equilibrium([20.0, 20.0])).words(0, "EUR"))
        1 EUR more for York brings 0.3086 samples (0.2315 its own) at the present rate; server loss +0, spend +0.6173
        """
        if self.reason:
            return f"What more money for a client brings is not known: {self.reason}"
        k = int(np.argmax(self.together)) if place is None else place
        return (
            f"{money(self.step, currency)} more for {self.names[k]} brings {number(self.together[k])} samples "
            f"({number(self.own[k])} its own) at the present rate; server loss {signed(self.loss[k])}, "
            f"spend {signed(self.spend[k])}"
        )

    def summary(self) -> dict[str, Any]:
        """Return the effects as plain values; None where there are none."""
        known = not self.reason
        return {
            "step": self.step,
            "own_samples": self.own.tolist() if known else None,
            "samples": self.together.tolist() if known else None,
            "server_loss": self.loss.tolist() if known else None,
            "spend": self.spend.tolist() if known else None,
            "reason": self.reason or None,
        }


def round_step(costs: Array) -> float:
    """Return 1, or the largest power of ten that is small relative to the median cost.

    >>> round_step(np.array([500.0, 800.0])), round_step(np.array([0.2, 0.3]))
    (1.0, 0.001)
    """
    return float(min(1.0, 10.0 ** np.floor(np.log10(SMALL * float(np.median(costs))))))


def signed(change: float) -> str:
    """Return a change in four digits with its sign; what is rounding of a rate shows as +0.

    >>> signed(0.25), signed(-1e-5), signed(-3e-19)
    ('+0.25', '-1e-05', '+0')
    """
    return f"{change if abs(change) > ROUNDING else 0.0:+.4g}"


def marginal_effects(result: Any) -> MarginalEffects:
    """Return what raising each payment of an equilibrium or a solution brings.

    Where clients are at a threshold, it is the effect of raising payments, not of lowering them.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [100, 100], costs=[200.0, 200.0], lambda_q=200.0)
    >>> marginal_effects(game.equilibrium([20.0, 20.0])).own.round(2)
    array([0.23, 0.23])
    """
    equilibrium = getattr(result, "equilibrium", result)
    game = equilibrium.game
    step = round_step(game.costs)
    names = tuple(str(game.label(k)) for k in range(game.count))
    nothing = frozen(np.full(game.count, np.nan))
    if getattr(getattr(result, "offers", None), "kind", "") == "contract":
        reason = "contracts are all or nothing, a little more money changes no amount of data"
        return MarginalEffects(names, step, nothing, nothing, nothing, nothing, reason)
    if game.count > MOST_CLIENTS:
        reason = f"rates are shown for up to {MOST_CLIENTS} clients"
        return MarginalEffects(names, step, nothing, nothing, nothing, nothing, reason)
    try:
        derivatives = EquilibriumDerivatives.of(equilibrium)
        side: Side | None = "up" if len(derivatives.at.at_threshold) else None
        samples, loss, spend = (
            derivatives.derivative("payments", of, side) for of in ("samples", "server_loss", "spend")
        )
    except (NotDifferentiableError, ValueError) as error:
        return MarginalEffects(names, step, nothing, nothing, nothing, nothing, str(error))
    return MarginalEffects(
        names,
        step,
        frozen(step * np.diag(samples)),
        frozen(step * samples.sum(axis=0)),
        frozen(step * loss),
        frozen(step * spend),
    )

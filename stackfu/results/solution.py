"""Result of a mechanism: payments, the resulting equilibrium, and proved bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..embedding.names import Position
from ..errors import ConvergenceError, without_warnings
from ..html import card, in_currency, number, table
from ..model import Array, GameModel, Limits, Objective
from ..model.content import Content
from ..model.impacts import guessed
from ..model.offers import Offers, utilities_of
from .access import ByClient
from .cautions import amount, cautions_of
from .equilibrium import Equilibria, Equilibrium
from .facade import facade
from .status import Status
from .verification import Verification
from .whole_plan import WholePlan

__all__ = ["Solution"]

#: A budget of which less than this part is left binds.
BINDS = 1e-4
#: The gap to which a neighbouring budget is solved for the shadow price, at most: a difference of two losses needs the digits.
FINE_GAP = 1e-6


@dataclass(frozen=True, eq=False)
class Solution(Content, ByClient):
    """Payments for a budget, what they lead to, and how good they provably are.

    ``lower_bound`` holds for every payment vector within the budget (and the floor, if one was set); ``gap`` is
    ``objective - lower_bound``. Methods that prove nothing have ``lower_bound = -inf``. ``goal`` is what was asked for,
    ``objective`` the value it reaches here; ``limits`` is how far the search was allowed to go (certified only).
    Where costs are known to lie between two ends (``costs_between``), ``game`` has the upper ones: what is said holds for
    them, and the plan and its spend for every lower cost too.
    """

    game: GameModel
    budget: float
    payments: Array
    equilibrium: Equilibrium
    status: Status
    method: str
    objective: float
    lower_bound: float
    goal: Objective
    limits: Limits | None = None
    robust: bool = False
    own_options: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    nodes: int = 0
    seconds: float = 0.0
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    #: Posted offers other than a price per unit: capped offers or contracts.
    posted: Offers | None = None
    #: Utilities that clients have outside the federation, if they were to be kept.
    outside: Array | None = None
    #: The proof of the lower bound, as data; None where nothing is proved by data.
    certificate: Any = field(default=None, repr=False)
    #: The function that made the payments, if ``method`` was one; files and pickles hold its name alone.
    mechanism: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "mechanism": None}

    @cached_property
    def offers(self) -> Offers:
        """Offers posted to the clients."""
        return Offers.linear(self.payments) if self.posted is None else self.posted

    @property
    def caps(self) -> Array:
        """Most that is taken from each client."""
        return self.offers.caps

    @property
    def payouts(self) -> Array:
        """Payment of each client at the equilibrium."""
        return self.offers.payouts(self.participation)

    def _posted(self) -> tuple[Array, Array, Array, Array | None]:
        if self.offers.kind == "linear":
            return self.equilibrium._posted()
        utilities = utilities_of(self.game, self.payouts, self.equilibrium.profile)
        return self.participation, self.payouts, utilities, self.caps

    @property
    def participation(self) -> Array:
        """Participation x at the equilibrium that these payments induce."""
        return self.equilibrium.participation

    @property
    def spend(self) -> float:
        """Return what the server pays at that equilibrium: ``p . x``, and retainers if there are any."""
        if self.offers.kind == "linear":
            return self.equilibrium.spend
        return float(self.payouts.sum())

    @property
    def samples(self) -> Array:
        """Return the number of samples that each client brings: its size times its participation."""
        return self.equilibrium.samples

    @property
    def samples_used(self) -> float:
        """Return the number of samples that all clients bring together."""
        return self.equilibrium.samples_used

    @property
    def cautions(self) -> list[str]:
        """Return what should be known before the solution is used, in sentences; see :mod:`stackfu.results.cautions`."""
        return cautions_of(self)

    @property
    def server_loss(self) -> float:
        """``u_server`` at that equilibrium."""
        return self.equilibrium.server_loss

    @property
    def gap(self) -> float:
        """``objective - lower_bound``, never negative."""
        return max(self.objective - self.lower_bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """Return the gap as a part of the objective; infinite where nothing is proved.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> digits_game().solve(0.05, "uniform").relative_gap
        inf
        """
        if self.gap == 0.0:
            return 0.0
        return self.gap / abs(self.objective) if self.objective else np.inf

    @cached_property
    def equilibria(self) -> Equilibria:
        """Return every equilibrium of what is posted: of the payments, of the prices with their caps, or of the contracts."""
        found: Equilibria = facade(self.game).equilibria(offers=self.offers)
        return found

    @cached_property
    def optimistic(self) -> float:
        """Return the least server loss over all equilibria of what is posted."""
        return min([self.server_loss, *(e.server_loss for e in self.equilibria)])

    @cached_property
    def pessimistic(self) -> float:
        """Return the largest server loss over all equilibria of what is posted."""
        return max([self.server_loss, *(e.server_loss for e in self.equilibria)])

    @cached_property
    def shadow_price(self) -> float:
        """Saving of the objective per additional unit of budget: by solving again with two percent more.

        0 where the budget does not bind, not a number where nothing was optimised.
        """
        if self.limits is None:
            return float("nan")
        if not np.isfinite(self.budget) or self.spend < self.budget * (1.0 - BINDS):
            return 0.0
        step = 0.02 * self.budget
        goal = {name: value for name, value in self.goal.to_dict().items() if name != "budget"}
        posted = {} if self.offers.kind == "linear" else {"offers": self.offers.kind, "outside": self.outside}
        again = {
            **goal,
            **posted,
            "gap": min(self.limits.gap, FINE_GAP),
            "start": self.participation,
            "progress": False,
        }
        with without_warnings():
            wider: Solution = facade(self.game).solve(self.budget + step, **again)
        return max((self.objective - wider.objective) / step, 0.0)

    @cached_property
    def spend_range(self) -> tuple[float, float]:
        """Return the least and the largest spend over all equilibria of what is posted, faces included."""
        ranges = [(self.spend, self.spend), *(e.spend_range for e in self.equilibria)]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    @property
    def active(self) -> dict[str, tuple[int, ...]]:
        """Return client numbers by what they do: out, partial, full, and volunteers (full, paid nothing)."""
        x, who = self.participation, self.game.remaining
        groups = {
            "out": x == 0,
            "partial": (x > 0) & (x < 1),
            "full": (x == 1) & (self.payouts > 0),
            "volunteers": (x == 1) & (self.payouts == 0),
        }
        return {name: tuple(map(Position, np.asarray(who)[mask])) for name, mask in groups.items()}

    def raise_for_status(self) -> Solution:
        """Return self, or raise if the solver does not stand behind it."""
        if not self.status.success:
            raise ConvergenceError(f"{self.method}: {self.status.value}. {self.message}".strip())
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Options of the request, by their names in ``solve``."""
        asked = {name: value for name, value in self.goal.to_dict().items() if name != "budget"}
        gap = {} if self.limits is None else {"gap": self.limits.gap}
        return {**asked, **gap, **({"robust": True} if self.robust else {}), **self.own_options}

    @property
    def proves(self) -> str:
        """Quantity that the lower bound bounds: the server loss, the spend, or another objective."""
        return "server loss" if self.goal.is_loss else "spend" if self.goal.is_spend else "objective"

    def verify(self, tolerance: float = 1e-9) -> Verification:
        """Recompute everything from the game: equilibrium, spend, loss, budget, and the certificate's arithmetic."""
        check: Verification = facade(self.game).verify(self, tolerance)
        return check

    @cached_property
    def _in_whole_samples(self) -> WholePlan:
        found: WholePlan = facade(self.game).whole_samples(self)
        return found

    def whole_samples(self) -> WholePlan:
        """Return the plan rounded to whole samples, with its exact spend and loss.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> whole = digits_game().solve(0.05, "uniform").whole_samples()
        >>> whole.total, whole.spend <= 0.05, bool(whole)
        (169, True, True)
        """
        return self._in_whole_samples

    def sensitivity(self, parameter: str, of: str = "payments") -> Array:
        """Return the derivative of this optimum with respect to a parameter; see :mod:`stackfu.sensitivity.optimum`.

        It is the derivative of the local solution on the active set: of the optimum itself as long as no other becomes better.

        Parameters
        ----------
        parameter
            "budget", "max_loss", "min_total", "costs", "sizes" (of all original clients, costs unchanged), "lambda_q", "lambda_v",
            "lambda_s", "loss_constant" or "sampling_constant".
        of
            "payments", "participation", "samples" (one number per client), "objective", "server_loss", "spend" or "total".

        Raises
        ------
        InputError
            If the solution is not one of the certified search for payments per unit.
        NotDifferentiableError
            If the optimum has no derivative: a constraint is about to bind or to be released.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> solution = digits_game().solve(0.05, progress=False)
        >>> f"{solution.sensitivity('budget', 'server_loss'):.4f}"
        '-0.0156'
        """
        found: Array = facade(self.game).sensitivity(self, parameter, of)
        return found

    def marginal_effects(self) -> Any:
        """Return what a little more money for each client brings; see :mod:`stackfu.sensitivity.marginal`."""
        return facade(self.game).marginal_effects(self)

    def values(self, **options: Any) -> Any:
        """Return what each client's participation contributes to the server's loss; see :meth:`stackfu.StackelbergGame.values`.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> digits_game().solve(0.05, "uniform").values()
        ClientValues(server loss, 7 clients, whole=..., exact)
        """
        return facade(self.game).values(self.participation, **options)

    def manipulation(self, **options: Any) -> Any:
        """Return each client's gain from misreporting its cost, size or embedding under this mechanism."""
        return facade(self.game).manipulation(self, **options)

    def stated(self) -> dict[str, Any]:
        """Return everything that cannot be recomputed from the game: what files keep."""
        return {
            "method": self.method,
            "status": self.status.name,
            "message": self.message,
            "budget": self.budget,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "goal": self.goal.to_dict(),
            "limits": None if self.limits is None else self.limits.to_dict(),
            "robust": self.robust,
            "own_options": dict(self.own_options),
            **({} if self.offers.kind == "linear" else {"offers": self.offers.summary()}),
            **({} if self.outside is None else {"outside": self.outside}),
            "nodes": self.nodes,
            "seconds": self.seconds,
        }

    def summary(self) -> dict[str, Any]:
        """Return the solution as plain values: what is stated, and what follows from it."""
        stated = self.stated()
        return {
            **stated,
            "certificate_boxes": getattr(self.certificate, "leaves", 0),
            "options": self.options,
            "proves": self.proves,
            "spend": self.spend,
            "server_loss": self.server_loss,
            "gap": self.gap,
            "relative_gap": self.relative_gap,
            "samples": self.samples,
            "samples_used": self.samples_used,
            "cautions": self.cautions,
            "remaining": self.game.remaining,
            "names": list(self.game.names),
            "currency": self.game.currency,
            "payments": self.payments,
            "equilibrium": self.equilibrium.summary(),
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per remaining client, indexed by name (needs pandas)."""
        frame = self.equilibrium.to_pandas()
        if self.offers.kind == "linear":
            return frame
        utilities = utilities_of(self.game, self.payouts, self.equilibrium.profile)
        posted = {"cap": self.caps, "retainer": self.offers.retainers}
        return frame.assign(**posted, receives=self.payouts, utility=utilities)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the participation under these payments; options are those of :func:`stackfu.plot.participation`."""
        return facade(self.game).plot(self, ax, **options)

    def _repr_html_(self) -> str:
        known, currency = np.isfinite(self.lower_bound), self.game.currency
        rows: list[list[Any]] = [
            [
                in_currency("budget", currency),
                number(self.budget) if np.isfinite(self.budget) else "none",
            ],
            [in_currency("spend", currency), self.spend],
            ["server loss", f"{self.server_loss:.6g}"],
            [
                in_currency(f"lower bound of the {self.proves}", currency),
                f"{self.lower_bound:.6g}" if known else "none",
            ],
            ["gap, relative to the objective", f"{self.relative_gap:.2g}" if known else "none"],
            ["data used", f"{self.equilibrium.total:.1%}: {amount(self.samples_used)} samples"],
            ["largest predicted rise of a client's loss", f"{self.equilibrium.impacts.worst:+.3g}"],
        ]
        posted = {"linear": "Payments", "capped": "Capped offers", "contract": "Contracts"}[self.offers.kind]
        by = "" if self.method == "certified" else f" by {self.method}"
        title = f"{posted}{by}: {self.status.name.lower().replace('_', ' ')}"
        said = f"{self.message.rstrip('.')}." if self.message else ""
        careful = [f"Caution: {text}." for text in self.cautions]
        note = " ".join(filter(None, [*careful, f"{self.status.value}.", said, guessed(self.game)]))
        return card(title, table(["", ""], rows), self.equilibrium.clients_html(self.offers), note=note)

    def save(self, path: Any) -> None:
        """Write the solution with its game to a ``.json`` or ``.npz`` file, without loss."""
        facade(self.game).save(path, self)

    def __repr__(self) -> str:
        # the bound is one on the objective, which is the server loss only if nothing else counts
        stated = "" if self.goal.is_loss else f"objective={self.objective:.6g}, "
        return (
            f"Solution({self.method}, {self.status.name}, server_loss={self.server_loss:.6g}, {stated}"
            f"lower_bound={self.lower_bound:.6g}, relative_gap={self.relative_gap:.1e}, "
            f"spend={self.spend:.6g} of {self.budget:.6g}, samples={amount(self.samples_used)})"
        )

"""Results of the follower solvers: one equilibrium, or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np

from ..embedding.names import Position
from ..errors import ConvergenceError
from ..html import MOST_ROWS, NOTHING, bar, card, data_frame, money, number, table
from ..model import Array, GameModel, Profile, frozen
from ..model.content import Content
from ..model.impacts import Impacts, guessed
from ..model.offers import Offers
from .access import ByClient, Tables
from .cautions import amount
from .facade import facade
from .status import Status, Uniqueness
from .verification import Verification

__all__ = ["LARGEST", "Equilibria", "Equilibrium", "Face", "equilibrium_on_path"]


@dataclass(frozen=True, eq=False)
class Face(Content):
    """A polytope of equilibria that share total S and mean embedding m (or, rarely, only m as S varies).

    ``clients`` are the client numbers with an undetermined participation; each may lie anywhere in
    ``[lower, upper]`` as long as the others balance it; ``dimension`` is that of the polytope. All its points have the same loss;
    ``spend`` is the least and the most that the server pays among them (None: not known). ``points`` are some of its profiles,
    those at which the spend is least and most first.
    """

    clients: tuple[int, ...]
    lower: Array
    upper: Array
    dimension: int
    spend: tuple[float, float] | None = None
    points: tuple[Array, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", tuple(map(Position, self.clients)))

    def spend_range(self, game: GameModel, payments: Array, x: Array) -> tuple[float, float]:
        """Bounds on the spend over the face: every client anywhere in its own interval (an outer bound of the polytope)."""
        place = np.searchsorted(game.remaining, self.clients)
        low, high = np.array(x), np.array(x)
        low[place], high[place] = self.lower, self.upper
        return float(payments @ low), float(payments @ high)

    def __str__(self) -> str:
        spans = ", ".join(
            f"x[{k}] in [{a:.4g}, {b:.4g}]"
            for k, a, b in zip(self.clients, self.lower, self.upper, strict=True)
        )
        spend = "" if self.spend is None else f"; spend from {self.spend[0]:.4g} to {self.spend[1]:.4g}"
        return f"{self.dimension}-dimensional face: {spans}{spend}"

    def summary(self) -> dict[str, Any]:
        """Return the face as plain values."""
        return {
            "clients": list(self.clients),
            "lower": self.lower,
            "upper": self.upper,
            "dimension": self.dimension,
            "spend": None if self.spend is None else list(self.spend),
            "points": [list(map(float, x)) for x in self.points],
        }


@dataclass(frozen=True, eq=False)
class Equilibrium(Content, ByClient):
    """A Nash equilibrium of the clients under given payments.

    ``regret`` (largest gain of a client from deviating) and ``residual`` (largest violation of a client's equilibrium condition
    relative to what is added up in it: drift, cost, payment) are recomputed from the game at ``participation``; they are not
    what the solver believed. CERTIFIED means that :func:`stackfu.judging.stakes.check_stakes` has proved that no client can gain
    more than a billionth of its stakes; UNIQUE and MULTIPLE that :mod:`stackfu.judging.completeness` has proved
    that there are no others than those found, and that their totals are those of exact equilibria to a thousandth.
    """

    game: GameModel
    payments: Array
    participation: Array
    status: Status
    uniqueness: Uniqueness
    reason: str
    method: str
    regret: float
    residual: float
    iterations: int = 0
    seconds: float = 0.0
    face: Face | None = None
    #: Most that is taken from each client; None: everything.
    caps: Array | None = None
    #: A sum that each client receives for staying, beyond its price; None: nothing.
    retainers: Array | None = None
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @cached_property
    def profile(self) -> Profile:
        """The participation in the variables y, S, z, m."""
        return self.game.profile(self.participation)

    @property
    def total(self) -> float:
        """S, the share of the remaining data that takes part."""
        return self.profile.total

    @property
    def mixture(self) -> Array:
        """z, the mixture of clients in the data that takes part."""
        return self.profile.mixture

    @cached_property
    def samples(self) -> Array:
        """Return the number of samples that each client brings: its size times its participation."""
        return frozen(self.game.sizes * self.participation)

    @property
    def samples_used(self) -> float:
        """Return the number of samples that all clients bring together."""
        return float(self.samples.sum())

    @property
    def payouts(self) -> Array:
        """Return what each client receives: its price times its participation, and its retainer."""
        receives = self.payments * self.participation
        return frozen(receives if self.retainers is None else receives + self.retainers)

    @property
    def retained(self) -> float:
        """Return the sum of the retainers."""
        return 0.0 if self.retainers is None else float(self.retainers.sum())

    @cached_property
    def spend(self) -> float:
        """Return what the server pays: ``p . x``, and the retainers if there are any."""
        return float(self.payments @ self.participation) + self.retained

    @cached_property
    def spend_range(self) -> tuple[float, float]:
        """Least and largest spend over the equilibria of this one's face: clients that trade may be paid differently."""
        if self.face is None:
            return self.spend, self.spend
        low, high = self.face.spend_range(self.game, self.payments, self.participation)
        return low + self.retained, high + self.retained

    @cached_property
    def server_loss(self) -> float:
        """``u_server`` at this equilibrium."""
        return self.game.server_loss(self.participation)

    @cached_property
    def utilities(self) -> Array:
        """Every client's utility ``U_k``, retainers included."""
        utilities = self.game.client_utilities(self.payments, self.participation)
        return utilities if self.retainers is None else frozen(utilities + self.retainers)

    def _posted(self) -> tuple[Array, Array, Array, Array | None]:
        return self.participation, self.payouts, self.utilities, self.caps

    @cached_property
    def impacts(self) -> Impacts:
        """Predicted changes in loss: every client's, against retraining, and against the original model."""
        return self.game.impacts(self.participation)

    @cached_property
    def diagnostics(self) -> Any:
        """Contraction diagnostics at this point, see :mod:`stackfu.judging.diagnostics`."""
        return facade(self.game).diagnose(self)

    def verify(self, tolerance: float = 1e-9) -> Verification:
        """Check independently that no client gains by deviating; see :mod:`stackfu.judging.equilibrium_check`."""
        check: Verification = facade(self.game).verify(self, tolerance)
        return check

    def prove(self, precision: int = 256) -> Any:
        """Prove in ball arithmetic that an exact equilibrium lies in a tiny box around this point."""
        return facade(self.game).prove(self, precision)

    def sensitivity(
        self, parameter: str, of: str = "participation", side: Literal["up", "down"] | None = None
    ) -> Array:
        """Return the derivative of the equilibrium with respect to a parameter; see :mod:`stackfu.sensitivity`.

        Parameters
        ----------
        parameter
            "payments", "costs", "caps", "sizes" (of all original clients, costs unchanged), "embeddings" (feature rows or inner
            products of all original clients), "lambda_q", "lambda_v", "lambda_s", "loss_constant" or "sampling_constant".
        of
            "participation", "samples", "utilities" (one number per client), "total", "server_loss" or "spend".
        side
            Where clients are at a threshold: the effect of raising ("up") or of lowering ("down") the parameter, per unit.

        Returns
        -------
        An array with the axes of the output, then those of the parameter.

        Raises
        ------
        NotDifferentiableError
            If clients are at a threshold and no side is given, or if no derivative exists; it names the clients.

        Examples
        --------
        >>> import numpy as np, stackfu as sf
        >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [100, 100], costs=[1.0, 1.0])
        >>> game.equilibrium([0.1, 0.1]).sensitivity("payments", "samples").round(1)
        array([[46.3, 15.4],
               [15.4, 46.3]])
        """
        found: Array = facade(self.game).sensitivity(self, parameter, of, side)
        return found

    def marginal_effects(self) -> Any:
        """Return what a little more money for each client brings; see :mod:`stackfu.sensitivity.marginal`."""
        return facade(self.game).marginal_effects(self)

    def values(self, **options: Any) -> Any:
        """Return what each client's participation contributes to the server's loss; see :meth:`stackfu.StackelbergGame.values`.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> digits_game().equilibrium().values()
        ClientValues(server loss, 7 clients, whole=..., exact)
        """
        return facade(self.game).values(self.participation, **options)

    def raise_for_status(self) -> Equilibrium:
        """Return self, or raise :class:`~stackfu.errors.ConvergenceError` if this is not an answer."""
        if not self.status.success:
            raise ConvergenceError(f"{self.method}: {self.status.value} (residual {self.residual:.2e})")
        return self

    def stated(self) -> dict[str, Any]:
        """Return everything that cannot be recomputed from the game: what files keep."""
        return {
            "payments": self.payments,
            "participation": self.participation,
            "status": self.status.name,
            "uniqueness": self.uniqueness.name,
            "reason": self.reason,
            "method": self.method,
            "regret": self.regret,
            "residual": self.residual,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "face": None if self.face is None else self.face.summary(),
            **({} if self.caps is None else {"caps": self.caps}),
            **({} if self.retainers is None else {"retainers": self.retainers}),
        }

    def summary(self) -> dict[str, Any]:
        """Return the equilibrium as plain values: what is stated, and what follows from it."""
        low, high = self.game.thresholds(self.participation, self.caps)
        return {
            "remaining": self.game.remaining,
            "names": list(self.game.names),
            **self.stated(),
            "total": self.total,
            "samples": self.samples,
            "samples_used": self.samples_used,
            "mixture": self.mixture,
            "utilities": self.utilities,
            "thresholds": {"out_below": low, "full_above": high},
            "server_loss": self.server_loss,
            "spend": self.spend,
            "impacts": self.impacts.summary(),
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per remaining client, indexed by name (needs pandas)."""
        frame = facade(self.game).clients_frame(self.payments, self.participation)
        if self.retainers is not None:
            frame = frame.assign(retainer=self.retainers, receives=self.payouts, utility=self.utilities)
        return frame if self.caps is None else frame.assign(cap=self.caps)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the participation; options are those of :func:`stackfu.plot.participation`."""
        return facade(self.game).plot(self, ax, **options)

    def _repr_html_(self) -> str:
        title = f"Equilibrium: {self.status.name.lower()}, {self.uniqueness.value}"
        note = (
            f"{self.total:.1%} of the remaining data takes part, {amount(self.samples_used)} samples; "
            f"server loss {self.server_loss:.6g}; "
            f"spend {money(self.spend, self.game.currency)}. {self.reason}. {guessed(self.game)}".strip()
        )
        return card(title, self.clients_html(), note=note)

    def clients_html(self, offers: Offers | None = None) -> str:
        """Return one row per client as an HTML table; of ``offers`` if more was posted than the payments."""
        game, shown = self.game, min(self.game.count, MOST_ROWS)
        receives = self.payouts if offers is None else offers.payouts(self.participation)
        utilities = self.utilities + (receives - self.payouts)
        caps = self.caps if offers is None or offers.kind == "linear" else offers.caps
        step, brings, worth = self._contributions(offers)
        rows = [
            [
                game.names[k] if game.count <= MOST_ROWS else game.label(k),
                float(game.sizes[k]),
                float(game.costs[k]),
                number(self.payments[k], NOTHING * game.costs[k]),
                *([] if caps is None else [f"{caps[k]:.0%}"]),
                bar(float(self.participation[k])),
                amount(float(self.samples[k])),
                number(receives[k], NOTHING * game.costs[k]),
                float(utilities[k]),
                f"{self.impacts.clients[k]:+.3g}",
                *([] if brings is None else [f"{brings[k]:+.3g}"]),
                *([] if worth is None else [float(worth[k])]),
            ]
            for k in range(shown)
        ]
        limit = [] if caps is None else ["for at most"]
        head = [
            "client",
            "samples",
            "cost",
            "payment",
            *limit,
            "takes part",
            "brings samples",
            "receives",
            "utility",
        ]
        head.append("predicted change of its loss")
        head += [] if brings is None else [f"samples that {money(step, game.currency)} more for it brings"]
        head += [] if worth is None else ["Shapley value of its samples"]
        return table(head, rows, game.count - shown, game.currency)

    def _contributions(self, offers: Offers | None) -> tuple[float, Array | None, Array | None]:
        """Return a step of money, the samples that it brings for each client, and Shapley values; None where not known."""
        game, brings, worth = self.game, None, None
        if game.count > MOST_ROWS or not hasattr(game, "marginal_effects"):
            return 0.0, None, None
        if self.participation.any():
            worth = self.values().shapley
        if offers is not None and offers.kind == "contract":
            return 0.0, None, worth
        effects = self.marginal_effects()
        if not effects.reason:
            brings = effects.together
        return effects.step, brings, worth

    def save(self, path: Any) -> None:
        """Write game, payments and point to a ``.json`` or ``.npz`` file, without loss."""
        facade(self.game).save(path, self)

    def __repr__(self) -> str:
        return (
            f"Equilibrium({self.status.name}, {self.uniqueness.name}, S={self.total:.6g}, "
            f"samples={amount(self.samples_used)}, "
            f"participants={int(np.count_nonzero(self.participation))}/{len(self.participation)}, "
            f"regret={self.regret:.1e}, residual={self.residual:.1e})"
        )


#: Which of several equilibria is returned.
LARGEST = "this is the one with the largest total participation"


def equilibrium_on_path(
    game: GameModel,
    payments: Array,
    participation: Array,
    *,
    count: int,
    pieces: int,
    residual: float,
    regret: float,
    seconds: float,
    caps: Array | None,
) -> Equilibrium:
    """Return the record of an equilibrium that the path found, one of ``count``, all of them accepted by the checkers."""
    if count > 1:
        word, reason = Uniqueness.MULTIPLE, f"t(s) is zero at {count} totals s in (0, 1]; {LARGEST}"
    else:
        word = Uniqueness.UNIQUE
        reason = f"t(s), followed over all {pieces} pieces of (0, 1], is zero once"
    return Equilibrium(
        game,
        payments,
        participation,
        Status.CERTIFIED,
        word,
        reason,
        "path",
        regret,
        residual,
        pieces,
        seconds,
        None,
        caps,
    )


@dataclass(frozen=True, eq=False)
class Equilibria(Content, Tables, Sequence[Equilibrium]):
    """All equilibria under given payments, ordered by total participation.

    ``complete`` says whether the argument that none is missing was checked along the whole path; ``pieces`` are the
    pieces of the level function ``t(s)`` (see :mod:`stackfu.followers.path`).
    """

    game: GameModel
    payments: Array
    items: tuple[Equilibrium, ...]
    uniqueness: Uniqueness
    reason: str
    complete: bool
    pieces: Any = field(default=None, repr=False)
    seconds: float = 0.0

    @property
    def caps(self) -> Array | None:
        """Cap on each client's participation; None: no caps, or no client takes part."""
        return self.items[0].caps if self.items else None

    def summary(self) -> dict[str, Any]:
        """Return all of them as plain values."""
        return {
            "remaining": self.game.remaining,
            "names": list(self.game.names),
            "currency": self.game.currency,
            "payments": self.payments,
            **({} if self.caps is None else {"caps": self.caps}),
            "uniqueness": self.uniqueness.name,
            "reason": self.reason,
            "complete": self.complete,
            "equilibria": [eq.summary() for eq in self.items],
        }

    def to_pandas(self) -> Any:
        """A DataFrame with one row per remaining client, indexed by name, and its participation in each of them (needs pandas)."""
        return data_frame({f"E{i + 1}": e.participation for i, e in enumerate(self.items)}, self.game.names)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the level function and its zeros; options are those of :func:`stackfu.plot.level`."""
        return facade(self.game).plot(self, ax, **options)

    def _repr_html_(self) -> str:
        rows = [
            [
                f"E{i + 1}",
                f"{e.total:.4%}",
                amount(e.samples_used),
                int((e.participation > 0).sum()),
                e.spend,
                e.server_loss,
                e.status.name.lower(),
            ]
            for i, e in enumerate(self.items)
        ]
        head = ["", "data used", "samples", "taking part", "spend", "server loss", "status"]
        count = "1 equilibrium" if len(self.items) == 1 else f"{len(self.items)} equilibria"
        found = "and no other" if self.complete else "perhaps not all of them"
        note = f"{self.reason}. {guessed(self.game)}".strip()
        return card(f"{count}, {found}", table(head, rows, currency=self.game.currency), note=note)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Equilibrium: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Equilibrium]: ...
    def __getitem__(self, index: int | slice) -> Equilibrium | Sequence[Equilibrium]:
        return self.items[index]

    def __iter__(self) -> Iterator[Equilibrium]:
        return iter(self.items)

    def __repr__(self) -> str:
        totals = ", ".join(f"{e.total:.6g}" for e in self.items)
        return f"Equilibria({self.uniqueness.name}, S=[{totals}], complete={self.complete})"

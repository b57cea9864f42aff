"""Does playing best responses lead to an equilibrium, and what do the known conditions say about it?

At an equilibrium the response of a client strictly inside (0, 1) moves with the others' participation as

    d BR_k / d x_j = (alpha_j / alpha_k) ( (2/3) <m - mu_k, mu_j - mu_k> / d_k^2 - 1 ),      j != k,

(with a sampling term ``(alpha_j / alpha_k) (4 S <m - mu_k, mu_j - mu_k> / (6 w_k S^2 - a) - 1)``) and that of a client at a bound
with ``g_k != 0`` not at all. The term ``-alpha_j / alpha_k`` (more of the
others leaves less to do) is often forgotten; without it the Jacobian looks harmless where it is not. If its
spectral radius is below 1, simultaneous best responses converge from nearby; a norm below 1 implies that too.
Neither is needed for an equilibrium to exist or to be the only one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Literal

import numpy as np

from ..errors import InputError
from ..model import Array, GameModel, frozen
from ..results import Equilibrium
from ..results.facade import facade
from .check_tolerances import TINY

__all__ = ["Diagnostics", "best_response_jacobian", "diagnose", "sufficient_bounds"]

#: Jacobians are dense; larger games are refused.
LARGEST_JACOBIAN = 4000
#: A client at a bound with a condition within this part of the largest squared distance of zero may leave it: a kink.
INDIFFERENT = 1e-11
#: Initial distance of play from the equilibrium, in parts of the distance to the nearer bound: no client reaches a bound at once.
WOBBLE = 1e-4
#: Distances to the equilibrium, relative to the first one, at which rounding dominates, and at which the bounds do.
DIED_OUT, RAN_AWAY = 1e-9, 1e2


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Behaviour of best-response dynamics around an equilibrium.

    ``jacobian`` is that of the joint best response in x; ``norm_inf``, ``norm_2`` and ``spectral_radius`` are
    its own, ``sequential_radius`` that of a round in which clients answer one after another.
    ``observed_simultaneous`` and ``observed_sequential`` are rates measured by playing from a nearby point
    (NaN if that ends elsewhere). ``bounds`` are the right-hand sides of the paper's condition ``diameter <
    bound_k``, ``margins`` the bounds minus the diameter. ``kinks`` counts clients at a bound with ``g_k =
    0``, where the response has two slopes and the Jacobian shows the one towards the inside. ``as_in_paper`` says that there are no
    caps and no sampling term: the paper's condition is about such games only.
    """

    jacobian: Array
    norm_inf: float
    norm_2: float
    spectral_radius: float
    sequential_radius: float
    observed_simultaneous: float
    observed_sequential: float
    diameter: float
    bounds: Array
    margins: Array
    kinks: int
    all_underpaid: bool
    as_in_paper: bool = True

    @property
    def paper_condition(self) -> bool:
        """True if the paper's sufficient condition holds for every client."""
        return bool(np.all(self.margins > 0))

    @property
    def contracts(self) -> bool:
        """True if simultaneous best responses contract towards this equilibrium from nearby."""
        return self.spectral_radius < 1.0

    @property
    def conclusion(self) -> str:
        """Conclusions from the numbers, and their limits."""
        lines = []
        if self.contracts:
            lines.append(
                "Simultaneous best responses converge from nearby: "
                f"spectral radius {self.spectral_radius:.3g} < 1."
            )
        else:
            lines.append(
                "Simultaneous best responses do not settle here: "
                f"spectral radius {self.spectral_radius:.3g} >= 1."
            )
        if self.sequential_radius < 1.0:
            lines.append(f"One after another they converge from nearby: {self.sequential_radius:.3g} < 1.")
        else:
            lines.append(f"One after another they do not settle here: {self.sequential_radius:.3g} >= 1.")
        if self.norm_inf < 1.0:
            lines.append(
                f"The largest row sum {self.norm_inf:.3g} is below 1: nearby, every round shrinks the "
                "largest deviation."
            )
        else:
            lines.append(
                f"The largest row sum {self.norm_inf:.3g} is not below 1, so the usual contraction argument "
                "(Banach in the maximum norm) says nothing here."
            )
        held = int(np.sum(self.margins > 0))
        if not self.as_in_paper:
            lines.append(
                "The paper's sufficient condition is about games without caps and without a sampling term; nothing follows."
            )
        elif not self.paper_condition:
            lines.append(
                f"The paper's sufficient condition holds for {held} of {len(self.margins)} clients, so it "
                "says nothing; the equilibrium may well be the only one."
            )
        elif self.all_underpaid:
            lines.append(
                "The paper's sufficient condition holds for every client: nobody takes part fully, and "
                "total and mean embedding are unique; the participation itself need not be where "
                "embeddings are affinely dependent."
            )
        else:
            lines.append(
                "The paper's sufficient condition holds for every client, but some are paid their cost or "
                "more, where its argument does not apply; nothing follows."
            )
        lines.append("None of this is needed for existence, and none of it decides uniqueness globally.")
        if self.kinks:
            lines.append(
                f"{self.kinks} client(s) sit at a bound with g = 0; their slope towards the inside is shown."
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.conclusion

    def __repr__(self) -> str:
        return (
            f"Diagnostics(spectral_radius={self.spectral_radius:.4g}, sequential_radius="
            f"{self.sequential_radius:.4g}, norm_inf={self.norm_inf:.4g}, norm_2={self.norm_2:.4g}, "
            f"paper_condition={self.paper_condition})"
        )


def best_response_jacobian(
    game: GameModel, payments: Array, participation: Array, caps: Array | None = None
) -> Array:
    """``d BR_k / d x_j`` of the joint best response at any profile; zero where it is at a bound.

    For a response strictly inside, ``BR_k = ((q_k / w_k)^(1/3) - S0_k) / alpha_k`` with ``q_k = ||S m - S
    mu_k||^2`` gives ``(alpha_j / alpha_k) ((2 S / 3) (q_k / w_k)^(1/3) <m - mu_k, mu_j - mu_k> / q_k - 1)``. With a sampling term
    the response is ``(R_k - S0_k) / alpha_k``, ``2 w_k R^3 - a R - 2 q_k = 0``, so ``d R_k / d q_k = 2 / (6 w_k R_k^2 - a)``.
    """
    profile = game.profile(participation)
    alpha, w, gram, a = game.alpha, game.reluctance(payments), game.geometry.gram, game.sampling
    most = game.no_caps if caps is None else caps
    response = game.best_response(payments, participation, caps)
    q = profile.total**2 * profile.to_clients
    inside = (response > 0) & (response < most) & (w > 0) & ((q > 0) | (a > 0)) & (profile.others > 0)
    toward = gram @ profile.mixture
    # <m - mu_k, mu_j - mu_k> = <m, mu_j> - <m, mu_k> - <mu_k, mu_j> + <mu_k, mu_k>
    inner = toward[None, :] - toward[:, None] - gram + np.diag(gram)[:, None]
    reach = np.cbrt(np.where(inside, q / np.where(inside, w, 1.0), 0.0))
    gain = np.where(inside, 2.0 * profile.total * reach / (3.0 * np.where(inside & (q > 0), q, 1.0)), 0.0)
    if a > 0.0:
        reach = profile.others + alpha * response
        gain = np.where(inside, 4.0 * profile.total / np.where(inside, 6.0 * w * reach**2 - a, 1.0), 0.0)
    jacobian = (gain[:, None] * inner - 1.0) * (alpha[None, :] / alpha[:, None])
    jacobian[~inside] = 0.0
    np.fill_diagonal(jacobian, 0.0)
    return jacobian


def sufficient_bounds(game: GameModel, payments: Array) -> Array:
    """Return the paper's bounds on the diameter: ``(3 alpha_k (1 - alpha_k)^2 / 4) sqrt(3 |c_k - p_k| / lam)``."""
    alpha = game.alpha
    return 0.75 * alpha * (1.0 - alpha) ** 2 * np.sqrt(3.0 * np.abs(game.costs - payments) / game.lam)


def diagnose(equilibrium: Equilibrium) -> Diagnostics:
    """Contraction diagnostics at an equilibrium of a game with a Gram matrix of moderate size."""
    game, payments, x = equilibrium.game, equilibrium.payments, equilibrium.participation
    if game.count > LARGEST_JACOBIAN:
        raise InputError(
            "equilibrium",
            f"the Jacobian of {game.count} clients is too large; at most {LARGEST_JACOBIAN} are diagnosed",
        )
    caps, a = equilibrium.caps, game.sampling
    most = game.no_caps if caps is None else caps
    g = game.inclination(payments, x)
    jacobian = best_response_jacobian(game, payments, x, caps)
    at_bound = (x == 0) | (x == most)
    settled = at_bound & (np.abs(g) > INDIFFERENT * max(game.geometry.scale, TINY))
    jacobian[settled] = 0.0
    kinks = int(np.sum(at_bound & ~settled))
    if np.any(jacobian):
        lower = np.tril(jacobian, -1)
        sequential = np.linalg.solve(np.eye(game.count) - lower, jacobian - lower)
        radius = float(np.abs(np.linalg.eigvals(jacobian)).max())
        sequential_radius = float(np.abs(np.linalg.eigvals(sequential)).max())
        norm_2 = float(np.linalg.norm(jacobian, 2))
    else:
        radius = sequential_radius = norm_2 = 0.0
    bounds = sufficient_bounds(game, payments)
    return Diagnostics(
        jacobian=frozen(jacobian),
        norm_inf=float(np.abs(jacobian).sum(axis=1).max()),
        norm_2=norm_2,
        spectral_radius=radius,
        sequential_radius=sequential_radius,
        observed_simultaneous=_observed_rate(game, payments, x, caps, "simultaneous"),
        observed_sequential=_observed_rate(game, payments, x, caps, "sequential"),
        diameter=game.diameter,
        bounds=frozen(bounds),
        margins=frozen(bounds - game.diameter),
        kinks=kinks,
        all_underpaid=bool(np.all(payments < game.costs)),
        as_in_paper=caps is None and a == 0.0,
    )


def _observed_rate(
    game: GameModel,
    payments: Array,
    x: Array,
    caps: Array | None,
    kind: Literal["simultaneous", "sequential"],
) -> float:
    """Factor a round by which the distance to the equilibrium changes, played from a nearby point."""
    most = game.no_caps if caps is None else caps
    inside = (x > 0) & (x < most)
    if not inside.any():
        return 0.0
    wobble = np.where(inside, WOBBLE * np.minimum(x, most - x), 0.0)
    wobble *= np.where(np.arange(len(x)) % 2 == 0, 1.0, -0.7)
    gaps = [
        float(np.abs(play - x).max())
        for play in islice(facade(game).dynamics(payments, x + wobble, caps=caps, kind=kind), 60)
    ]
    # from where the slowest direction dominates to where rounding or the bounds take over
    start = gaps[0]
    usable = list(takewhile(lambda gap: DIED_OUT * start < gap < RAN_AWAY * start, gaps))
    if len(usable) < 3:
        return 0.0 if gaps[-1] <= DIED_OUT * start else float("nan")
    first = len(usable) // 2
    return float((usable[-1] / usable[first]) ** (1.0 / max(len(usable) - 1 - first, 1)))

r"""Equilibria of a plan's contracts with rejections, and the premium that leaves only acceptance.

Where a set I of clients rejects, those outside I bring what their contracts say and those in I play the unpaid game below
their caps; its equilibria are enumerated with the proof that none is missing. Client k in I is content to reject as long as
its transfer is at most

    r_k = kappa_k (ybar_k - y_k) - lam (q_k / R^2 + a / R - q_k / Rbar^2 - a / Rbar),     R = s,  Rbar = s + ybar_k - y_k,

and a client outside I to accept as long as its transfer is at least what its best unpaid answer saves. With transfers that
move from those that are posted (premium 0) to the capped payouts where these are more (premium 1), both hold on an interval of
premiums. Beyond the largest end, acceptance by all is the only equilibrium; by Theorem 3 of ``docs/theory/offers.md``
it lies below 1. Posted transfers may exceed the least ones, to keep a client with a better outside option; that can add
equilibria: who is paid more accepts whatever the others do, and may leave them no reason to. The least transfers leave every single
client indifferent: what a hair of premium ends (posted contracts pay one) is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ..embedding.names import PerClient
from ..errors import InputError, NoEquilibriumError
from ..followers import enumerate_equilibria
from ..model import Array, GameModel, frozen
from ..model.arguments import number
from ..model.offers import capped_prices, contract_transfers
from ..model.profile import Profile
from ..model.responses import best_responses
from ..results import Status, Uniqueness

__all__ = ["Acceptance", "Rejection", "acceptance"]

#: Up to this many clients with a contract all sets of them are tried.
MOST_CONTRACTS = 10
#: A client that brings this part of its contract's participation does not hold back.
ALL = 1.0 - 1e-9
#: Premiums up to this are ties: the least transfers are computed to about as many digits.
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Rejection:
    """An equilibrium in which some reject, and the premiums for which it is one."""

    clients: tuple[int, ...]
    participation: Array
    server_loss: float
    least: float
    most: float


@dataclass(frozen=True, eq=False)
class Acceptance:
    """Every equilibrium of a plan's contracts but the plan; ``complete`` says whether none can be missing."""

    game: GameModel
    posted: Array
    capped: Array
    rejections: tuple[Rejection, ...]
    complete: bool

    @property
    def premium(self) -> float:
        """Above this part of the way to the capped payouts acceptance is the only equilibrium (as far as it is complete)."""
        return max((r.most for r in self.rejections), default=0.0)

    def transfers(self, premium: float) -> Array:
        """Return the payments for acceptance at a premium between 0 and 1."""
        if not 0.0 <= number(premium, "premium") <= 1.0:
            raise InputError("premium", "must lie in [0, 1]", value=premium)
        return frozen(self.posted + premium * (self.capped - self.posted))

    def at(self, premium: float = 0.0) -> tuple[Rejection, ...]:
        """Return the other equilibria at a premium, the worst for the server first."""
        here = (r for r in self.rejections if r.least <= premium <= r.most)
        return tuple(sorted(here, key=lambda r: -r.server_loss))


def acceptance(
    game: GameModel, plan: PerClient, transfers: PerClient | None = None, *, finite_sample: bool = False
) -> Acceptance:
    """Try every set of clients that might reject the contracts of a plan.

    ``transfers`` are the posted payments for acceptance, by default the least that keep all clients in. With ``finite_sample``
    losses count the variance of the used samples' embedding.

    >>> import stackfu as sf
    >>> points = sf.MeanEmbeddings.from_features([[0.0], [1.0], [-1.0]])
    >>> game = sf.StackelbergGame(points, [1, 1, 1], costs=[0.2, 0.4, 0.4], sampling_constant=0.1)
    >>> found = acceptance(game, [0.8, 0.8, 0.8])
    >>> found.complete, found.premium < 1.0
    (True, True)
    """
    caps = game.check_caps(plan)
    profile = game.profile(caps)
    asked = [int(k) for k in np.flatnonzero(caps)]
    if len(asked) > MOST_CONTRACTS:
        raise InputError(
            "plan", f"all sets of at most {MOST_CONTRACTS} contracts can be tried", value=len(asked)
        )
    posted = (
        contract_transfers(game, profile) if transfers is None else game.check_amounts(transfers, "transfers")
    )
    capped = frozen(np.maximum(capped_prices(game, profile)[0] * profile.x, posted))
    found, complete = [], True
    for size in range(1, len(asked) + 1):
        for who in combinations(asked, size):
            others, sure = _among(game, caps, np.array(who), posted, capped, finite_sample)
            found += others
            complete = complete and sure
    return Acceptance(game, frozen(posted), capped, tuple(found), complete)


def _among(
    game: GameModel, caps: Array, who: np.ndarray, posted: Array, capped: Array, finite_sample: bool
) -> tuple[list[Rejection], bool]:
    """Equilibria in which exactly these reject, and whether none is missing."""
    payments = np.where(
        caps > 0, 2.0 * game.costs, 0.0
    )  # whoever accepts is at its cap whatever the others do
    payments[who] = 0.0
    try:
        every = enumerate_equilibria(game, frozen(payments), caps)
    except NoEquilibriumError:
        return [], True
    sure = every.complete and every.uniqueness is not Uniqueness.CONTINUUM
    out = []
    for eq in every:
        sure = sure and eq.status is Status.CERTIFIED and eq.face is None
        if np.any(eq.participation[who] >= ALL * caps[who]):
            continue  # it brings everything unpaid: an equilibrium of fewer rejections, if it is one
        low, high = _premiums(game, eq.profile, caps, who, posted, capped)
        if low <= high and high > TIE:
            names = tuple(int(game.remaining[k]) for k in who)
            loss = game.loss_of(eq.profile, finite_sample)
            out.append(Rejection(names, eq.participation, loss, low, high))
    return out, sure


def _premiums(
    game: GameModel, profile: Profile, caps: Array, who: np.ndarray, posted: Array, capped: Array
) -> tuple[float, float]:
    """Return the premiums for which those who reject are content to, and the others to accept."""
    rejects = np.zeros(game.count, dtype=bool)
    rejects[who] = True
    top = game.alpha * caps
    # rejecting: from what is brought to the cap; accepting: from the best unpaid answer to the cap
    unpaid = best_responses(top, game.costs / game.drift_weight, profile, game.sampling)
    brought = np.where(rejects, profile.y, unpaid)
    less, rest = top - brought, profile.others
    away, into = rest + brought, rest + top
    q = np.where(rest > 0, profile.total**2 * profile.to_clients, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spared = less * (q * (away + into) / (away * into) ** 2 + game.sampling / (away * into))
    spared = np.where(away > 0, spared, np.inf if game.sampling > 0 else 0.0)
    worth = game.kappa * less - game.lam * spared
    room = capped - posted
    # where there is no room a transfer is what it is: enough for who accepts up to a tie, too little for who rejects beyond one
    fixed = np.where(worth > posted + TIE * game.costs, np.inf, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(room > TIE * game.costs, (worth - posted) / room, fixed)
    asked = caps > 0
    low = float(np.max(at[asked & ~rejects], initial=0.0))
    return max(low, 0.0), min(float(at[rejects].min()), 1.0)

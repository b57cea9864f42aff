"""One price per sample for each group of clients: what an operator with types of clients can post.

Clients of one type (a device, a region, a tariff) are offered one price per sample, ``p_k = q_g n_k``. Such prices come from the
game with the groups as clients. But there a group answers as one client would, while its members differ. So
each group supplies more or less than its mean, and prices from there alone may overspend by half. Here they are only a start:

- prices are always played back by the real members, and scaled until *their* equilibrium meets the budget;
- one group's price after another is raised and lowered, the others scaled to make room, while that lowers the real loss.

The spend is enclosed on the real members' equilibrium. How far the best payments of all can be below is not known here: the lower
bound of ``method="certified"`` holds for grouped prices too, since they are payments.

>>> import numpy as np, stackfu as sf
>>> rng = np.random.default_rng(0)
>>> kinds = np.arange(32) % 3
>>> points = np.array([[0.0, 0.5], [0.6, 0.0], [0.0, -0.6]])[kinds] + 0.05 * rng.normal(size=(32, 2))
>>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), rng.uniform(1, 3, 32), [0, 1], cost_scale=0.5)
>>> best = game.solve(0.05, method="grouped", groups=kinds[2:])
>>> bool(best.spend <= 0.05), len(set((best.payments / game.sizes).round(12))) <= 3
(True, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..embedding import MeanEmbeddings
from ..embedding.names import by_name
from ..errors import ConvergenceError, InfeasibleError, InputError, NoEquilibriumError
from ..followers import find_equilibrium
from ..jit import clock
from ..judging.point import enclose_point
from ..model import Array, GameModel, Limits, Objective, ServerLoss, frozen
from ..model.losses import Target
from ..results import Status
from .certified import certified
from .mechanisms import Proposal
from .playing import play
from .tolerances import TINY
from .uniform import LAST_DIGITS, best_price

__all__ = ["grouped"]

Index = npt.NDArray[np.intp]

#: First change of a group's price, relative to the mean price, and the last one.
FIRST_STEP, LAST_STEP = 0.5, 0.02
#: Equilibria played to scale a set of prices to the budget while it is only compared, and how exactly.
ATTEMPTS, ROUGHLY = 12, 1e-4
#: Part of the time for the game of the groups.
FOR_THE_GROUPS = 0.3
#: Prices count as better if the loss falls by more than this part: the members' equilibria are compared roughly.
BETTER = 1e-6
#: Parts by which the best prices are lowered, in turn, where the proved equilibrium of the members overspends by a hair.
LOWERED = (0.0, 1e-9, 1e-6, 1e-4, 1e-2, 0.1)


def grouped(
    game: GameModel,
    budget: float,
    *,
    groups: Sequence[Any] | npt.ArrayLike | None = None,
    gap: float = 1e-3,
    time_limit: float = 60.0,
) -> Proposal:
    """Return one price per sample for each group of clients, its spend that of the real members."""
    of, limits = check_groups(game, groups), Limits(gap=gap, time_limit=time_limit)
    gap, time_limit = limits.gap, limits.time_limit
    deadline = clock() + time_limit
    search = _Search(game, budget, of)
    search.attempt(np.ones(search.count))
    for rates in _from_the_groups(game, budget, of, gap, FOR_THE_GROUPS * time_limit):
        search.attempt(rates)
    step = FIRST_STEP
    while step >= LAST_STEP and search.count > 1:
        if not search.improve(step, deadline):
            step *= 0.5
        if clock() > deadline:
            break
    return search.proposal()


def check_groups(game: GameModel, groups: Any) -> Index:
    """Return the number of every remaining client's group, counted in the order of the labels' first appearance."""
    if groups is None:
        raise InputError("groups", 'method "grouped" needs a label for every remaining client')
    try:
        groups = by_name(groups, "groups", game.client_names)
        labels = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    except TypeError:
        labels = None
    if isinstance(groups, (str, bytes)) or not isinstance(labels, list):
        raise InputError(
            "groups", "must be a list of labels, one per remaining client", value=repr(groups)[:60]
        )
    if len(labels) != game.count:
        raise InputError(
            "groups", f"needs {game.count} labels, one per remaining client", value=f"{len(labels)} labels"
        )
    known: dict[Any, int] = {}
    of = np.empty(game.count, dtype=np.intp)
    for k, label in enumerate(labels):
        if label is None or (isinstance(label, float) and np.isnan(label)) or not _hashable(label):
            raise InputError(
                "groups", "needs a label (a number or a word)", client=game.label(k), value=repr(label)
            )
        of[k] = known.setdefault(label, len(known))
    return of


def _hashable(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


class _Search:
    """Prices per sample by group; whatever is kept was played by the real members and met the budget."""

    def __init__(self, game: GameModel, budget: float, of: Index) -> None:
        self.game, self.budget, self.of = game, budget, of
        self.count = int(of.max()) + 1
        self.best: tuple[float, Array] | None = None  # loss, prices
        self.history: list[dict[str, Any]] = []

    def attempt(self, rates: Array, attempts: int = ATTEMPTS) -> bool:
        """Scale prices to the budget and keep them if they are better than the best ones known."""
        shape = rates[self.of] * self.game.sizes
        try:
            price, profile, _, _ = best_price(self.game, self.budget, ROUGHLY, attempts, play, shape)
        except (NoEquilibriumError, ConvergenceError):
            return False
        loss = self.game.loss_of(profile)
        if self.best is not None and loss >= self.best[0] * (1.0 - BETTER):
            return False
        self.best = loss, price * rates
        self.history.append({"server_loss": loss, "prices": (price * rates).tolist()})
        return True

    def improve(self, step: float, deadline: float) -> bool:
        """Return True if another price for some group, up or down by ``step`` of the mean price, is better."""
        found = False
        for group in range(self.count):
            for sign in (1.0, -1.0):
                if self.best is None or clock() > deadline:
                    return False
                rates = self.best[1].copy()
                rates[group] = max(rates[group] + sign * step * max(float(rates.mean()), TINY), 0.0)
                if rates.any() and not np.array_equal(rates, self.best[1]) and self.attempt(rates):
                    found = True
                    break
        return found

    def proposal(self) -> Proposal:
        """Return the best prices with the equilibrium of the real members, proved; a hair lower where that spends too much."""
        if self.best is None:
            raise NoEquilibriumError(
                f"no prices by group within the budget {self.budget:g} make anybody take part"
            )
        rates = self.best[1]
        for shrink in LOWERED:
            payments = frozen(((1.0 - shrink) * rates)[self.of] * self.game.sizes)
            found = find_equilibrium(self.game, payments)
            spend = enclose_point(self.game, Objective(self.budget), payments, found.participation).spend
            if spend[1] <= self.budget * (1.0 + LAST_DIGITS):
                break
        else:
            raise ConvergenceError("every set of prices by group that was found spends more than the budget")
        message = (
            f"{self.count} groups, between {rates.min():.6g} and {rates.max():.6g} per sample; "
            f"the members spend at most {spend[1]:.9g}"
        )
        return Proposal(found, Status.CONVERGED, message, tuple(self.history))


def _from_the_groups(game: GameModel, budget: float, of: Index, gap: float, time_limit: float) -> list[Array]:
    """Return the best prices per sample in the game with the groups as clients; none if there are no two of them."""
    if int(of.max()) == 0:
        return []
    few = game_of_groups(game, of)
    try:
        solved = certified(few, budget, gap=gap, time_limit=time_limit, progress=False)
    except (NoEquilibriumError, ConvergenceError, InfeasibleError):
        return []
    return [np.asarray(solved.payments / few.sizes)] if solved.payments.any() else []


def game_of_groups(game: GameModel, of: Index) -> GameModel:
    """Each group as one client: the mean of its members' data, the sum of their sizes and costs; so are the removed clients."""
    count = int(of.max()) + 1
    gone = list(game.removed)
    place = np.full(len(game.all_sizes), -1, dtype=np.intp)
    place[game.remaining] = of + (1 if gone else 0)
    place[gone] = 0
    total = count + (1 if gone else 0)
    sizes = np.bincount(place, weights=game.all_sizes, minlength=total)
    shares = game.all_sizes / sizes[place]
    features = game.embeddings.features
    if features is not None:
        rows = np.zeros((total, features.shape[1]))
        for start in range(0, len(place), 65536):
            some = slice(start, start + 65536)
            np.add.at(rows, place[some], shares[some, None] * np.asarray(features[some], dtype=np.float64))
        embeddings = MeanEmbeddings.from_features(rows)
    else:
        mix = np.zeros((total, len(place)))
        mix[place, np.arange(len(place))] = shares
        inner = mix @ game.embeddings.gram @ mix.T
        embeddings = MeanEmbeddings.from_gram(0.5 * (inner + inner.T))
    changes: dict[str, Any] = (
        {} if game.has_paper_loss else {"server_loss": _loss_of_groups(game.loss, place, total)}
    )
    costs = np.bincount(of, weights=game.costs, minlength=count)
    return game.replace(
        embeddings=embeddings, sizes=sizes, removed=[0] if gone else [], names=None, costs=costs, **changes
    )


def _loss_of_groups(loss: ServerLoss, place: Index, total: int) -> ServerLoss:
    """Return a loss on mixtures of clients as a loss on mixtures of their groups."""
    targets = tuple(
        Target("mixture", tuple(np.bincount(place, weights=np.array(t.values), minlength=total).tolist()))
        if t.kind == "mixture"
        else t
        for t in loss.targets
    )
    return ServerLoss(targets, loss.weights, loss.sampling)

"""Gains from misreporting: offers are made for the reported game, clients behave in the true one.

=============  ==========================================================================================================
cost           client k reports ``factor * c_k``; everything else is as it is
size           client k brings ``factor * n_k`` samples by copying its own; mixtures count them, its cost stays
embedding      client k reports another client's embedding; the data it brings are its own
=============  ==========================================================================================================

The gain is the client's true utility under the offers of the misreported game minus that under the offers of the true one, both
where the clients settle by best responses. Reports are tried from a list, so what is found is a lower bound of what
manipulation can gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..embedding import MeanEmbeddings
from ..embedding.names import Position
from ..errors import ConvergenceError, InputError, StackfuError
from ..followers import find_equilibrium
from ..followers.below_caps import settle
from ..followers.contracts import settle_contracts
from ..model import Array, GameModel
from ..model.arguments import number
from ..model.offers import Offers, utilities_of
from ..results.manipulation import Manipulation, Misreport

__all__ = ["FACTORS", "KINDS", "manipulation"]

OfferRule = Callable[[GameModel], Offers]
KINDS = ("cost", "size", "embedding")
#: Factors by which costs and sizes are misreported.
FACTORS = (0.5, 0.8, 1.25, 2.0, 3.0)
#: A gain below this part of the client's cost is rounding.
GAINED = 1e-9


def manipulation(
    game: GameModel,
    mechanism: OfferRule,
    name: str,
    *,
    kinds: Sequence[str] = KINDS,
    clients: Iterable[int | str] | None = None,
    factors: Sequence[float] = FACTORS,
) -> Manipulation:
    """Return the best misreport of every kind for every client (by name, or by number among the original ones), under offers that a
    mechanism makes."""
    factors = _several(factors, "factors", "factors")
    for factor in factors:
        if not 0.0 < number(factor, "factors") < np.inf:
            raise InputError("factors", "must be positive and finite", value=repr(factor))
    kinds = (kinds,) if isinstance(kinds, str) else _several(kinds, "kinds", ", ".join(KINDS))
    for kind in kinds:
        if kind not in KINDS:
            raise InputError("kinds", f"must be among {', '.join(KINDS)}", value=repr(kind))
    numbers = {Position(k): i for i, k in enumerate(game.remaining)}
    named = game.client_names
    asked = numbers if clients is None else named.positions(clients, "clients", remaining=True)
    honest = _utilities(game, mechanism(game))
    misreports = []
    for k in asked:
        place = numbers[k]
        for kind in kinds:
            best, report = 0.0, "the truth"
            for label, reported, true in _reports(game, place, kind, factors):
                try:
                    gain = float(_utilities(true, mechanism(reported))[place] - honest[place])
                except StackfuError:
                    continue  # a report under which nothing can be offered
                if gain > best + GAINED * game.costs[place]:
                    best, report = gain, label
            misreports.append(Misreport(k, kind, report, best, best / float(game.costs[place])))
    return Manipulation(game, name, tuple(misreports))


def _several(values: Any, name: str, what: str) -> tuple[Any, ...]:
    """Return the items of any iterable as a tuple."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(name, f"must be a list of {what}", value=repr(values))
    return tuple(values)


def _utilities(game: GameModel, offers: Offers) -> Array:
    """Return all utilities after the clients of this game settle under the offers, starting from the offered quantities."""
    if offers.kind == "contract":
        found = settle_contracts(game, offers.caps, offers.prices * offers.caps, offers.caps)
        if found is None:
            raise ConvergenceError("best responses to the contracts did not settle")
        x = found
    else:
        try:
            x = settle(game, offers.prices, offers.caps)
        except ConvergenceError:
            # answers that go round in a circle: the equilibrium that they miss is found all the same
            x = find_equilibrium(game, offers.prices, caps=offers.caps).participation
    payouts = offers.payouts(x)
    return utilities_of(game, payouts, game.profile(x))


def _reports(
    game: GameModel, k: int, kind: str, factors: Sequence[float]
) -> Iterable[tuple[str, GameModel, GameModel]]:
    """(label, the game as reported, the game as it then is)."""
    own: dict[str, Any] = {} if game.has_paper_loss else {"server_loss": game.loss}
    if kind == "cost":
        for factor in factors:
            costs = np.array(game.costs)
            costs[k] *= factor
            yield f"{factor:g} times its cost", game.replace(costs=costs, **own), game
    elif kind == "size":
        for factor in factors:
            sizes = np.array(game.all_sizes)
            sizes[game.remaining[k]] *= factor
            other = game.replace(sizes=sizes, costs=game.costs, **own)
            yield f"{factor:g} times its size", other, other
    else:
        for j in range(game.count):
            if j != k:
                yield f"the data of client {game.label(j)}", _with_embedding_of(game, k, j, own), game


def _with_embedding_of(game: GameModel, k: int, j: int, own: dict[str, Any]) -> GameModel:
    a, b = int(game.remaining[k]), int(game.remaining[j])
    if game.embeddings.features is not None:
        rows = np.array(game.embeddings.features)
        rows[a] = rows[b]
        embeddings = MeanEmbeddings.from_features(rows)
    else:
        order = np.arange(len(game.all_sizes))
        order[a] = b
        embeddings = MeanEmbeddings.from_gram(game.embeddings.gram[np.ix_(order, order)])
    return game.replace(embeddings=embeddings, costs=game.costs, **own)

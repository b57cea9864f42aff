"""Checked data of a game.

A server has lost the clients in ``removed`` and must rebuild its model from the clients that remain. Remaining client k owns
the share ``alpha_k = n_k / n_N`` of the remaining data and takes part fully at cost ``c_k``. Every argument is checked here, before
anything is computed; an error names the argument, the client and the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..embedding import MeanEmbeddings
from ..embedding.names import ClientNames, PerClient, Position, Positions, by_name, check_names, listed
from ..errors import InputError
from .arguments import flag, number, numbers
from .geometry import Array, FeatureGeometry, Geometry, GramGeometry, frozen
from .losses import ServerLoss

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["GameData"]

#: If the rounding error of squared distances is this part of the largest one, clients are indistinguishable: a Gram matrix
#: of clients that coincide shows distances of one to four rounding errors, so the ratio lies between 1/4 and 1 (or is infinite).
INDISTINGUISHABLE = 0.2
#: Weights, norms and targets below this cannot make a loss that overflows: its terms are a weight times two squares.
FAR_FROM_OVERFLOW = 1e70
#: Losses must be this many times smaller than the largest number: they are added, squared out and compared.
HEADROOM = 64.0
#: Longer names of a currency leave no room for the numbers in a table.
LONGEST_CURRENCY = 12
TOO_LARGE = "is too large: the loss is no finite number, or nearly none"


class GameData:
    """The data of a game. Immutable; every per-client array follows the order of :attr:`remaining`."""

    __slots__ = (
        "__dict__",
        "_alpha",
        "_calibrated",
        "_costs",
        "_currency",
        "_embeddings",
        "_geometry",
        "_kappa",
        "_loss",
        "_names",
        "_remaining",
        "_removed",
        "_sizes",
        "_weights",
    )

    def __init__(
        self,
        embeddings: MeanEmbeddings,
        sizes: PerClient | None = None,
        removed: Iterable[int | str] | int | str = (),
        *,
        names: Sequence[str] | None = None,
        costs: PerClient | None = None,
        cost_scale: float = 10.0,
        lambda_v: float = 1.0,
        lambda_s: float = 1.0,
        lambda_q: float = 1.0,
        loss_constant: float = 1.0,
        sampling_constant: float = 0.0,
        calibrated: bool = False,
        server_loss: ServerLoss | None = None,
        currency: str | None = None,
    ) -> None:
        if not isinstance(embeddings, MeanEmbeddings):
            raise InputError("embeddings", "must be MeanEmbeddings", value=type(embeddings).__name__)
        count = len(embeddings)
        called = _names_of_the_game(names, embeddings)
        who: Sequence[int | str] = range(count) if called is None else called
        if sizes is None and (sizes := embeddings.sample_counts) is None:
            raise InputError(
                "sizes",
                "must say how much data each client has: embeddings that were not made from samples do not know",
            )
        everyone = ClientNames(count, called)
        all_sizes = vector(
            by_name(sizes, "sizes", everyone), "sizes", count, "embeddings has {} clients", who.__getitem__
        )
        _require_positive(all_sizes, "sizes", who)
        gone = tuple(sorted(everyone.positions(removed, "removed", removing=True)))
        keep = _those_who_stay(gone, count, who)
        asked = ClientNames(count, called, keep)
        weights = _weights_of_the_game(lambda_v, lambda_s, lambda_q, loss_constant, sampling_constant)
        if not np.isfinite(_quiet_sum(all_sizes)):
            raise InputError("sizes", "are too large: their sum is not a number", value=all_sizes.max())
        alpha = all_sizes[keep] / all_sizes[keep].sum()
        cost = (
            _costs_by_size(cost_scale, all_sizes, keep)
            if costs is None
            else _costs_as_given(costs, asked, [who[k] for k in keep])
        )
        _require_reluctance(
            cost, weights["lambda_q"] * weights["loss_constant"], alpha, lambda k: who[int(keep[k])]
        )
        self._embeddings = embeddings
        self._loss = _loss_of_the_game(server_loss, weights, embeddings)
        self._names = called
        self._calibrated = flag(calibrated, "calibrated")
        self._currency = check_currency(currency)
        self._sizes = frozen(all_sizes)
        self._removed = gone
        self._remaining = keep
        self._remaining.setflags(write=False)
        self._alpha = frozen(alpha)
        self._costs = frozen(cost)
        self._kappa = frozen(cost / alpha)
        self._weights = weights
        self._geometry = _geometry_of(embeddings, keep, self._alpha, all_sizes / all_sizes.sum())
        self._require_a_finite_loss()

    def _require_a_finite_loss(self) -> None:
        """Weights times the largest squared distances to the targets, all of which are added up, must be a number."""
        loss, geometry, total = self._loss, self._geometry, 0.0
        given = [self.sampling, *loss.weights, *(v for target in loss.targets for v in target.values)]
        with np.errstate(over="ignore", invalid="ignore"):
            if max(float(np.max(self._embeddings.squared_norms)), *np.abs(given)) <= FAR_FROM_OVERFLOW:
                return
            for j, (weight, target) in enumerate(zip(loss.weights, loss.targets, strict=True)):
                # no client is farther from a target than from mu_N and on from there
                reach = np.sqrt(geometry.scale) + np.sqrt(geometry.target(target)[1])
                total += float(HEADROOM * weight * (reach**2 + self.sampling)) if weight > 0 else 0.0
                if np.isfinite(total):
                    continue
                if not self.has_paper_loss:
                    raise InputError(
                        "server_loss",
                        f"target {j} is too far away or weighs too much: the loss is no finite number, or nearly none",
                        value=repr(loss),
                    )
                name = ("lambda_v", "lambda_s")[j]
                raise InputError(name, TOO_LARGE, value=self._weights[name])

    # ---------------------------------------------------------------- data

    @property
    def embeddings(self) -> MeanEmbeddings:
        """Mean embeddings of all original clients."""
        return self._embeddings

    @property
    def geometry(self) -> Geometry:
        """Distances between mixtures of the remaining clients, see :mod:`stackfu.model.geometry`."""
        return self._geometry

    @property
    def removed(self) -> tuple[Position, ...]:
        """Numbers of the removed clients, ascending: their positions among the original clients."""
        return self._removed

    @cached_property
    def remaining(self) -> Positions:
        """Numbers of the remaining clients, ascending; every per-client array follows this order."""
        return self._remaining.view(Positions)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all original clients; their numbers, if they came without names."""
        return tuple(map(str, range(len(self._sizes)))) if self._names is None else self._names

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the remaining clients, in the order of every per-client array."""
        everybody = self.all_names
        return tuple(everybody[k] for k in self._remaining)

    @property
    def removed_names(self) -> tuple[str, ...]:
        """Names of the removed clients, in the order of :attr:`removed`."""
        return tuple(self.called(k) for k in self._removed)

    @cached_property
    def client_names(self) -> ClientNames:
        """The clients as arguments name them; values are asked for those that remain."""
        return ClientNames(len(self._sizes), self._names, self._remaining)

    @property
    def has_names(self) -> bool:
        """True if the clients came with their own names."""
        return self._names is not None

    def label(self, k: int) -> int | str:
        """Return the label of remaining client k in messages: its name, or its number among the original clients."""
        number = int(self._remaining[k])
        return number if self._names is None else self._names[number]

    def called(self, number: int) -> str:
        """Return the name of the original client with this number."""
        return str(number) if self._names is None else self._names[number]

    @property
    def count(self) -> int:
        """N, the number of remaining clients."""
        return len(self._remaining)

    @property
    def sizes(self) -> Array:
        """Amounts of data of the remaining clients."""
        return frozen(self._sizes[self._remaining])

    @property
    def all_sizes(self) -> Array:
        """Amounts of data of all original clients."""
        return self._sizes

    @property
    def alpha(self) -> Array:
        """``alpha_k = n_k / n_N``, shares of the remaining data."""
        return self._alpha

    @property
    def costs(self) -> Array:
        """``c_k``, cost of full participation."""
        return self._costs

    @property
    def kappa(self) -> Array:
        """``kappa_k = c_k / alpha_k``, cost per share of the remaining data."""
        return self._kappa

    @property
    def lambda_v(self) -> float:
        """Weight of unlearning effectiveness."""
        return self._weights["lambda_v"]

    @property
    def lambda_s(self) -> float:
        """Weight of global stability."""
        return self._weights["lambda_s"]

    @property
    def lambda_q(self) -> float:
        """Price that clients put on a unit of their own loss: money, in the currency of the costs."""
        return self._weights["lambda_q"]

    @property
    def loss_constant(self) -> float:
        """C, loss per squared embedding distance."""
        return self._weights["loss_constant"]

    @property
    def sampling_constant(self) -> float:
        """A, loss per ``1 / n_used``, clients' and server's; 0 is the paper."""
        return self._weights["sampling_constant"]

    @cached_property
    def sampling(self) -> float:
        """``a = A / (C n_N)``: the sampling loss at full participation in units of squared distance; it grows as ``a / S``."""
        samples = float(self._sizes[self._remaining].sum())
        return self.sampling_constant / (self.loss_constant * samples)

    @property
    def calibrated(self) -> bool:
        """True if C and A were fitted to observed trainings; otherwise results that depend on their size are a guess."""
        return self._calibrated

    @property
    def currency(self) -> str | None:
        """Name of the unit of costs, payments and budgets in tables and pages ("EUR"); None if none was given."""
        return self._currency

    @cached_property
    def distances_to_original(self) -> Array:
        """``||mu_k - mu_O||^2`` for every remaining client: how far the original mixture was from its data."""
        return frozen(self._geometry.to_original)

    @property
    def loss(self) -> ServerLoss:
        """The server's loss as a value: targets, weights, sampling term; see :mod:`stackfu.model.losses`."""
        return self._loss

    @property
    def has_paper_loss(self) -> bool:
        """True if the loss is the paper's with the weights ``lam_v`` and ``lam_s``, not a user's own."""
        return self._loss == ServerLoss.of_paper(self.lam_v, self.lam_s)

    @cached_property
    def loss_centre(self) -> tuple[float, Array, float]:
        """The loss around ``mu_N`` as ``weight (||m||^2 - 2 pull . z + square)``: its weight, pull and square.

        ``pull_k = <mu_k - mu_N, t - mu_N>`` with the weighted mean t of the targets, ``square`` their mean squared distance.
        """
        weight = self._loss.weight
        if weight == 0.0:
            return 0.0, frozen(np.zeros(self.count)), 0.0
        shares = np.array(self._loss.weights) / weight
        pulls, squares = zip(*(self._geometry.target(t) for t in self._loss.targets), strict=True)
        return weight, frozen(shares @ np.array(pulls)), float(shares @ np.array(squares))

    @property
    def lam(self) -> float:
        """``lam = lambda_q C``."""
        return self.lambda_q * self.loss_constant

    @cached_property
    def drift_weight(self) -> Array:
        """``2 lam alpha_k``: what a client's wishes, in squared distances, weigh in units of cost."""
        return frozen(2.0 * self.lam * self._alpha)

    @property
    def lam_v(self) -> float:
        """``lam_v = lambda_v C``."""
        return self.lambda_v * self.loss_constant

    @property
    def lam_s(self) -> float:
        """``lam_s = lambda_s C``."""
        return self.lambda_s * self.loss_constant

    @property
    def diameter(self) -> float:
        """Largest distance between two remaining clients (for very many, to their mean)."""
        return float(np.sqrt(self._geometry.scale))

    @cached_property
    def heterogeneity(self) -> Array:
        """``||mu_k - mu_R||``, distance of every remaining client to the removed clients' joint data."""
        if not self._removed:
            return frozen(np.full(self.count, np.nan))
        gone = np.array(self._removed)
        share = self._sizes[gone] / self._sizes[gone].sum()
        if isinstance(self._geometry, FeatureGeometry):
            centre = share @ np.asarray(self._geometry.features[gone], dtype=np.float64)
            return frozen(np.sqrt(self._geometry.squared_distances(centre)))
        gram = self._embeddings.gram
        inner = gram[np.ix_(self._remaining, gone)] @ share
        square = share @ gram[np.ix_(gone, gone)] @ share
        return frozen(np.sqrt(np.maximum(np.diag(gram)[self._remaining] - 2.0 * inner + square, 0.0)))

    @property
    def rounding(self) -> float:
        """Rounding error of squared distances relative to the largest one between clients."""
        return self._geometry.rounding

    @cached_property
    def is_homogeneous(self) -> bool:
        """True if all remaining clients have the same embedding, so that drift does not matter to any of them."""
        return self.rounding >= INDISTINGUISHABLE

    def replace(self, **changes: Any) -> Self:
        """Return a game that differs in the named constructor arguments.

        Unless ``costs`` is given, the costs are kept when the clients that remain do not change.
        """
        return type(self)(**self.arguments(**changes))

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """Return the constructor's arguments for this game, or for one that differs in the named arguments."""
        kept: dict[str, Any] = {
            "embeddings": self._embeddings,
            "sizes": self._sizes,
            "removed": self._removed,
            "names": self._names,
            "costs": self._costs,
            "calibrated": self._calibrated,
            "currency": self._currency,
            **self._weights,
        }
        if not self.has_paper_loss:
            kept["server_loss"] = self._loss
        unknown = changes.keys() - kept.keys() - {"cost_scale", "server_loss"}
        if unknown:
            known = ", ".join(dict.fromkeys([*kept, "cost_scale", "server_loss"]))
            raise InputError(min(unknown), f"is not an argument of a game; those are {known}")
        if {"sizes", "removed", "embeddings", "cost_scale"} & changes.keys() and "costs" not in changes:
            del kept["costs"]
        others = getattr(changes.get("embeddings"), "names", None)
        if others is not None and "names" not in changes and others != self.all_names:
            raise InputError(
                "embeddings", "name other clients than this game, or in another order", value=listed(others)
            )
        return {**kept, **changes}

    # ---------------------------------------------------------------- identity

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_") and not hasattr(self, name):
            object.__setattr__(self, name, value)
            return
        raise AttributeError(
            f"a {type(self).__name__} is immutable; use replace({name}=...) to get another one"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GameData):
            return NotImplemented
        return (
            self._removed == other._removed
            and self._names == other._names
            and self._calibrated == other._calibrated
            and self._currency == other._currency
            and self._weights == other._weights
            and self._loss == other._loss
            and np.array_equal(self._sizes, other._sizes)
            and np.array_equal(self._costs, other._costs)
            and self._embeddings == other._embeddings
        )

    def __hash__(self) -> int:
        return hash(
            (self._removed, tuple(self._weights.values()), self._sizes.tobytes(), self._costs.tobytes())
        )

    def __repr__(self) -> str:
        gone = self._removed if self._names is None else tuple(self._names[k] for k in self._removed)
        shown = gone if len(gone) <= 6 else f"{len(gone)} of them"
        return (
            f"{type(self).__name__}({len(self._sizes)} clients, removed {shown}, {self.count} remaining, "
            f"largest share {self._alpha.max():.0%}, diameter {self.diameter:.3g})"
        )


# -------------------------------------------------------------------- validation


def _number(value: object, name: str) -> float:
    found = number(value, name)
    if not np.isfinite(found):
        raise InputError(name, "must be finite", value=found)
    return found


def _quiet_sum(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(values.sum())


def vector(
    values: npt.ArrayLike, name: str, count: int, why: str, who: Callable[[int], int | str] | None = None
) -> Array:
    """Return a finite float64 vector of the right length; errors name the entry, by client if ``who`` is given."""
    vector = numbers(values, name, who=who)
    if vector.ndim != 1 or len(vector) != count:
        raise InputError(name, f"needs {count} numbers ({why.format(count)}), got shape {vector.shape}")
    if not np.isfinite(vector).all():
        bad = int(np.flatnonzero(~np.isfinite(vector))[0])
        if who is not None:
            raise InputError(name, "must be finite", client=who(bad), value=vector[bad])
        raise InputError(name, f"entry {bad} must be finite", value=vector[bad])
    return vector


def _require_positive(values: Array, name: str, who: Sequence[int | str]) -> None:
    bad = np.flatnonzero(values <= 0)
    if len(bad):
        raise InputError(name, "must be positive", client=who[int(bad[0])], value=values[bad[0]])


def check_currency(currency: object) -> str | None:
    """Return the name of a unit of money, None where there is none.

    >>> check_currency(" EUR ")
    'EUR'
    """
    if currency is None:
        return None
    text = currency.strip() if isinstance(currency, str) else ""
    if not text or len(text) > LONGEST_CURRENCY or not text.isprintable():
        raise InputError(
            "currency",
            f'must be the short name of a unit of money, such as "EUR" (at most {LONGEST_CURRENCY} characters)',
            value=repr(currency),
        )
    return text


def _names_of_the_game(names: Sequence[Any] | None, embeddings: MeanEmbeddings) -> tuple[str, ...] | None:
    """Return one name per client; None where the clients have numbers only, or names that are these numbers in order."""
    own = embeddings.names
    called = own if names is None else check_names(names, len(embeddings))
    if called is not None and own is not None and called != own and ClientNames.of(own, len(own)).names:
        k = next(k for k, (name, theirs) in enumerate(zip(called, own, strict=True)) if name != theirs)
        raise InputError(
            "names",
            f"the embeddings name the clients already, and call this one {own[k]!r}",
            client=k,
            value=repr(called[k]),
        )
    return None if called is None or ClientNames.of(called, len(called)).names is None else called


def _those_who_stay(gone: tuple[Position, ...], count: int, who: Sequence[int | str]) -> npt.NDArray[np.intp]:
    """Return the clients that are left, at least two."""
    keep = np.setdiff1d(np.arange(count), np.array(gone, dtype=np.intp))
    if len(keep) == 0:
        raise InputError("removed", "nobody is left", value=tuple(who[k] for k in gone))
    if len(keep) == 1:
        raise InputError(
            "removed",
            f"only client {who[keep[0]]} is left; a game needs at least two remaining clients",
            value=tuple(who[k] for k in gone),
        )
    return keep


def _weights_of_the_game(
    lambda_v: float, lambda_s: float, lambda_q: float, loss_constant: float, sampling_constant: float
) -> dict[str, float]:
    """Return the weights and constants by name: none negative, lambda_q and C positive."""
    weights = {
        "lambda_v": _number(lambda_v, "lambda_v"),
        "lambda_s": _number(lambda_s, "lambda_s"),
        "lambda_q": _number(lambda_q, "lambda_q"),
        "loss_constant": _number(loss_constant, "loss_constant"),
        "sampling_constant": _number(sampling_constant, "sampling_constant"),
    }
    for name, value in weights.items():
        positive = name in ("lambda_q", "loss_constant")
        if value < 0 or (positive and value == 0):
            raise InputError(name, "must be positive" if positive else "must not be negative", value=value)
    return weights


def _costs_by_size(cost_scale: float, sizes: Array, keep: npt.NDArray[np.intp]) -> Array:
    """Costs in proportion to the clients' shares of all data, that of removed clients included."""
    scale = _number(cost_scale, "cost_scale")
    if scale <= 0:
        raise InputError("cost_scale", "must be positive", value=scale)
    return np.asarray(scale * sizes[keep] / sizes.sum())


def _costs_as_given(costs: PerClient, clients: ClientNames, who: Sequence[int | str]) -> Array:
    """Return one positive cost per client that is left."""
    cost = vector(by_name(costs, "costs", clients), "costs", len(who), "{} clients remain", who.__getitem__)
    _require_positive(cost, "costs", who)
    return cost


def _require_reluctance(cost: Array, lam: float, alpha: Array, who: Callable[[int], int | str]) -> None:
    """Every formula divides costs by lam."""
    with np.errstate(over="ignore", divide="ignore", under="ignore", invalid="ignore"):
        reluctance = cost / (2.0 * lam * alpha)
    if not np.isfinite(reluctance).all():
        k = int(np.argmin(np.isfinite(reluctance)))
        raise InputError(
            "costs",
            "are too large relative to lambda_q * loss_constant: the ratio is not a number",
            client=who(k),
            value=cost[k],
        )


def _geometry_of(
    embeddings: MeanEmbeddings, keep: npt.NDArray[np.intp], alpha: Array, original_weights: Array
) -> Geometry:
    """Features where they are fewer than clients, inner products otherwise."""
    features = embeddings.features
    if features is None:
        # the embeddings know 1 - G better than G where clients are nearly alike; centring ignores the constant
        return GramGeometry(embeddings._inner_products, keep, alpha, original_weights)
    if features.shape[1] < len(keep):
        return FeatureGeometry(features, keep, alpha, original_weights)
    return GramGeometry.of_features(features, keep, alpha, original_weights)


def _loss_of_the_game(
    server_loss: ServerLoss | None, weights: dict[str, float], embeddings: MeanEmbeddings
) -> ServerLoss:
    """Return the paper's loss, or a user's own."""
    lambda_v, lambda_s, constant = (weights[name] for name in ("lambda_v", "lambda_s", "loss_constant"))
    if server_loss is None:
        for name, sum_so_far in (("lambda_v", lambda_v), ("lambda_s", lambda_v + lambda_s)):
            if not np.isfinite(sum_so_far * constant):
                raise InputError(name, TOO_LARGE, value=weights[name])
        return ServerLoss.of_paper(lambda_v * constant, lambda_s * constant)
    return _own_loss(server_loss, lambda_v, lambda_s, embeddings)


def _own_loss(loss: object, lambda_v: float, lambda_s: float, embeddings: MeanEmbeddings) -> ServerLoss:
    """Return a user's own loss, if it fits the game."""
    if type(loss) is not ServerLoss:  # solvers and files read its fields, not what a subclass makes of them
        raise InputError(
            "server_loss", "must be a ServerLoss, not a class of your own", value=type(loss).__name__
        )
    if (lambda_v, lambda_s) != (1.0, 1.0):
        name, value = ("lambda_v", lambda_v) if lambda_v != 1.0 else ("lambda_s", lambda_s)
        raise InputError(name, "weighs the paper's loss; server_loss has its own weights", value=value)
    features = embeddings.features
    loss.check(len(embeddings), None if features is None else features.shape[1])
    return loss

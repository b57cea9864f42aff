"""Quantities that can be differentiated, as partial derivatives with respect to the components of a profile.

Every output is a function of y and of quantities that depend on y and on the parameters: squared distances of the mixture to the
clients and to the targets of the server's loss, the shares alpha, payments, costs, ``lam``, ``a``, the number ``n_N`` of samples,
the weights of the loss and the variances of one sample. A :class:`Partials` holds the derivatives of one or several outputs with
respect to all of them, one row per output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..model import Array
from .conditions import Conditions

__all__ = ["OUTPUTS", "Partials", "conditions_as_outputs", "partials_of"]


@dataclass(eq=False)
class Partials:
    """Partial derivatives of ``rows`` outputs; what is not given is zero."""

    rows: int
    clients: int
    targets: int
    given: dict[str, Array] = field(default_factory=dict)

    def of(self, name: str) -> Array:
        """Return the derivatives with respect to a quantity, one row per output."""
        if name in self.given:
            return self.given[name]
        if name in ("lam", "sampling", "samples"):
            return np.zeros(self.rows)
        return np.zeros((self.rows, self.targets if name in ("distances", "weights") else self.clients))

    def weighted(self, rows: Array) -> Partials:
        """Return the derivatives of weighted sums of the outputs, one per row of weights."""
        return Partials(
            len(rows), self.clients, self.targets, {name: rows @ value for name, value in self.given.items()}
        )


def _empty(at: Conditions, rows: int, **given: Array) -> Partials:
    return Partials(rows, at.game.count, len(at.game.loss.targets), given)


def _participation(at: Conditions) -> Partials:
    alpha = at.game.alpha
    return _empty(at, len(alpha), y=np.diag(1.0 / alpha), alpha=np.diag(-at.x / alpha))


def _samples(at: Conditions) -> Partials:
    count = float(at.game.sizes.sum())
    return _empty(at, len(at.y), y=count * np.eye(len(at.y)), samples=np.array(at.y))


def _total(at: Conditions) -> Partials:
    return _empty(at, 1, y=np.ones((1, len(at.y))))


def _spend(at: Conditions) -> Partials:
    alpha, x = at.game.alpha, at.x
    return _empty(
        at,
        1,
        y=(at.payments / alpha)[None],
        alpha=(-at.payments * x / alpha)[None],
        payments=x[None],
    )


def _utilities(at: Conditions) -> Partials:
    game, x = at.game, at.x
    net, thin = (at.payments - game.costs) / game.alpha, game.lam * game.sampling / at.total**2
    return _empty(
        at,
        game.count,
        y=np.diag(net) + thin,
        alpha=np.diag(-net * x),
        drift=-game.lam * np.eye(game.count),
        payments=np.diag(x),
        costs=np.diag(-x),
        lam=-(at.drift + game.sampling / at.total),
        sampling=np.full(game.count, -game.lam / at.total),
    )


def _server_loss(at: Conditions) -> Partials:
    game, total = at.game, at.total
    loss, profile = game.loss, game.profile(np.clip(at.x, 0.0, 1.0))
    weights = np.array(loss.weights)
    squares = np.array([game.geometry.to_target(at.z, profile.distances, t) for t in loss.targets])
    y = np.full(game.count, -loss.weight * game.sampling / total**2)
    each = squares + game.sampling / total
    given: dict[str, Array] = {}
    if loss.sampling:
        count = float(game.sizes.sum())
        noise = game.sampling_noise
        penalty = float(at.z @ noise) / (count * total)
        y = y + loss.weight * (noise / (count * total**2) - 2.0 * penalty / total)
        each = each + penalty
        given = {
            "noise": (loss.weight * at.y / (count * total**2))[None],
            "samples": np.array([-loss.weight * penalty / count]),
        }
    return _empty(
        at,
        1,
        y=y[None],
        distances=weights[None],
        weights=each[None],
        sampling=np.array([loss.weight / total]),
        **given,
    )


def conditions_as_outputs(at: Conditions) -> Partials:
    """Return the partial derivatives of ``g_k = d_k^2 + a / (2 S) - S w_k``."""
    size, total = at.game.count, at.total
    own = -(at.game.sampling / (2.0 * total**2) + at.w)
    return _empty(
        at,
        size,
        y=np.repeat(own[:, None], size, axis=1),
        drift=np.eye(size),
        sampling=np.full(size, 0.5 / total),
        reluctance=-total * np.eye(size),
    )


#: Quantities that can be differentiated, by name; True for one number per client, False for a single number.
OUTPUTS: dict[str, bool] = {
    "participation": True,
    "samples": True,
    "utilities": True,
    "total": False,
    "server_loss": False,
    "spend": False,
}

_MADE: dict[str, Callable[[Conditions], Partials]] = {
    "participation": _participation,
    "samples": _samples,
    "utilities": _utilities,
    "total": _total,
    "server_loss": _server_loss,
    "spend": _spend,
}


def partials_of(at: Conditions, name: str) -> Partials:
    """Return the partial derivatives of an output."""
    return _MADE[name](at)

"""Reference games with known answers, for tests, teaching and comparisons.

>>> from stackfu import catalog
>>> for entry in catalog.entries():
...     print(entry.name)
two_clients
two_clients_capped
identical_clients
homogeneous
collapse
three_equilibria
seven_clients
>>> entry = catalog.three_equilibria()
>>> [round(e.total, 4) for e in entry.game.equilibria(entry.payments)]
[0.3906, 0.5007, 0.5289]

The games against statements that do not hold as published are here too, each with the inequality it breaks:

>>> found = catalog.counterexamples()["quasiconvexity"]
>>> found.game.count, found.violation > 0
(2, True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .embedding import MeanEmbeddings
from .game import StackelbergGame
from .model.geometry import Array, frozen
from .results import Uniqueness

if TYPE_CHECKING:
    from .lemmas import Counterexample

__all__ = [
    "ReferenceGame",
    "collapse",
    "counterexamples",
    "entries",
    "homogeneous",
    "identical_clients",
    "seven_clients",
    "three_equilibria",
    "two_clients",
    "two_clients_capped",
]


@dataclass(frozen=True, eq=False)
class ReferenceGame:
    """A game, payments, and what is known about the clients' equilibria under them.

    ``equilibria`` holds the known participation profiles by ascending total, each good to ``tolerance``; of a
    continuum one representative, of which only S and the mean embedding are determined.
    """

    name: str
    story: str
    game: StackelbergGame
    payments: Array
    equilibria: tuple[Array, ...]
    uniqueness: Uniqueness
    tolerance: float

    @property
    def totals(self) -> tuple[float, ...]:
        """Total participation S at the known equilibria."""
        return tuple(float(self.game.alpha @ x) for x in self.equilibria)


def entries() -> tuple[ReferenceGame, ...]:
    """Return all reference games."""
    makers: tuple[Callable[[], ReferenceGame], ...] = (
        two_clients,
        two_clients_capped,
        identical_clients,
        homogeneous,
        collapse,
        three_equilibria,
        seven_clients,
    )
    return tuple(make() for make in makers)


def counterexamples() -> dict[str, Counterexample]:
    """Return the smallest game known against each statement that does not hold as published, by the statement's name.

    Building one recomputes both sides of the inequality it breaks, so this takes a second or two.
    """
    from .lemmas import ALL

    return {name: statement.refute() for name, statement in ALL.items() if statement.counterexample}


def _game_with(gram: npt.ArrayLike, alpha: npt.ArrayLike, w: npt.ArrayLike) -> StackelbergGame:
    """Return a game with given inner products, shares, and reluctances when nothing is paid."""
    shares = np.asarray(alpha, dtype=np.float64)
    costs = 2.0 * shares * np.asarray(w, dtype=np.float64)
    return StackelbergGame(MeanEmbeddings.from_gram(np.asarray(gram, dtype=np.float64)), shares, costs=costs)


def two_clients(w: tuple[float, float] = (2.0, 8.0), distance: float = 1.0) -> ReferenceGame:
    """Return two clients, no cap binding: a closed form.

    With ``d_1 = z_2 D`` and ``d_2 = z_1 D``, ``d_k^2 = S w_k`` gives ``z_1 = sqrt(w_2) / (sqrt(w_1) +
    sqrt(w_2))`` and ``S = D^2 / (sqrt(w_1) + sqrt(w_2))^2``: the less reluctant client brings more.

    >>> entry = two_clients()
    >>> entry.game.equilibrium().participation.round(6)
    array([0.074074, 0.037037])
    """
    roots = np.sqrt(np.array(w))
    total = distance**2 / roots.sum() ** 2
    x = total * roots[::-1] / roots.sum() / 0.5
    if np.any(x > 1):
        raise ValueError("a cap binds; choose larger w")
    game = _game_with(np.diag([0.5, 0.5]) * distance**2, [0.5, 0.5], w)
    return ReferenceGame(
        "two_clients",
        "two clients with half of the data each, no client at a bound",
        game,
        frozen(np.zeros(2)),
        (frozen(x),),
        Uniqueness.UNIQUE,
        1e-13,
    )


def two_clients_capped() -> ReferenceGame:
    """Return two clients, one of them small and willing: it takes part fully, the other in closed form.

    With ``y_1 = alpha_1`` the second client's condition ``(alpha_1 D / S)^2 = S w_2`` gives
    ``S = (alpha_1^2 D^2 / w_2)^(1/3)``.
    """
    alpha, distance, w = np.array([0.1, 0.9]), 1.0, np.array([0.5, 1.0])
    total = float(np.cbrt(alpha[0] ** 2 * distance**2 / w[1]))
    x = np.array([1.0, (total - alpha[0]) / alpha[1]])
    return ReferenceGame(
        "two_clients_capped",
        "a small willing client at its cap, a large one inside",
        _game_with(np.diag([0.5, 0.5]) * distance**2, alpha, w),
        frozen(np.zeros(2)),
        (frozen(x),),
        Uniqueness.UNIQUE,
        1e-13,
    )


def identical_clients() -> ReferenceGame:
    """Return two clients with the same data and reluctance against a third: they can trade participation.

    Total and mean are those of :func:`two_clients` with the twins as one client; how the twins share it is
    open.
    """
    w = np.array([2.0, 2.0, 8.0])
    points = np.array([[0.0], [0.0], [1.0]])
    roots = np.sqrt(np.array([2.0, 8.0]))
    total = 1.0 / roots.sum() ** 2
    twins, other = total * roots[::-1] / roots.sum()
    alpha = np.array([0.3, 0.3, 0.4])
    x = np.array([twins / 2 / 0.3, twins / 2 / 0.3, other / 0.4])
    return ReferenceGame(
        "identical_clients",
        "two clients own the same data; only what they bring together is determined",
        _game_with(points @ points.T, alpha, w),
        frozen(np.zeros(3)),
        (frozen(x),),
        Uniqueness.CONTINUUM,
        1e-13,
    )


def homogeneous() -> ReferenceGame:
    """Game of clients with the same data: a client paid above cost takes part fully, one paid below cost stays out."""
    game = StackelbergGame(
        MeanEmbeddings.from_gram(np.ones((4, 4))), [10, 20, 30, 40], costs=[1.0, 1.0, 1.0, 1.0]
    )
    return ReferenceGame(
        "homogeneous",
        "all clients own the same data, some are paid above their cost",
        game,
        frozen([2.0, 0.5, 1.5, 0.0]),
        (frozen([1.0, 0.0, 1.0, 0.0]),),
        Uniqueness.UNIQUE,
        0.0,
    )


def collapse() -> ReferenceGame:
    """Game of clients with the same data, all paid below cost: no client takes part, and that is no profile."""
    game = StackelbergGame(MeanEmbeddings.from_gram(np.ones((3, 3))), [1, 1, 1], costs=[1.0, 1.0, 1.0])
    return ReferenceGame(
        "collapse",
        "all clients own the same data and are paid below their cost",
        game,
        frozen([0.5, 0.5, 0.0]),
        (),
        Uniqueness.UNKNOWN,
        0.0,
    )


def three_equilibria() -> ReferenceGame:
    """Five heterogeneous clients with three isolated equilibria, at S = 0.3906, 0.5007 and 0.5289."""
    upper = [
        [4.636498602585951, -0.1293805271123521, 5.325809935032127, -3.061627684315047, 2.5509781438002057],
        [4.3275375528593205, -0.007949759518994745, 2.102701997688689, -0.5278559927347637],
        [9.744528308413223, -0.25551775894296913, 0.6360855277792035],
        [7.568280436620068, -4.529605425927476],
        [3.102479800775783],
    ]
    gram = np.zeros((5, 5))
    for i, row in enumerate(upper):
        gram[i, i:] = gram[i:, i] = row
    alpha = [0.5199244728060167, 0.016211365269793884, 0.18901840318753996, 0.05311698725166558]
    alpha.append(0.22172877148498382)
    w = [0.9745622273424625, 1.2659632779043422, 12.510631569825257, 54.584072173079925, 0.4895605502606312]
    known = (
        [0.06945707926302523, 1.0, 0.6168536568632028, 0.0, 1.0],
        [0.46724405721479634, 1.0, 0.10510427315136446, 0.0, 1.0],
        [0.5596414110036831, 1.0, 0.0, 0.0, 1.0],
    )
    return ReferenceGame(
        "three_equilibria",
        "strong heterogeneity and a reluctant client with much data: three isolated equilibria",
        _game_with(gram, alpha, w),
        frozen(np.zeros(5)),
        tuple(frozen(x) for x in known),
        Uniqueness.MULTIPLE,
        1e-10,
    )


#: Shares of the remaining data and distances to the removed clients' data of :func:`seven_clients`.
SEVEN_SHARES = (0.0019, 0.2119, 0.0328, 0.0081, 0.5920, 0.1513, 0.0019)
SEVEN_HETEROGENEITIES = (0.16, 0.11, 0.17, 0.27, 0.11, 0.03, 0.36)


def seven_clients() -> ReferenceGame:
    """Seven remaining clients and a removed one, with very uneven shares of the data.

    Client k lies at distance ``h_k`` from the removed client's data, in a direction of its own, so ``d_k^2 =
    h_k^2 (1 - 2 z_k) + sum_i z_i^2 h_i^2``. Costs are proportional to data and nothing is paid, so every
    ``w_k`` is 0.1. Clients 0, 2, 3 and 6 take part fully, 5 stays out, and 1 and 4, equally far from the
    removed data, bring the same y each. With A the sum of alpha and Q that of ``alpha^2 h^2`` over those at
    their caps, y solves the cubic ``h^2 (S^2 - 2 y S + 2 y^2) + Q = w S^3``, ``S = A + 2 y``.
    """
    h = np.array(SEVEN_HETEROGENEITIES)
    alpha = np.array(SEVEN_SHARES) / sum(SEVEN_SHARES)
    w = 0.1
    points = np.vstack([np.diag(h), np.zeros(7)])
    game = StackelbergGame(
        MeanEmbeddings.from_gram(points @ points.T),
        np.append(alpha, 1.0),
        removed=[7],
        costs=2.0 * w * alpha,
    )
    full = np.array([0, 2, 3, 6])
    caps, spread = alpha[full].sum(), (alpha[full] ** 2 * h[full] ** 2).sum()
    y, total = np.polynomial.Polynomial([0.0, 1.0]), np.polynomial.Polynomial([caps, 2.0])
    roots = (h[1] ** 2 * (total**2 - 2 * y * total + 2 * y**2) + spread - w * total**3).roots()
    share = float(next(r.real for r in roots if abs(r.imag) < 1e-12 and 0 < r.real < alpha[1]))
    x = np.zeros(7)
    x[full] = 1.0
    x[[1, 4]] = share / alpha[[1, 4]]
    return ReferenceGame(
        "seven_clients",
        "seven clients with 0.19% to 59% of the data, at different distances from the removed data",
        game,
        frozen(np.zeros(7)),
        (frozen(x),),
        Uniqueness.UNIQUE,
        1e-12,
    )

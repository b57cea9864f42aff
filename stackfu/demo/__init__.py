"""A small federation to try things on: digits over ten clients, three of whom want to be forgotten.

The 1797 digits (8 x 8 pixels; E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI
Machine Learning Repository, 1998, CC BY 4.0) come with the package, so nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = ["Federation", "digits", "digits_federation", "digits_game"]

#: Every client is due at least this many digits, however the shares are drawn (up to rounding).
SMALLEST_CLIENT = 20


@dataclass(frozen=True, eq=False)
class Federation:
    """Samples and labels of every client, and who wants to be forgotten."""

    samples: tuple[npt.NDArray[np.float64], ...]
    labels: tuple[npt.NDArray[np.intp], ...]
    removed: tuple[int, ...]

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        """Number of samples of every client."""
        return np.array([len(sample) for sample in self.samples])

    def game(self, bandwidth: float | str = "median", **options: Any) -> StackelbergGame:
        """Return the game of this federation; ``options`` are those of :class:`~stackfu.StackelbergGame`."""
        from ..embedding import MeanEmbeddings
        from ..game import StackelbergGame

        embeddings = MeanEmbeddings.from_samples(self.samples, bandwidth=bandwidth)
        return StackelbergGame(embeddings, self.sizes, self.removed, **options)


def digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Images as (1797, 64) intensities in [0, 1], and their labels.

    >>> images, labels = digits()
    >>> images.shape, labels[:5].tolist()
    ((1797, 64), [0, 1, 2, 3, 4])
    """
    with (files("stackfu.demo") / "digits.npz").open("rb") as file, np.load(file) as stored:
        return stored["images"] / 16.0, stored["labels"].astype(np.intp)


def digits_federation(
    clients: int = 10, removed: tuple[int, ...] = (0, 1, 2), *, beta: float = 0.2, seed: int = 0
) -> Federation:
    """Digits shared out with Dirichlet(beta)-distributed labels and quantities.

    Client i's wish for label c is ``q_i P_ic`` with shares ``q ~ Dir(beta)`` over the clients (lifted so that
    nobody has fewer than about 20 digits) and label mixtures ``P_i ~ Dir(beta)``. The wishes are scaled by
    rows and columns to the quantities ``q_i n`` and the label counts; each digit goes to one client.

    >>> digits_federation().sizes.tolist()
    [135, 20, 414, 108, 74, 247, 589, 21, 19, 170]
    """
    images, labels = digits()
    if not 2 <= clients <= len(labels) // SMALLEST_CLIENT:
        raise InputError("clients", f"must lie between 2 and {len(labels) // SMALLEST_CLIENT}", value=clients)
    if not beta > 0:
        raise InputError("beta", "must be positive", value=beta)
    rng = np.random.default_rng(seed)
    counts = np.bincount(labels)
    floor = SMALLEST_CLIENT / len(labels)
    quantities = (floor + (1.0 - clients * floor) * rng.dirichlet(np.full(clients, beta))) * len(labels)
    wishes = quantities[:, None] * (rng.dirichlet(np.full(len(counts), beta), size=clients) + 1e-9)
    for _ in range(500):
        wishes *= (quantities / wishes.sum(1))[:, None]
        wishes *= counts / wishes.sum(0)
    owner = np.empty(len(labels), dtype=np.intp)
    for c, count in enumerate(counts):
        # cumulated wishes, rounded, cut the shuffled digits of this label into one run per client
        cuts = np.rint(np.cumsum(wishes[:, c])).astype(np.intp)[:-1].clip(max=count)
        for i, chosen in enumerate(np.split(rng.permutation(np.flatnonzero(labels == c)), cuts)):
            owner[chosen] = i
    mine = [np.flatnonzero(owner == i) for i in range(clients)]
    return Federation(tuple(images[m] for m in mine), tuple(labels[m] for m in mine), tuple(removed))


def digits_game(cost_scale: float = 1.0, **options: Any) -> StackelbergGame:
    """Return the game that ``stackfu demo`` plays.

    >>> digits_game()
    StackelbergGame(10 clients, removed (0, 1, 2), 7 remaining, largest share 48%, diameter 0.434)
    """
    return digits_federation().game(cost_scale=cost_scale, **options)

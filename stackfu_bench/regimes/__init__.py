"""Games of every regime: a public generator of leader games, each drawn from its seed alone.

A search that is tuned to one kind of game fails on others. :func:`draw` spans cost scales from 0.3 to 50 (76% to 3% of the data
takes part without payments), budgets from 1e-5 to 1 of the price of full participation, features of dimension 2 to 512 and Gram
matrices, equal, lognormal and power-law sizes, costs per sample that are equal or spread by 1.5 in the logarithm, 1% to 30% of
the clients removed, and embeddings of five kinds. Options of ``solve`` are drawn too.

>>> regime = draw(0, 30)
>>> regime == draw(0, 30), regime.clients
(True, 30)
>>> game, arguments = regime.build()
>>> game.count
30

:mod:`stackfu_bench.regimes.__main__` solves such games with one or more versions of the library and writes profiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OPTIONS", "Regime", "draw"]

Array = npt.NDArray[np.float64]

#: Kinds of embeddings: points of a Gaussian mixture, RBF kernel of a mixture, class histograms, random features of one-dimensional
#: samples, and random features of handwritten digits.
EMBEDDINGS = ("clusters", "rbf", "labels", "random", "digits")
WIDTHS = (2, 8, 32, 64, 128, 512)
SIZES = ("equal", "lognormal", "power")
#: Ranges of which logarithms are drawn evenly, and of the spread of costs per sample, which is drawn evenly itself.
COSTS, SHARES, REMOVED, SPREADS = (0.3, 50.0), (1e-5, 1.0), (0.01, 0.3), (0.0, 1.5)
#: Requests to draw from; half of the games ask for a budget alone.
OPTIONS = (
    "budget",
    "floor",
    "finite_sample",
    "sampling_constant",
    "payment_weight",
    "max_loss",
    "own_loss",
    "cheapest",
    "capped",
)
#: A floor relative to the unpaid total, a cap relative to the unpaid loss, and a sampling constant relative to the spread.
FLOOR, CAP, SAMPLING = 1.2, 0.7, 0.002
#: Gram matrices of more clients are not drawn: they take a minute to read.
LARGEST_GRAM = 3000
DIGITS = Path("demo", "digits.npz")


@dataclass(frozen=True)
class Regime:
    """One game and what is asked of it; equal regimes make equal games."""

    seed: int
    clients: int
    embedding: str = "clusters"
    width: int = 64
    gram: bool = False
    sizes: str = "lognormal"
    cost: float = 3.0
    spread: float = 1.0
    removed: float = 0.1
    share: float = 0.05
    option: str = "budget"

    @property
    def name(self) -> str:
        """The name in tables and on command lines."""
        form = "gram" if self.gram else f"D={self.width}"
        return (
            f"{self.clients}/{self.seed}: {self.embedding} {form} {self.sizes} cost={self.cost:.2g} "
            f"spread={self.spread:.2g} removed={self.removed:.2g} share={self.share:.1g} {self.option}"
        )

    def build(self) -> tuple[Any, dict[str, Any]]:
        """Return the game and the arguments of ``solve``."""
        import stackfu as sf
        from stackfu.model.losses import ServerLoss

        rng = np.random.default_rng([29, self.seed, self.clients])
        gone = max(round(self.removed * self.clients / (1.0 - self.removed)), 1)
        count = self.clients + gone
        rows = _rows(rng, self.embedding, count, self.width)
        # in units in which a sample has k(a, a) = 1, as the finite-sample term needs
        rows /= np.sqrt(1.1 * float((rows**2).sum(axis=1).max()))
        sizes = _sizes(rng, self.sizes, count)
        alpha = sizes[gone:] / sizes[gone:].sum()
        mean = alpha @ rows[gone:]
        variance = float(alpha @ ((rows[gone:] - mean) ** 2).sum(axis=1))
        per_sample = np.exp(self.spread * rng.normal(size=self.clients))
        own = np.ones(count)
        if self.gram:
            embeddings = sf.MeanEmbeddings.from_gram(rows @ rows.T, self_similarity=own)
        else:
            embeddings = sf.MeanEmbeddings.from_features(rows, self_similarity=own)
        game = sf.StackelbergGame(embeddings, sizes, range(gone))
        price = 4.0 * game.lam * variance * self.cost
        game = game.replace(costs=price * alpha * per_sample / float(alpha @ per_sample))
        if self.option in ("sampling_constant", "capped"):
            game = game.replace(sampling_constant=SAMPLING * variance * float(sizes.sum()))
        if self.option == "own_loss":
            game = game.replace(server_loss=ServerLoss.to_mixtures([rng.dirichlet(np.ones(count))], [1.0]))
        budget = self.share * game.full_participation_price
        return game, _arguments(game, self.option, budget)


def draw(seed: int, clients: int) -> Regime:
    """Return the regime of a seed and a number of clients."""
    rng = np.random.default_rng([7, seed, clients])

    def spread_over(ends: tuple[float, float]) -> float:
        return float(f"{np.exp(rng.uniform(*np.log(ends))):.3g}")

    embedding = EMBEDDINGS[int(rng.integers(len(EMBEDDINGS)))]
    width = int(rng.choice(WIDTHS))
    gram = bool(rng.uniform() < 0.4)
    return Regime(
        seed=seed,
        clients=clients,
        embedding=embedding,
        width=max(width, 8) if embedding in ("random", "digits", "rbf") else width,
        gram=gram and clients <= LARGEST_GRAM,
        sizes=SIZES[int(rng.integers(len(SIZES)))],
        cost=spread_over(COSTS),
        spread=float(f"{rng.uniform(*SPREADS):.2g}"),
        removed=spread_over(REMOVED),
        share=spread_over(SHARES),
        option=OPTIONS[0] if rng.uniform() < 0.5 else OPTIONS[int(rng.integers(1, len(OPTIONS)))],
    )


def _arguments(game: Any, option: str, budget: float) -> dict[str, Any]:
    """Arguments of ``solve`` for an option."""
    if option == "floor":
        return {"budget": budget, "min_total": min(FLOOR * game.equilibrium().total, 0.9)}
    if option == "finite_sample":
        return {"budget": budget, "finite_sample": True}
    if option == "payment_weight":
        return {
            "budget": budget,
            "payment_weight": game.equilibrium().server_loss / game.full_participation_price,
        }
    if option == "max_loss":
        return {"budget": budget, "max_loss": CAP * game.equilibrium().server_loss}
    if option == "cheapest":
        loss = CAP * game.equilibrium().server_loss
        return {"budget": None, "loss_weight": 0.0, "payment_weight": 1.0, "max_loss": loss}
    if option == "capped":
        return {"budget": budget, "offers": "capped"}
    return {"budget": budget}


def _sizes(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Samples per client."""
    if kind == "equal":
        return np.full(count, 100.0)
    drawn = rng.lognormal(4.0, 1.0, count) if kind == "lognormal" else 30.0 * (rng.pareto(1.5, count) + 1.0)
    return np.asarray(np.ceil(drawn))


def _rows(rng: np.random.Generator, embedding: str, count: int, width: int) -> Array:
    """One feature row per client."""
    if embedding == "clusters":
        centres = rng.normal(size=(max(3, min(20, count // 4)), width))
        rows = centres[rng.integers(0, len(centres), count)] + rng.normal(size=(count, width))
        return np.asarray(0.35 / np.sqrt(width) * rows)
    if embedding == "labels":
        shares = rng.dirichlet(np.full(width, 0.3), count)
        return np.asarray(shares / np.sqrt(shares.mean(axis=0)))
    if embedding == "digits":
        return _digits(rng, count, width)
    # random Fourier features: of one point per client for "rbf", of the mean of thirty samples for "random"
    dimension = 8 if embedding == "rbf" else 1
    waves, phases = rng.normal(size=(dimension, width)), rng.uniform(0.0, 2.0 * np.pi, width)
    where = rng.normal(size=(count, dimension))
    if embedding == "rbf":
        return np.asarray(np.sqrt(2.0 / width) * np.cos(where @ waves + phases))
    samples = where[:, None, :] + rng.normal(size=(count, 30, dimension))
    return np.asarray(np.sqrt(2.0 / width) * np.cos(samples @ waves + phases).mean(axis=1))


def _digits(rng: np.random.Generator, count: int, width: int) -> Array:
    """Mean random Fourier features of forty handwritten digits per client, of classes that each client mixes in its own way."""
    import stackfu as sf

    with np.load(Path(sf.__file__).parent / DIGITS) as data:
        images, labels = data["images"].astype(float) / 16.0, data["labels"]
    waves, phases = rng.normal(size=(images.shape[1], width)) / 3.0, rng.uniform(0.0, 2.0 * np.pi, width)
    features = np.sqrt(2.0 / width) * np.cos(images @ waves + phases)
    order = np.argsort(labels, kind="stable")
    first, many = np.searchsorted(labels[order], np.arange(10)), np.bincount(labels, minlength=10)
    shares = rng.dirichlet(np.full(10, 0.5), count)
    rows = np.zeros((count, width))
    for _ in range(40):
        classes = (shares.cumsum(axis=1) < rng.uniform(size=(count, 1))).sum(axis=1).clip(0, 9)
        rows += features[order[first[classes] + rng.integers(0, many[classes])]]
    return rows / 40.0

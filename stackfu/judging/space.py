"""A game read exactly: every number derived from the stored ones is enclosed, in intervals or in balls.

The game is the binary numbers that it stores, taken at face value: feature rows or inner products of the original
clients (for embeddings of samples the complements ``1 - G``, which say the same about distances and more precisely),
amounts of data, costs and weights.

The origin is the mean ``mu_N`` of the remaining clients, as floats know it: any origin is as good for the proof,
numbers are small near this one, and it is the one that certificates measure their level t from. With embeddings
``mu_k`` of the remaining clients and targets ``t_j`` measured from it,

    loss(m) = W ||m||^2 - 2 <m, sum_j w_j t_j> + sum_j w_j ||t_j||^2        [+ sampling terms].

Inner products known by a Gram matrix need not be those of any vectors to the last digit: ``defect`` is a proved number with
``x'Kx >= -defect ||x||^2`` (:mod:`.inner_products`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..model import GameModel, Objective
from ..results.certificate import Knot
from .check_tolerances import NORM_ROUNDING
from .distances import U
from .inner_products import ALL_PAIRS, InnerProducts, gamma, proved_defect, symmetric_products
from .numbers import IntervalArithmetic, exact_sum

__all__ = ["Centre", "Space", "held_products"]

Floats = npt.NDArray[np.float64]
Vector = Any


@dataclass(frozen=True, eq=False)
class Centre:
    """A reference point: its inner products with the clients, itself, and what it is made of."""

    inner: Vector  # <mu_k, c>
    made_of: Any  # coordinates (a pair value, error) or weights over clients
    size: float  # Euclidean norm of the weights, 0 for a point of feature space


class Space:
    """Everything the checker needs to know about a game and an objective, enclosed."""

    #: True if products of many knots are taken at once.
    together = True

    def __init__(self, game: GameModel, goal: Objective, arithmetic: Any) -> None:
        self.numbers = numbers = arithmetic
        self._known: dict[int, tuple[Knot, tuple[Centre, Any, Any]]] = {}
        keep = np.asarray(game.remaining)
        sizes, costs = game.all_sizes, game.costs
        self.count = len(keep)
        own = numbers.of(sizes[keep])
        owned = self._sum_of(sizes[keep])
        self.alpha = own / owned
        self.unit = (
            2.0 * numbers.of(game.lambda_q) * numbers.of(game.loss_constant)
        )  # payments per squared distance
        self.theta = numbers.of(costs) / (self.unit * self.alpha)
        self.costs = numbers.of(costs)
        self.weights = [float(w) for w in game.loss.weights]
        self.goal = goal
        # a: clients see d_k^2 + a / S, and every squared distance in the loss is a / S larger
        self.has_sampling = game.sampling_constant > 0.0
        self.client_sampling = numbers.of(game.sampling_constant) / (numbers.of(game.loss_constant) * owned)
        everyone = self._sum_of(sizes)
        shares = []
        for target in game.loss.targets:
            if target.kind == "remaining":
                mix = numbers.of(np.zeros(len(sizes)))
                mix = self._scatter(mix, keep, self.alpha)
            elif target.kind == "original":
                mix = numbers.of(sizes) / everyone
            elif target.kind == "mixture":
                mix = numbers.of(np.array(target.values))
            else:
                mix = None
            shares.append((mix, target))
        features = game.embeddings.features
        if features is not None:
            self._from_features(features, keep, shares)
        else:
            self._from_gram(game, keep, shares)
        self.square_weight = self._sum_of(np.array(self.weights))
        self.sampling = self.square_weight * self.client_sampling
        self.noise = numbers.of(np.zeros(self.count))
        if goal.finite_sample:
            if features is not None:
                norms = self._feature_norms(features, keep)
            else:
                norms = numbers.of(np.diagonal(game.embeddings.gram)[keep])
            self.noise = self.square_weight * self._variances(game.noise_counts, norms) / owned

    # ------------------------------------------------------------ small helpers

    def _variances(self, counts: Floats, norms: Any) -> Any:
        """Enclosures of ``n / (n - 1) (1 - ||mu||^2)``, at most 1, and 1 where there is a single sample."""
        numbers, several = self.numbers, counts > 1.0
        of = numbers.of(np.where(several, counts, 2.0))
        unknown = numbers.of(np.where(several, 0.0, 1.0))
        least = numbers.positive(1.0 - norms) * (of / (of - 1.0)) + unknown
        return 1.0 - numbers.positive(1.0 - least)

    def _sum_of(self, values: Floats) -> Any:
        """Return an enclosure of a sum of floats."""
        if self.numbers.name == "balls":
            return self.numbers.total(self.numbers.of(values))
        middle = exact_sum(values)
        return self.numbers.between(middle, abs(middle) * 2.0 * U)

    def _scatter(self, onto: Any, where: Any, values: Any) -> Any:
        if self.numbers.name == "balls":
            onto = onto.copy()
            onto[where] = values
            return onto
        low, high = onto.low.copy(), onto.high.copy()
        low[where], high[where] = values.low, values.high
        return type(onto)(low, high)

    def _middle(self, x: Any) -> Floats:
        low, high = self.numbers.low(x), self.numbers.high(x)
        return np.asarray(0.5 * (low + high))

    def _square_norms(self, rows: Floats) -> Any:
        if self.numbers.name == "balls":
            return self._row_dots(self.numbers.of(rows), self.numbers.of(rows))
        squares = np.einsum("ij,ij->i", rows, rows)
        return self.numbers.between(squares, gamma(rows.shape[1] + 3) * squares)

    @staticmethod
    def _row_dots(a: Any, b: Any) -> Any:
        out = np.empty(len(a), dtype=object)
        for i in range(len(a)):
            out[i] = sum((x * y for x, y in zip(a[i], b[i], strict=True)), a[i][0] * 0)
        return out

    # ------------------------------------------------------------ features

    def _feature_norms(self, features: Any, keep: Any) -> Any:
        """``||features_k||^2`` of some rows."""
        return self._square_norms(np.asarray(features[keep], dtype=np.float64))

    def _from_features(self, features: Any, keep: Any, shares: list[Any]) -> None:
        numbers = self.numbers
        features = np.asarray(features, dtype=np.float64)
        self.kind, self.defect = "features", 0.0
        self._origin = origin = self._middle(self.alpha) @ features[keep]
        if numbers.name == "balls":
            self._rows = numbers.of(features[keep]) - numbers.of(origin)[None, :]
            self._matrix = _matrix(self._rows)
            self.diagonal = self._row_dots(self._rows, self._rows)
            everybody = numbers.of(features) - numbers.of(origin)[None, :]
            turned = _matrix(everybody.T)
            self.targets = [
                numbers.of(np.array(t.values)) - numbers.of(origin) if mix is None else _times(turned, mix)
                for mix, t in shares
            ]
            pull = sum(
                (w * t for w, t in zip(self.weights, self.targets, strict=True)),
                numbers.of(np.zeros(len(origin))),
            )
            self.target_pull = _times(self._matrix, pull)
            self.loss_constant = sum(
                (w * numbers.total(t * t) for w, t in zip(self.weights, self.targets, strict=True)),
                numbers.of(0.0),
            )
        else:
            self._rows = features[keep] - origin  # each entry exact but for its own last digit
            self._sizes = np.abs(self._rows)
            self.diagonal = self._square_norms_of_differences()
            everybody = features - origin
            self.targets = []
            for mix, target in shares:
                if mix is None:
                    value = np.array(target.values) - origin
                    error = U * np.abs(value)
                else:
                    middle = self._middle(mix)
                    spread = 0.5 * (mix.high - mix.low) * 1.01 + 4 * U * np.abs(middle)
                    value, error = self._combination(everybody, middle, spread)
                self.targets.append((value, error))
            value = sum(w * v for w, (v, _) in zip(self.weights, self.targets, strict=True))
            error = (
                sum(w * (e + 8 * U * np.abs(v)) for w, (v, e) in zip(self.weights, self.targets, strict=True))
                * 1.01
            )
            self.target_pull = self._inner_with(value, error)
            total = numbers.of(0.0)
            for w, (v, e) in zip(self.weights, self.targets, strict=True):
                total = total + w * self._dot((v, e), (v, e))
            self.loss_constant = total
        self._set_reach()

    def _square_norms_of_differences(self) -> Any:
        squares = np.einsum("ij,ij->i", self._rows, self._rows)
        return self.numbers.between(squares, gamma(self._rows.shape[1] + 8) * squares)

    def _combination(
        self, rows: Floats, weights: Floats, spread: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """``sum_k weights_k rows_k`` with an elementwise error, in blocks so that the error grows with their number only; many at a
        time if ``weights`` is a matrix."""
        block = 512
        shape = (*weights.shape[:-1], rows.shape[1])
        value, size, extra = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for start in range(0, len(rows), block):
            part, w = rows[start : start + block], weights[..., start : start + block]
            value = value + w @ part
            size = size + np.abs(w) @ np.abs(part)
            if spread is not None:
                extra = extra + spread[start : start + block] @ np.abs(part)
        terms = min(len(rows), block) + len(rows) // block + 8
        return value, (gamma(terms) * size + extra) * 1.01

    def _inner_with(self, value: Floats, error: Floats) -> Any:
        """``<mu_k, x>`` for every client, x given with an elementwise error."""
        middle = value @ self._rows.T
        radius = gamma(self._rows.shape[1] + 8) * (np.abs(value) @ self._sizes.T) + 1.01 * (
            error @ self._sizes.T
        )
        return self.numbers.between(middle, radius * 1.01)

    def _dot(self, a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> Any:
        """Inner product of two points with their errors; of many, as a column."""

        def times(x: Floats, y: Floats) -> Floats:
            return np.asarray((x * y).sum(axis=-1, keepdims=x.ndim > 1))

        sizes = times(np.abs(a[0]), np.abs(b[0]))
        errors = times(np.abs(a[0]), b[1]) + times(a[1], np.abs(b[0])) + times(a[1], b[1])
        return self.numbers.between(
            times(a[0], b[0]), (gamma(a[0].shape[-1] + 8) * sizes + 1.01 * errors) * 1.01
        )

    # ------------------------------------------------------------ inner products

    def _from_gram(self, game: GameModel, keep: Any, shares: list[Any]) -> None:
        numbers = self.numbers
        self.kind = "gram"
        if any(mix is None for mix, _ in shares):
            raise VerificationError("a point of feature space is no target of a game known by inner products")
        origin = np.zeros(len(game.all_sizes))
        origin[keep] = self._middle(self.alpha)
        # <mu_i - o, mu_j - o> with o = sum_i origin_i mu_i, and origin summing to 1 up to rounding: made exact by scaling below
        if numbers.name == "balls":
            full = numbers.of(symmetric_products(game))
            matrix = _matrix(full)
            o = numbers.of(origin)
            o = o / numbers.total(o)
            row = _times(matrix, o)
            grand = numbers.total(row * o)
            centred = full - row[:, None] - row[None, :] + grand
            self._gram = centred[np.ix_(keep, keep)]
            self._matrix = _matrix(self._gram)
            middle = np.array([[float(v.mid()) for v in line] for line in self._gram])
            self.diagonal = np.array([self._gram[i, i] for i in range(self.count)], dtype=object)
            towards = []
            for mix, _ in shares:
                inner = _times(_matrix(centred), mix)
                towards.append((inner[keep], numbers.total(inner * mix)))
            self.target_pull = sum(
                (w * t for w, (t, _) in zip(self.weights, towards, strict=True)),
                numbers.of(np.zeros(self.count)),
            )
            self.loss_constant = sum(
                (w * s for w, (_, s) in zip(self.weights, towards, strict=True)), numbers.of(0.0)
            )
            symmetric = 0.5 * (middle + middle.T)
            off = np.array(
                [
                    [float((v - m).abs_upper()) for v, m in zip(*both, strict=True)]
                    for both in zip(self._gram, symmetric.tolist(), strict=True)
                ]
            )
            self.defect = proved_defect(symmetric, float(off.sum(axis=1).max()) * 1.01)
        else:
            self._read = read = InnerProducts.of(game, keep, origin, [mix for mix, _ in shares])
            self.diagonal, self.defect = read.diagonal, read.defect
            self.target_pull, self.loss_constant = numbers.of(np.zeros(self.count)), numbers.of(0.0)
            for w, (mix, _), t in zip(self.weights, shares, read.towards, strict=True):
                self.target_pull = self.target_pull + w * t[keep]
                self.loss_constant = self.loss_constant + w * numbers.total(t * mix)
        self._set_reach()

    # ------------------------------------------------------------ what the bound asks for

    def _set_reach(self) -> None:
        """Upper bounds of ``d_k^2`` over all mixtures: the furthest client, or through the origin where there are many."""
        numbers, n = self.numbers, self.count
        if n > ALL_PAIRS:
            norms = numbers.root(self.diagonal)
            far = np.max(numbers.high(norms))
            self.reach = np.asarray(numbers.high((norms + numbers.of(far)) * (norms + numbers.of(far))))
            return
        if self.kind == "gram":
            if numbers.name == "balls":
                middle = np.array([[float(v.mid()) for v in line] for line in self._gram])
                radius = np.array([[float(v.rad()) for v in line] for line in self._gram])
                radius = radius + np.abs(middle) * 2 * U
            else:
                middle, radius = self._read.middle, self._read.radius
        else:
            rows = (
                self._rows
                if numbers.name != "balls"
                else np.array([[float(v.mid()) for v in line] for line in self._rows])
            )
            middle = rows @ rows.T
            radius = gamma(rows.shape[1] + 8) * (np.abs(rows) @ np.abs(rows).T) * 1.01
        own, own_radius = np.diagonal(middle), np.diagonal(radius)
        square = own[:, None] + own[None, :] - 2.0 * middle
        error = own_radius[:, None] + own_radius[None, :] + 2.0 * radius
        error = error + 8 * U * (np.abs(own)[:, None] + np.abs(own)[None, :] + 2.0 * np.abs(middle))
        upper = (square + error * 1.01).max(axis=1)
        # d_k^2 = sum_j z_j ||mu_j - mu_k||^2 - spread(z), and the spread is not below minus the defect
        self.reach = np.maximum(upper, 0.0) * (1 + 4 * U) + 2.0 * self.defect

    def mixed(self, clients: Any, weights: Floats) -> Vector:
        """``<mu_k, sum_j weights_j mu_j>`` for every client k."""
        if self.numbers.name == "balls":
            dense = np.zeros(self.count)
            dense[clients] = weights
            if self.kind == "gram":
                return _times(self._matrix, self.numbers.of(dense))
            return _times(self._matrix, _times(_matrix(self._rows.T), self.numbers.of(dense)))
        if self.kind == "gram":
            return self._read.times(clients, weights)
        value, error = self._combination(self._rows[clients], weights)
        return self._inner_with(value, error + U * np.abs(value))

    def centre(self, knot: Knot) -> Centre:
        """Return the reference point of a knot."""
        numbers = self.numbers
        if knot.support is None:
            if self.kind == "gram":
                raise VerificationError("a centre in feature space needs feature rows")
            if len(knot.centre) != len(self._origin):
                raise VerificationError("a centre does not have as many coordinates as the feature rows")
            if numbers.name == "balls":
                point = numbers.of(knot.centre) - numbers.of(self._origin)
                return Centre(_times(self._matrix, point), point, 0.0)
            value = knot.centre - self._origin
            error = U * np.abs(value) * 1.01
            return Centre(self._inner_with(value, error), (value, error), 0.0)
        size = float(np.linalg.norm(knot.centre)) * (1 + NORM_ROUNDING)
        if self.kind == "gram":
            return Centre(self.mixed(knot.support, knot.centre), (knot.support, knot.centre), size)
        if numbers.name == "balls":
            dense = np.zeros(self.count)
            dense[knot.support] = knot.centre
            point = _times(_matrix(self._rows.T), numbers.of(dense))
            return Centre(_times(self._matrix, point), point, size)
        value, error = self._combination(self._rows[knot.support], knot.centre)
        error = error + 2 * U * np.abs(value)
        return Centre(self._inner_with(value, error), (value, error), size)

    def products(self, knots: Sequence[Knot]) -> list[tuple[Centre, Any, Any]]:
        """For every knot its centre, ``<mu_k, M>`` and ``||c||^2``."""
        if self.kind == "gram" and self.numbers.name != "balls" and self.count > ALL_PAIRS:
            return self._products_once(knots)
        return self._products(knots)

    def _products_once(self, knots: Sequence[Knot]) -> list[tuple[Centre, Any, Any]]:
        """Return the same, worked out once for every knot: each time takes passes over all inner products."""
        new = [knot for knot in knots if id(knot) not in self._known]
        for knot, found in zip(new, self._products(new) if new else (), strict=True):
            self._known[id(knot)] = (knot, found)  # which is kept, so that nobody else gets its number
        return [self._known[id(knot)][1] for knot in knots]

    def _products(self, knots: Sequence[Knot]) -> list[tuple[Centre, Any, Any]]:
        if self.numbers.name == "balls" or not self.together or any(knot.support is None for knot in knots):
            centres = [self.centre(knot) for knot in knots]
            return [
                (c, self.mixed(knot.clients, knot.rows), self.cross(c, c))
                for c, knot in zip(centres, knots, strict=True)
            ]
        weights, rows = np.zeros((2, len(knots), self.count))
        for i, knot in enumerate(knots):
            weights[i, knot.support], rows[i, knot.clients] = knot.centre, knot.rows
        sizes = np.linalg.norm(weights, axis=1) * (1 + NORM_ROUNDING)
        if self.kind == "gram":
            everybody = np.arange(self.count)
            inner, mixed = (self._read.times(everybody, w) for w in (weights, rows))
            made_of = [(everybody, w) for w in weights]
        else:
            value, error = self._combination(self._rows, weights)
            error = error + 2 * U * np.abs(value)
            made_of = list(zip(value, error, strict=True))
            inner = self._inner_with(value, error)
            value, error = self._combination(self._rows, rows)
            mixed = self._inner_with(value, error + U * np.abs(value))
        found = [Centre(inner[i], made_of[i], float(sizes[i])) for i in range(len(knots))]
        squares = self.crosses(found, found)
        return [(c, mixed[i], squares[i, 0]) for i, c in enumerate(found)]

    def crosses(self, first: Sequence[Centre], second: Sequence[Centre]) -> Any:
        """``<c_a, c_b>`` of many pairs, as a column."""
        numbers = self.numbers
        if numbers.name == "balls" or not self.together or self.kind == "gram":
            return numbers.stack([self.cross(a, b) for a, b in zip(first, second, strict=True)])
        a, b = (
            tuple(np.stack([c.made_of[part] for c in centres]) for part in range(2))
            for centres in (first, second)
        )
        return self._dot((a[0], a[1]), (b[0], b[1]))

    def cross(self, a: Centre, b: Centre) -> Any:
        """``<c_a, c_b>``."""
        numbers = self.numbers
        if self.kind == "gram":
            clients, weights = a.made_of
            return numbers.total(numbers.of(weights) * b.inner[clients])
        if numbers.name == "balls":
            return numbers.total(a.made_of * b.made_of)
        return self._dot(a.made_of, b.made_of)

    def mixture_of(self, participation: Floats) -> tuple[Any, Any]:
        """``S`` and ``z`` of a profile."""
        amounts = self.alpha * self.numbers.of(participation)
        total = self.numbers.total(amounts)
        return total, amounts / total

    def loss_of(self, participation: Floats) -> Any:
        """Return the server's loss at a profile, sampling terms included."""
        n = self.numbers
        total, z = self.mixture_of(participation)
        if n.name == "balls":
            if self.kind == "gram":
                square = n.total(z * _times(self._matrix, z))
            else:
                point = _times(_matrix(self._rows.T), z)
                square = n.total(point * point)
        else:
            # the float mixture is off by so little that norms bound what it does to inner products
            near = self._middle(z)
            off = np.maximum(z.high - near, near - z.low) * 1.01
            norms = n.root(self.diagonal + self.defect)
            spread = float(n.high(n.total(norms * n.of(off))))
            inner = self.mixed(np.arange(self.count), near)
            square = n.total(z * (inner + norms * n.between(0.0, spread)))
        value = self.square_weight * square - 2.0 * n.total(z * self.target_pull) + self.loss_constant
        value = value + n.total(self.noise * z) / total
        return value + self.sampling / total if self.has_sampling else value


def held_products(game: GameModel, goal: Objective) -> InnerProducts | None:
    """Return the cached inner products of a game as intervals, to avoid reading them again; None for features."""
    numbers = IntervalArithmetic()
    with numbers.context():
        try:
            return getattr(Space(game, goal, numbers), "_read", None)
        except VerificationError:  # a request for a verdict reports it
            return None


def _matrix(rows: Any) -> Any:
    import flint

    return flint.arb_mat(rows.shape[0], rows.shape[1], rows.ravel().tolist())


def _times(matrix: Any, vector: Any) -> Any:
    import flint

    product = matrix * flint.arb_mat(len(vector), 1, vector.tolist())
    out = np.empty(matrix.nrows(), dtype=object)
    out[:] = [product[i, 0] for i in range(matrix.nrows())]
    return out

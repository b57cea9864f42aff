"""That no equilibrium is missing, and that there is only one: checked from a chain of profiles that the solver leaves.

**What a chain shows.** Let y* be any equilibrium with total s and mixture z*, and z~ any other mixture that the caps allow at
the same total. With ``g_k(z) = d_k^2(z) + a / (2 s) - s w_k`` the equilibrium conditions give
``sum_k (z~_k - z*_k) g_k(z*) <= 0``, and what z~ falls short of a best response to itself, its *gap*, gives
``sum_k (z*_k - z~_k) g_k(z~) <= gap``. Their sum is ``2 ||m~ - m*||^2 <= gap``. So every equilibrium at total s has its mixture
embedding within ``r = sqrt(gap / 2)`` of the candidate's, hence ``d_k^2`` within ``r^2 + 2 r d_k``, and

    who wants more there (g_k > 0 on the whole ball) brings all it may, who wants less (g_k < 0) brings nothing.

If those who want more own more than s, or all but those who want less own less than s, *no equilibrium has total s*. Nothing is
assumed about the candidate: a bad one decides nothing.

**The chain** ``X_0, X_1, ..., X_2K`` holds participation profiles. ``X_2i, X_2i+1, X_2i+2`` are the Bernstein control points of a
quadratic curve of profiles; totals change continuously along it and neighbours share their ends, so all totals between the
first and the last are passed. ``s^2 g_k`` is then a polynomial of degree 6 that its own Bernstein coefficients enclose, a whole
segment at a time; segments that decide nothing are halved. Above the first total nothing is possible because everybody
already takes part (or because ``s w_k > max_j D_jk`` for all k), below the last one because two clients i, j always have
``d_i + d_j >= sqrt(D_ij)``, so one of them wants more as long as ``s < D_ij / (sqrt(w_i) + sqrt(w_j))^2``, and owns more than s
(or because with a sampling term those with ``s w_k < a / (2 s)`` all want more, and own more than s).

**Where it cannot be decided** there may be equilibria. There the clients that are not sure (A) must hold at most one solution:
with everybody else at a bound, two equilibria y, y' would have ``sum_A (y_k - y'_k)(g_k(y) - g_k(y')) >= 0``; impossible if the
symmetric part of the Jacobian ``-(2/S) <mu_k - m, mu_j - m> - w_k - a / (2 S^2)`` is negative definite, and, if all of A are
proved to be strictly inside (their ``g_k`` then vanish), as soon as it is regular.

Rounding: values carry proved error bounds (:mod:`stackfu.judging._segment_kernels`), relative to the sizes of what is added up,
so that clients of very different sizes and outliers far away are judged by their own terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..model import Array, GameModel

__all__ = [
    "RESOLVED",
    "Completeness",
    "check_alike",
    "check_complete",
    "coincide",
    "in_range",
    "squared_distances",
]

#: Unit roundoff.
U = float(np.finfo(np.float64).eps) / 2
#: Segments are halved this often where nothing is decided, more often where that settles nothing: what is left is then a 4000th, a
#: 10^-7th or a 10^-13th of a piece. Around most equilibria the first is enough; shorter ones are many where rounding decides.
DEPTHS = (12, 24, 42)
#: Undecided pieces that are kept; more than this is no neighbourhood of a few equilibria.
MOST_LEAVES = 4000
#: A bracket wider than this part of its upper end does not say which equilibrium it is about.
RESOLVED = 1e-3
#: Up to this many clients :func:`check_alike` is asked: it looks at all pairs.
LARGEST_ALIKE = 1500
#: Why nothing is proved in floats.
OUT_OF_RANGE = "the game's numbers are too far apart for floats"
#: Why a bracket is not settled that is wider than :data:`RESOLVED`.
WIDE = "an equilibrium is there, but its total is not known better"
#: What distances may be off beside the largest one, in rounding errors, without changing anything: covers underflow.
UNSEEN = 1e-30
#: Shares, costs, payments, weights, distances, reluctances and totals between this and one over it can be multiplied in floats,
#: four at a time, without leaving their range; elsewhere floats prove nothing.
RANGE = 1e-60


@dataclass(frozen=True)
class Completeness:
    """What a chain proves: every equilibrium has its total in one of ``brackets``, and each of them holds at most one.

    ``accepted`` says that the chain was followed to its end and every bracket is settled: one of those that were found lies in it,
    and it is no wider than :data:`RESOLVED`, so that this one has the total of the exact one up to that. ``message`` says what
    was proved or why not.
    """

    accepted: bool
    brackets: tuple[tuple[float, float], ...]
    message: str

    def __bool__(self) -> bool:
        return self.accepted


def check_complete(
    game: GameModel,
    payments: npt.ArrayLike | None,
    chain: npt.ArrayLike,
    found: Sequence[npt.ArrayLike],
    caps: npt.ArrayLike | None = None,
    continua: Sequence[tuple[float, float]] = (),
) -> Completeness:
    """Whether the equilibria ``found`` are all there are, by following the chain.

    ``continua`` are ranges of totals at which a continuum of equilibria is known: nothing is shown about those, only that there are
    no others elsewhere.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> chain = [[1.0, 1.0], [0.5, 0.5], [1e-3, 1e-3]]  # both clients take part alike at every total
    >>> check_complete(game, None, chain, [[0.5, 0.5]]).message
    'every total was followed; 1 equilibrium, no other is possible'
    >>> bool(check_complete(game, None, chain, []))
    False
    """
    paid, most = game.check_payments(payments), game.check_caps(caps)
    profiles = np.ascontiguousarray(chain, dtype=np.float64)
    if profiles.ndim != 2 or profiles.shape[1] != game.count or len(profiles) < 3 or len(profiles) % 2 == 0:
        raise InputError("chain", "needs an odd number of profiles, at least three", value=profiles.shape)
    if not np.isfinite(profiles).all() or profiles.min() < 0 or np.any(profiles > most):
        return Completeness(False, (), "the chain leaves what the clients can do")
    exact = _Exact(game, paid, most)
    if not in_range(game, paid) or not float(game.alpha @ profiles[-1]) >= RANGE:
        return Completeness(False, (), OUT_OF_RANGE)
    for reason in (exact.open_above(profiles[0]), exact.open_below(profiles[-1])):
        if reason:
            return Completeness(False, (), reason)
    totals = [float(game.alpha @ np.asarray(x, dtype=np.float64)) for x in found]
    outcome = Completeness(False, (), "too much of the chain decides nothing")
    for depth in DEPTHS:
        leaves = exact.walk(profiles, depth)
        if leaves is None:
            continue
        outcome = exact.settle(leaves, totals, continua)
        if outcome.accepted:
            return outcome
    return outcome


def check_alike(
    game: GameModel, payments: npt.ArrayLike | None, found: npt.ArrayLike, caps: npt.ArrayLike | None = None
) -> Completeness:
    """Whether an equilibrium is the only one of clients whose reluctances are (nearly) equal and positive, without a chain.

    Let y* be any equilibrium and y the one that was found, ``gap`` what y falls short of a best response to itself. As for a
    chain, but with totals that may differ, ``(S + S*) ||m - m*||^2 + (S - S*) w . (y - y*) <= gap``. With ``w_k`` between ``w`` and
    ``w + e`` that is a bound on both ``|S - S*|`` and ``||m - m*||``; what is left is as around the equilibria of a chain.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> check_alike(game, None, [0.5, 0.5]).accepted, check_alike(game, [1.0, 1.0], [1.0, 1.0]).accepted
    (True, False)
    """
    paid, most = game.check_payments(payments), game.check_caps(caps)
    x = game.check_participation(found)
    exact = _Exact(game, paid, most)
    if not in_range(game, paid) or not float(game.alpha @ x) >= RANGE:
        return Completeness(False, (), OUT_OF_RANGE)
    rho, w = exact.rho, exact.w
    least = float(w.min()) * (1.0 - rho)
    if not least > 0.0:
        return Completeness(False, (), "somebody is paid its cost or more")
    spread = float(w.max()) * (1.0 + rho) - least
    y = exact.alpha * x
    total = float(y.sum())
    toward, size = exact.distances @ y, (exact.distances + exact.slack) @ y
    joint, joint_size = float(y @ toward), float(y @ size)
    squares = toward / total - 0.5 * joint / total**2
    error = 4.0 * rho * (size / total + joint_size / total**2 + total * np.abs(w) + exact.a / total)
    g = squares + 0.5 * exact.a / total - total * w
    room = np.maximum(exact.bound * (1.0 + rho) - y * (1.0 - rho), 0.0)
    gap = float(np.maximum(np.maximum(g + error, 0.0) * room, np.maximum(error - g, 0.0) * y).sum())
    gap = (gap + 8.0 * exact.defect) * (1.0 + 8.0 * rho)
    shift = (spread + np.sqrt(spread**2 + least * gap)) / least * (1.0 + 8.0 * rho)
    radius = float(np.sqrt((gap + 2.0 * spread * shift) / total + 2.0 * exact.defect)) * (1.0 + 8.0 * rho)
    drift = np.sqrt(np.maximum(squares + error, 0.0) + 2.0 * exact.defect)
    move = (radius**2 + 2.0 * radius * drift + 4.0 * exact.defect + shift * np.abs(w)) * (
        1.0 + 16.0 * rho
    ) + error
    if exact.a > 0.0:
        if not shift < total:
            return Completeness(False, (), "equilibria with next to no participation are not excluded")
        move = move + exact.a * shift / (total * (total - shift))
    place = np.where(g > move, 1, np.where(g < -move, -1, 0)).astype(np.int8)
    bracket = ((total - shift, total + shift),)
    reason = exact.several([_Leaf(np.array([x, x, x]), place, radius)], shift)
    if reason:
        return Completeness(False, bracket, reason)
    return Completeness(
        True, bracket, "all w_k are equal up to rounding, and no other equilibrium is possible"
    )


@dataclass(frozen=True, eq=False)
class _Leaf:
    """An undecided piece: control profiles, where the clients must be, and the radius around its candidates."""

    x: Array
    place: npt.NDArray[np.int8]
    radius: float


class _Exact:
    """A game's numbers with their proved error bounds."""

    def __init__(self, game: GameModel, payments: Array, caps: Array) -> None:
        self.count = N = game.count
        self.alpha, self.caps = np.array(game.alpha), np.array(caps)
        self.bound = self.alpha * self.caps
        self.distances, error, terms, self.defect = squared_distances(game)
        # who is paid more than its cost takes part fully whatever the others do: how much more does not matter
        self.w = np.maximum(game.reluctance_under(payments), -float(self.distances.max()))
        self.a = game.sampling
        # shares: a sum of N sizes and a division; amounts, totals, D y, pairs: two more sums of N; a few products; and the
        # averages of halves
        self.rho = (6 * N + terms + 3 * max(DEPTHS) + 64) * U
        self.slack = error / self.rho + UNSEEN * float(self.distances.max())

    # ------------------------------------------------------------ the ends of the chain

    def open_above(self, x: Array) -> str:
        """Why equilibria above the first total are not excluded, or nothing."""
        if np.array_equal(x, self.caps):
            return ""
        top = float((self.alpha * x).sum()) * (1.0 - self.rho)
        reach = ((self.distances + self.rho * self.slack) * (1.0 + self.rho)).max(axis=1)
        tempted = reach + (self.a / (2.0 * top) if self.a > 0 else 0.0)
        if np.all(top * self.w * (1.0 - self.rho) > tempted):
            return ""
        return "the chain does not begin where everybody takes part, nor above every possible total"

    def open_below(self, x: Array) -> str:
        """Why equilibria below the last total are not excluded, or nothing."""
        last = float((self.alpha * x).sum()) * (1.0 + self.rho)
        roots = np.sqrt(np.maximum(self.w, 0.0)) * (1.0 + self.rho)
        apart = (self.distances * (1.0 - self.rho)) - self.rho * self.slack
        if self.defect > 0.0:  # d_i + d_j >= sqrt(D_ij) up to twice the root of twice the defect
            lost = 2.0 * np.sqrt(2.0 * self.defect) * (1.0 + 4.0 * U)
            apart = np.square(np.maximum(np.sqrt(np.maximum(apart, 0.0)) - lost, 0.0)) * (1.0 - 16.0 * U)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = apart / (roots[:, None] + roots[None, :]) ** 2
        reach = np.where(apart > 0, reach, 0.0)
        owned = np.minimum(self.bound[:, None], self.bound[None, :]) * (1.0 - self.rho)
        if np.minimum(reach, owned).max(initial=0.0) > last:
            return ""
        eager = self.w * last**2 * (1.0 + 4.0 * self.rho) < 0.5 * self.a * (1.0 - 4.0 * self.rho)
        if self.a > 0.0 and float(self.bound[eager].sum()) * (1.0 - self.rho) > last:
            return ""
        return f"the chain ends at a total of {last:.3g}, where something may still happen below"

    # ------------------------------------------------------------ along the chain

    def walk(self, chain: Array, depth: int) -> list[_Leaf] | None:
        """The pieces that decide nothing, in the chain's order; None if they are too many."""
        N = self.count
        leaves, places = np.empty((MOST_LEAVES, 3, N)), np.empty((MOST_LEAVES, N), dtype=np.int8)
        radii = np.empty(MOST_LEAVES)
        count = _kernels().walk(
            chain,
            self.distances,
            self.slack,
            self.alpha,
            self.caps,
            self.w,
            self.a,
            self.rho,
            self.defect,
            depth,
            leaves,
            places,
            radii,
        )
        if count < 0:
            return None
        return [_Leaf(leaves[i].copy(), places[i].copy(), float(radii[i])) for i in range(count)]

    # ------------------------------------------------------------ around the equilibria

    def settle(
        self, leaves: list[_Leaf], totals: list[float], continua: Sequence[tuple[float, float]] = ()
    ) -> Completeness:
        """Group undecided pieces that touch, and show that each group holds at most one equilibrium, and one was found there."""
        groups: list[list[_Leaf]] = []
        for leaf in leaves:
            if groups and np.array_equal(groups[-1][-1].x[2], leaf.x[0]):
                groups[-1].append(leaf)
            else:
                groups.append([leaf])
        brackets = []
        left = sorted(totals)
        for group in groups:
            low, high = self.bracket(group)
            brackets.append((low, high))
            inside = [s for s in left if low <= s <= high]
            if any(low <= last and first <= high for first, last in continua):
                left = [s for s in left if s not in inside]
                continue
            if len(inside) != 1:
                word = "no equilibrium was found" if not inside else f"{len(inside)} equilibria were found"
                return Completeness(
                    False,
                    tuple(brackets),
                    f"{word} with a total between {low:.9g} and {high:.9g}, where some may be",
                )
            left.remove(inside[0])
            reason = self.several(group)
            if reason:
                return Completeness(
                    False, tuple(brackets), f"{reason} (total between {low:.9g} and {high:.9g})"
                )
        if left:
            return Completeness(
                False,
                tuple(brackets),
                f"no equilibrium can have a total of {left[0]:.9g}, as one is said to have",
            )
        word = "equilibrium" if len(brackets) == 1 else "equilibria"
        message = f"every total was followed; {len(brackets)} {word}, no other is possible"
        return Completeness(True, tuple(brackets), message)

    def unsure(self, group: list[_Leaf]) -> npt.NDArray[np.intp]:
        """Who is not known to be at one of its bounds in every equilibrium of the group."""
        places = np.array([leaf.place for leaf in group])
        return np.flatnonzero((places[0] == 0) | (places != places[0]).any(axis=0))

    def bracket(self, group: list[_Leaf]) -> tuple[float, float]:
        """Between which totals the equilibria of the group lie."""
        sums = [float((self.alpha * x).sum()) for leaf in group for x in leaf.x]
        if len(self.unsure(group)) == 0:
            sums = [float(self.bound[group[0].place > 0].sum())]
        return min(sums) * (1.0 - self.rho), max(sums) * (1.0 + self.rho)

    def several(self, group: list[_Leaf], shift: float = 0.0) -> str:
        """Why the group may hold several equilibria, with totals up to ``shift`` beyond its own, or nothing."""
        unsure = self.unsure(group)
        if len(unsure) == 0:  # everybody is at a bound, so there is one profile
            return ""
        corners = [x for leaf in group for x in leaf.x]
        centre = corners[len(corners) // 2]
        reach = max(leaf.radius for leaf in group) + max(self.apart(centre, x) for x in corners)
        S_low, S_high = self.bracket(group)
        S_low, S_high = S_low - shift, S_high + shift
        if S_low <= 0.0:
            return "equilibria with next to no participation are not excluded"
        if S_high - S_low > RESOLVED * S_high:
            return WIDE
        y = self.alpha * centre
        total = float(y.sum())
        spread, size = self.distances @ y, (self.distances + self.slack) @ y
        joint, joint_size = float(y @ spread), float(y @ size)
        D, E = self.distances[np.ix_(unsure, unsure)], self.slack[np.ix_(unsure, unsure)]
        # <mu_k - m, mu_j - m> = ((D y)_k / S + (D y)_j / S - y'Dy / S^2 - D_kj) / 2
        inner = 0.5 * (
            spread[unsure][:, None] / total + spread[unsure][None, :] / total - joint / total**2 - D
        )
        scale = 0.5 * (
            size[unsure][:, None] / total + size[unsure][None, :] / total + joint_size / total**2 + D + E
        )
        drift = np.sqrt(np.maximum(np.diag(inner) + 4.0 * self.rho * np.diag(scale) + 2.0 * self.defect, 0.0))
        moved = reach * (drift[:, None] + drift[None, :]) + reach**2 + 4.0 * self.defect
        error = 4.0 * self.rho * scale + moved * (1.0 + 16.0 * self.rho)
        w, thin = self.w[unsure], self.a
        middle = 0.5 * (1.0 / S_low + 1.0 / S_high)
        half = 0.5 * (1.0 / S_low - 1.0 / S_high) + 4.0 * U * middle
        jacobian = 2.0 * middle * inner + w[:, None] + 0.5 * thin * middle**2
        doubt = (
            2.0 * (middle + half) * error + 2.0 * half * np.abs(inner) + 16.0 * self.rho * np.abs(w)[:, None]
        )
        doubt = doubt + 2.0 * thin * middle * half + 16.0 * self.rho * np.abs(jacobian)
        if _positive_definite(jacobian, doubt):
            return ""
        if self.strictly_inside(group, unsure, inner, error) and _regular(jacobian, doubt):
            return ""
        return "an equilibrium there may not be the only one: its Jacobian cannot be told from a singular one"

    def apart(self, x: Array, other: Array) -> float:
        """A bound on the distance of two profiles' mixture embeddings."""
        a, b = self.alpha * x, self.alpha * other
        a, b = a / a.sum(), b / b.sum()
        gap = a - b
        size = np.abs(gap) @ (self.distances + self.slack) @ np.abs(gap)
        # -v'Dv/2 with v = a - b; entries of v carry rounding of a and b, paired with D through both
        cross = (a + b) @ (self.distances + self.slack) @ np.abs(gap)
        square = (
            -0.5 * float(gap @ self.distances @ gap) + self.rho * float(size) + 4.0 * self.rho * float(cross)
        )
        square += 16.0 * self.rho**2 * float((a + b) @ (self.distances + self.slack) @ (a + b))
        return float(np.sqrt(max(square, 0.0) + 2.0 * self.defect) * (1.0 + 4.0 * self.rho))

    def strictly_inside(
        self, group: list[_Leaf], unsure: npt.NDArray[np.intp], inner: Array, error: Array
    ) -> bool:
        """Whether every equilibrium of the group has all unsure clients strictly between their bounds.

        Its mixture differs from the candidate's by v on the unsure clients only, ``sum v = 0``, with ``v'Kv <= r^2``.
        """
        sure = np.setdiff1d(np.arange(self.count), unsure)
        for leaf in group:
            wanted = np.where(leaf.place[sure] > 0, self.caps[sure], 0.0)
            if np.any(leaf.x[:, sure] != wanted):
                return False
        # K + 11' is at least as large as K on vectors that sum to zero, and bounded below on all of them
        shifted = inner + inner.diagonal().max()
        values, vectors = np.linalg.eigh(shifted)
        rest = (
            np.abs(shifted - (vectors * values) @ vectors.T).sum(axis=1).max()
            + np.abs(error).sum(axis=1).max()
        )
        skew = np.abs(vectors.T @ vectors - np.eye(len(unsure))).sum(axis=1).max()
        least = float(values.min()) * (1.0 - skew - 8 * len(unsure) * U) - float(rest) * (
            1.0 + 8 * len(unsure) * U
        )
        if least <= 0.0:
            return False
        for leaf in group:
            move = np.sqrt(leaf.radius**2 / least) * (1.0 + 8 * self.rho)
            for x in leaf.x:
                y = self.alpha[unsure] * x[unsure]
                total = float((self.alpha * x).sum())
                room = np.minimum(y, self.bound[unsure] - y) / total
                if np.any(room * (1.0 - 8 * self.rho) <= move + 4 * self.rho):
                    return False
        return True


def _positive_definite(matrix: Array, doubt: Array) -> bool:
    """Whether ``v'Mv > 0`` for every v and every M within ``doubt`` of the matrix."""
    symmetric, error = 0.5 * (matrix + matrix.T), 0.5 * (doubt + doubt.T)
    values, vectors = np.linalg.eigh(symmetric)
    n = len(matrix)
    rest = np.abs(symmetric - (vectors * values) @ vectors.T) + 4 * n * U * (
        np.abs(vectors) * np.abs(values)
    ) @ np.abs(vectors.T)
    skew = np.abs(vectors.T @ vectors - np.eye(n)).sum(axis=1).max() + 4 * n * n * U
    least = float(values.min())
    lost = float((rest + error).sum(axis=1).max()) * (1.0 + 8 * n * U)
    return least * (1.0 - skew) > lost if least > 0 else False


def _regular(matrix: Array, doubt: Array) -> bool:
    """Whether every M within ``doubt`` of the matrix is regular: ``||I - C M|| < 1`` for an approximate inverse C."""
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return False
    n = len(matrix)
    residual = np.abs(np.eye(n) - inverse @ matrix) + 4 * n * U * np.abs(inverse) @ np.abs(matrix)
    total = residual + np.abs(inverse) @ doubt
    return bool(np.isfinite(total).all() and total.sum(axis=1).max() * (1.0 + 8 * n * U) < 1.0)


def in_range(game: GameModel, payments: Array) -> bool:
    """Whether products of the game's numbers neither overflow nor lose digits by being too small for floats."""
    largest = float(squared_distances(game)[0].max()) if game.count <= LARGEST_ALIKE else game.geometry.scale
    positive = (game.alpha.min(), game.costs.min(), game.costs.max(), payments.max(), game.lam, largest)
    smallest = min(v for v in (*positive, game.sampling) if v > 0.0)
    w = np.abs(game.reluctance_under(payments)).max()
    return bool(smallest >= RANGE and max(*positive, game.sampling, w) <= 1.0 / RANGE)


def coincide(game: GameModel, caps: npt.ArrayLike | None = None) -> bool:
    """Whether the stored embeddings of all clients from whom anything is taken are the same numbers.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.array([[0.1], [0.1], [0.3]])), [1, 1, 1], costs=[1, 1, 1])
    >>> coincide(game), coincide(game, [1.0, 1.0, 0.0])
    (False, True)
    """
    who = game.remaining[game.check_caps(caps) > 0]
    features = game.embeddings.features
    if features is not None:
        return all(bool((features[k] == features[who[0]]).all()) for k in who)
    inner = game.embeddings._best[np.ix_(who, who)]
    return bool((inner == inner[0, 0]).all())


def squared_distances(game: GameModel) -> tuple[Array, Array, int, float]:
    """Squared distances, absolute errors beyond relative rounding, terms of that rounding, and the defect of the inner products."""
    known: dict[str, Any] = game.__dict__  # a game does not change: its distances are worked out once
    if "_judged_distances" not in known:
        known["_judged_distances"] = _squared_distances(game)
    found: tuple[Array, Array, int, float] = known["_judged_distances"]
    return found


def _squared_distances(game: GameModel) -> tuple[Array, Array, int, float]:
    keep, features = game.remaining, game.embeddings.features
    if features is not None:
        rows = np.asarray(features[keep], dtype=np.float64)
        squares = np.empty((len(keep), len(keep)))
        for i, row in enumerate(rows):
            gap = rows - row
            squares[i] = np.einsum("kd,kd->k", gap, gap)
        squares = np.maximum(squares, squares.T)
        return squares, np.zeros_like(squares), rows.shape[1] + 8, 0.0
    inner = -np.asarray(game.embeddings._best[np.ix_(keep, keep)], dtype=np.float64)
    diagonal = np.diag(inner)
    squares = diagonal[:, None] + diagonal[None, :] - 2.0 * inner
    error = 4.0 * U * (np.abs(diagonal)[:, None] + np.abs(diagonal)[None, :] + 2.0 * np.abs(inner))
    error = error + np.maximum(-squares, 0.0)
    squares = np.maximum(0.5 * (squares + squares.T), 0.0)
    np.fill_diagonal(squares, 0.0)
    return squares, error, 8, _defect(squares, error)


def _defect(squares: Array, error: Array) -> float:
    """A number with ``-x'Dx / 2 >= -defect ||x||^2`` for all x that sum to zero."""
    n = len(squares)
    means = squares.mean(axis=1)
    centred = -0.5 * (squares - means[:, None] - means[None, :] + means.mean())
    values, vectors = np.linalg.eigh(centred)
    rest = np.abs(centred - (vectors * values) @ vectors.T)
    rest = rest + 4 * n * U * (np.abs(vectors) * np.abs(values)) @ np.abs(vectors.T)
    rest = rest + error + 8 * n * U * (squares + means[:, None] + means[None, :])
    skew = np.abs(vectors.T @ vectors - np.eye(n)).sum(axis=1).max() + 4 * n * n * U
    return float(max(-values.min(), 0.0) * (1.0 + skew) + rest.sum(axis=1).max() * (1.0 + 8 * n * U))


@cache
def _kernels() -> Any:
    """The compiled passes, loaded when they are first needed."""
    from . import _segment_kernels

    return _segment_kernels

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
from .distances import ALL_PAIRS, HALVINGS, RANGE, U, distances_of, in_range

__all__ = [
    "RESOLVED",
    "Completeness",
    "check_alike",
    "check_complete",
    "coincide",
    "follow_chain",
]

#: Segments are halved this often where nothing is decided, more often where that settles nothing: what is left is then a 4000th, a
#: 10^-7th or a 10^-13th of a piece. Around most equilibria the first is enough; shorter ones are many where rounding decides.
DEPTHS = (12, 24, HALVINGS)
#: Undecided pieces that are kept; more than this is no neighbourhood of a few equilibria.
MOST_LEAVES = 4000
#: Room for as many is made at first: there are seldom more.
FEW_LEAVES = 20
#: A bracket wider than this part of its upper end does not say which equilibrium it is about.
RESOLVED = 1e-3
#: Up to this many clients :func:`check_alike` is asked.
LARGEST_ALIKE = ALL_PAIRS
#: Why nothing is proved in floats.
OUT_OF_RANGE = "the game's numbers are too far apart for floats"
#: Why a bracket is not settled that is wider than :data:`RESOLVED`.
WIDE = "an equilibrium is there, but its total is not known better"


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
    profiles = np.array(chain, dtype=np.float64, order="C")
    if profiles.ndim != 2 or profiles.shape[1] != game.count or len(profiles) < 3 or len(profiles) % 2 == 0:
        raise InputError("chain", "needs an odd number of profiles, at least three", value=profiles.shape)
    totals = [float(game.alpha @ np.asarray(x, dtype=np.float64)) for x in found]
    return follow_chain(game, paid, profiles, totals, most, continua)


def follow_chain(
    game: GameModel,
    payments: Array,
    chain: Array,
    totals: list[float],
    caps: Array,
    continua: Sequence[tuple[float, float]] = (),
) -> Completeness:
    """:func:`check_complete` for payments and caps that need no checking and a chain of the right shape; ``totals`` were found."""
    if not _kernels().possible(chain, caps):
        return Completeness(False, (), "the chain leaves what the clients can do")
    if not in_range(game, payments) or not float(game.alpha @ chain[-1]) >= RANGE:
        return Completeness(False, (), OUT_OF_RANGE)
    floats = _Floats(game, payments, caps)
    reason = floats.ends(chain[0], chain[-1])
    if reason:
        return Completeness(False, (), reason)
    outcome = Completeness(False, (), "too much of the chain decides nothing")
    for depth in DEPTHS:
        leaves = floats.walk(chain, depth)
        if leaves is None:
            continue
        outcome = floats.settle(leaves, totals, continua)
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
    if not in_range(game, paid) or not float(game.alpha @ x) >= RANGE:
        return Completeness(False, (), OUT_OF_RANGE)
    floats, read = _Floats(game, paid, most), distances_of(game)
    rho, w, a, defect = read.rho, floats.w, read.a, read.defect
    least = float(w.min()) * (1.0 - rho)
    if not least > 0.0:
        return Completeness(False, (), "somebody is paid its cost or more")
    spread = float(w.max()) * (1.0 + rho) - least
    y = read.alpha * x
    total = float(y.sum())
    toward, size = read.squares @ y, (read.squares + read.off / rho) @ y
    joint, joint_size = float(y @ toward), float(y @ size)
    squares = toward / total - 0.5 * joint / total**2
    error = 4.0 * rho * (size / total + joint_size / total**2 + total * np.abs(w) + a / total)
    g = squares + 0.5 * a / total - total * w
    room = np.maximum(floats.bound * (1.0 + rho) - y * (1.0 - rho), 0.0)
    gap = float(np.maximum(np.maximum(g + error, 0.0) * room, np.maximum(error - g, 0.0) * y).sum())
    gap = (gap + 8.0 * defect) * (1.0 + 8.0 * rho)
    shift = (spread + np.sqrt(spread**2 + least * gap)) / least * (1.0 + 8.0 * rho)
    radius = float(np.sqrt((gap + 2.0 * spread * shift) / total + 2.0 * defect)) * (1.0 + 8.0 * rho)
    drift = np.sqrt(np.maximum(squares + error, 0.0) + 2.0 * defect)
    move = (radius**2 + 2.0 * radius * drift + 4.0 * defect + shift * np.abs(w)) * (1.0 + 16.0 * rho) + error
    if a > 0.0:
        if not shift < total:
            return Completeness(False, (), "equilibria with next to no participation are not excluded")
        move = move + a * shift / (total * (total - shift))
    place = np.where(g > move, 1, np.where(g < -move, -1, 0)).astype(np.int8)
    group = _Leaves(np.array([[x, x, x]]), place[None, :], np.array([radius]))
    low, high, unsure = floats.bracket(group)
    reason = floats.several(group, low - shift, high + shift, unsure)
    brackets = ((total - shift, total + shift),)
    if reason:
        return Completeness(False, brackets, reason)
    return Completeness(
        True, brackets, "all w_k are equal up to rounding, and no other equilibrium is possible"
    )


@dataclass(frozen=True, eq=False)
class _Leaves:
    """Undecided pieces that touch: control profiles of each, where the clients must be, and the radius around its candidates."""

    x: Array
    place: npt.NDArray[np.int8]
    radii: Array


class _Floats:
    """The checker's steps on a game's numbers in floats with proved error bounds; in balls they stand in
    :mod:`.completeness_balls`."""

    def __init__(self, game: GameModel, payments: Array, caps: Array) -> None:
        self.read = read = distances_of(game)
        self.caps, self.bound = np.array(caps), read.alpha * caps
        # who is paid more than its cost takes part fully whatever the others do: how much more does not matter
        self.w = np.maximum(read.reluctance(payments), -read.largest)

    def ends(self, first: Array, last: Array) -> str:
        """Why equilibria above the first total or below the last one are not excluded, or nothing."""
        read = self.read
        above, below = _kernels().ends(
            first, last, read.alpha, self.caps, read.reach, read.apart, self.w, read.a, read.rho
        )
        if not above:
            return "the chain does not begin where everybody takes part, nor above every possible total"
        total = float(read.alpha @ last)
        return (
            ""
            if below
            else f"the chain ends at a total of {total:.3g}, where something may still happen below"
        )

    def walk(self, chain: Array, depth: int) -> _Leaves | None:
        """The pieces that decide nothing, in the chain's order; None if they are too many."""
        return self._walk(chain, depth, FEW_LEAVES) or self._walk(chain, depth, MOST_LEAVES)

    def _walk(self, chain: Array, depth: int, most: int) -> _Leaves | None:
        read, N = self.read, len(self.w)
        leaves, places, radii = np.empty((most, 3, N)), np.empty((most, N), dtype=np.int8), np.empty(most)
        count = _kernels().walk(
            chain, read.squares, read.slack, read.even, read.alpha, self.caps, self.w, read.a, read.rho, read.defect, depth,
            leaves, places, radii
        )  # fmt: skip
        return None if count < 0 else _Leaves(leaves[:count], places[:count], radii[:count])

    def settle(
        self, leaves: _Leaves, totals: list[float], continua: Sequence[tuple[float, float]] = ()
    ) -> Completeness:
        """Show that every group of pieces that touch holds at most one equilibrium, and one was found there."""
        brackets: list[tuple[float, float]] = []
        left = sorted(totals)
        first, count = 0, len(leaves.x)
        while first < count:
            last = _kernels().end_of_group(leaves.x, first, count)
            group = _Leaves(leaves.x[first:last], leaves.place[first:last], leaves.radii[first:last])
            first = last
            low, high, unsure = self.bracket(group)
            brackets.append((low, high))
            inside = [s for s in left if low <= s <= high]
            if any(low <= end and begin <= high for begin, end in continua):
                left = [s for s in left if s not in inside]
                continue
            if len(inside) != 1:
                word = "no equilibrium was found" if not inside else f"{len(inside)} equilibria were found"
                message = f"{word} with a total between {low:.9g} and {high:.9g}, where some may be"
                return Completeness(False, tuple(brackets), message)
            left.remove(inside[0])
            reason = self.several(group, low, high, unsure)
            if reason:
                message = f"{reason} (total between {low:.9g} and {high:.9g})"
                return Completeness(False, tuple(brackets), message)
        if left:
            message = f"no equilibrium can have a total of {left[0]:.9g}, as one is said to have"
            return Completeness(False, tuple(brackets), message)
        word = "equilibrium" if len(brackets) == 1 else "equilibria"
        message = f"every total was followed; {len(brackets)} {word}, no other is possible"
        return Completeness(True, tuple(brackets), message)

    def bracket(self, group: _Leaves) -> tuple[float, float, npt.NDArray[np.intp]]:
        """Between which totals the equilibria of the group lie, and who is not known to be at one of its bounds in all of them."""
        unsure = np.empty(len(self.w), dtype=np.intp)
        low, high, count = _kernels().bracket(
            group.x, group.place, self.read.alpha, self.bound, self.read.rho, unsure
        )
        return low, high, unsure[:count]

    def several(self, group: _Leaves, low: float, high: float, unsure: npt.NDArray[np.intp]) -> str:
        """Why the group may hold several equilibria with totals between ``low`` and ``high``, or nothing."""
        if len(unsure) == 0:  # everybody is at a bound, so there is one profile
            return ""
        if low <= 0.0:
            return "equilibria with next to no participation are not excluded"
        if high - low > RESOLVED * high:
            return WIDE
        read, n = self.read, len(unsure)
        inner, error, jacobian, doubt = parts = np.empty((4, n, n))
        _kernels().jacobian(
            group.x, group.radii, unsure, read.squares, read.slack, read.even, read.alpha, self.w, read.a, read.rho,
            read.defect, low, high, parts
        )  # fmt: skip
        if _kernels().positive_definite(jacobian, doubt):
            return ""
        if self.strictly_inside(group, unsure, inner, error) and _regular(jacobian, doubt):
            return ""
        return "an equilibrium there may not be the only one: its Jacobian cannot be told from a singular one"

    def strictly_inside(
        self, group: _Leaves, unsure: npt.NDArray[np.intp], inner: Array, error: Array
    ) -> bool:
        """Whether every equilibrium of the group has all unsure clients strictly between their bounds.

        Its mixture differs from the candidate's by v on the unsure clients only, ``sum v = 0``, with ``v'Kv <= r^2``.
        """
        rho, alpha, n = self.read.rho, self.read.alpha, len(unsure)
        sure = np.setdiff1d(np.arange(len(self.w)), unsure)
        wanted = np.where(group.place[:, sure] > 0, self.caps[sure], 0.0)
        if np.any(group.x[:, :, sure] != wanted[:, None, :]):
            return False
        # K + 11' is at least as large as K on vectors that sum to zero, and bounded below on all of them
        shifted = inner + inner.diagonal().max()
        values, vectors = np.linalg.eigh(shifted)
        rest = np.abs(shifted - (vectors * values) @ vectors.T).sum(axis=1).max()
        rest = rest + np.abs(error).sum(axis=1).max()
        skew = np.abs(vectors.T @ vectors - np.eye(n)).sum(axis=1).max()
        least = float(values.min()) * (1.0 - skew - 8 * n * U) - float(rest) * (1.0 + 8 * n * U)
        if not least > 0.0:
            return False
        for x, radius in zip(group.x, group.radii, strict=True):
            move = np.sqrt(radius**2 / least) * (1.0 + 8 * rho)
            y = alpha[unsure] * x[:, unsure]
            room = np.minimum(y, self.bound[unsure] - y) / (x @ alpha)[:, None]
            if not np.all(room * (1.0 - 8 * rho) > move + 4 * rho):
                return False
        return True


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


@cache
def _kernels() -> Any:
    """The compiled passes, loaded when they are first needed."""
    from . import _segment_kernels

    return _segment_kernels

"""Check that no equilibrium is missing, or that there is only one, from a chain of profiles left by the solver.

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
segment at a time; undecided segments are halved. Above the first total nothing is possible because every client
already takes part fully (or because ``s w_k > max_j D_jk`` for all k), below the last one because two clients i, j always have
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
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..model import Array, GameModel
from . import findings
from .distances import ALL_PAIRS, HALVINGS, RANGE, Distances, distances_of

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
#: Reason for no proof in floats.
OUT_OF_RANGE = "the game's numbers are too far apart for floats"
#: Reason for an unsettled bracket that is wider than :data:`RESOLVED`.
WIDE = "an equilibrium is there, but its total is not known better"
#: Reasons for open ends of a chain, by the findings of :func:`stackfu.judging._segment_kernels.ends`.
ENDS = {
    findings.IMPOSSIBLE: "the chain leaves what the clients can do",
    findings.TOO_FAR_APART: OUT_OF_RANGE,
    findings.OPEN_ABOVE: "the chain does not begin where everybody takes part, nor above every possible total",
    findings.OPEN_BELOW: "the chain ends at a total of {:.3g}, where something may still happen below",
}
#: Reasons for an unsettled bracket, by the findings of :func:`stackfu.judging._segment_kernels.several`.
SEVERAL = {
    findings.NEXT_TO_NOBODY: "equilibria with next to no participation are not excluded",
    findings.TOO_WIDE: WIDE,
    findings.SINGULAR: "an equilibrium there may not be the only one: its Jacobian cannot be told from a singular one",
}


@dataclass(frozen=True)
class Completeness:
    """Proof from a chain: every equilibrium has its total in one of ``brackets``, and each of them holds at most one.

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
    """Check that the equilibria ``found`` are complete, by following the chain.

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
    floats = _Floats.of(game, payments, caps)
    if floats is None:
        return Completeness(False, (), OUT_OF_RANGE)
    reason = floats.ends(chain)
    if reason:
        return Completeness(False, (), reason)
    outcome = Completeness(False, (), "too much of the chain decides nothing")
    weighed = floats.weigh(chain)
    for depth in DEPTHS:
        leaves = floats.walk(chain, weighed, depth)
        if leaves is None:
            continue
        outcome = floats.settle(leaves, totals, continua)
        if outcome.accepted:
            return outcome
    return outcome


def check_alike(
    game: GameModel, payments: npt.ArrayLike | None, found: npt.ArrayLike, caps: npt.ArrayLike | None = None
) -> Completeness:
    """Check that an equilibrium of clients with (nearly) equal, positive reluctances is the only one, without a chain.

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
    floats = _Floats.of(game, paid, most)
    if floats is None or not float(game.alpha @ x) >= RANGE:
        return Completeness(False, (), OUT_OF_RANGE)
    read, w = floats.read, floats.w
    rho, a, defect = read.rho, read.a, read.defect
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
    leaf = np.array([[x, x, x]]), place[None, :], np.array([radius])
    outcome = floats.settle(leaf, [total], shift=shift)
    if not outcome:
        return outcome
    return replace(outcome, message="all w_k are equal up to rounding, and no other equilibrium is possible")


#: Undecided pieces, in the chain's order: control profiles of each, where the clients must be, the radius around its candidates.
_Leaves: TypeAlias = tuple[Array, npt.NDArray[np.int8], Array]


class _Floats(NamedTuple):
    """The checker's steps on a game's numbers in floats with proved error bounds; in balls they stand in
    :mod:`.completeness_balls`. ``bound`` is the most that is taken of each client."""

    read: Distances
    caps: Array
    bound: Array
    w: Array

    @classmethod
    def of(cls, game: GameModel, payments: Array, caps: Array) -> _Floats | None:
        """Return a game under payments and caps; None where floats prove nothing."""
        read = distances_of(game)
        w = read.reluctance(payments)
        return None if w is None else cls(read, caps, read.alpha * caps, w)

    def ends(self, chain: Array) -> str:
        """Return the reason why the chain is invalid or equilibria beyond its ends are not excluded, or an empty string."""
        read = self.read
        code = _kernels().ends(
            chain, read.alpha, self.caps, self.bound, read.reach, read.apart, self.w, read.a, read.rho, RANGE
        )
        return "" if code == findings.CLOSED else ENDS[code].format(float(read.alpha @ chain[-1]))

    def weigh(self, chain: Array) -> Array:
        """``D y`` of all profiles."""
        out = np.empty(chain.shape)
        _kernels().weigh(chain, self.read.alpha, self.read.squares, out)
        return out

    def walk(self, chain: Array, weighed: Array, depth: int) -> _Leaves | None:
        """Return the pieces that decide nothing; None if they are too many."""
        read, N = self.read, len(self.w)
        for most in (FEW_LEAVES, MOST_LEAVES):
            leaves, place, radii = np.empty((most, 3, N)), np.empty((most, N), dtype=np.int8), np.empty(most)
            count = _kernels().walk(
                chain, weighed, read.by_client, read.even, read.alpha, self.bound, self.w, read.a, read.rho, read.defect, depth,
                leaves, place, radii
            )  # fmt: skip
            if count != findings.TOO_MANY:
                return leaves[:count], place[:count], radii[:count]
        return None

    def settle(
        self,
        leaves: _Leaves,
        totals: list[float],
        continua: Sequence[tuple[float, float]] = (),
        shift: float = 0.0,
    ) -> Completeness:
        """Show that every group of pieces that touch holds at most one equilibrium, and one was found there.

        Totals of equilibria may differ from those of the pieces by ``shift``.
        """
        brackets = np.empty((len(leaves[0]), 2))
        known = np.array(continua, dtype=np.float64).reshape(-1, 2)
        code, count, which = _kernels().settle(
            *leaves, np.array(totals, dtype=np.float64), shift, known, *self._numbers, RESOLVED, brackets
        )
        proved = tuple(map(tuple, brackets[:count].tolist()))
        if code == findings.SETTLED:
            word = "equilibrium" if count == 1 else "equilibria"
            return Completeness(
                True, proved, f"every total was followed; {count} {word}, no other is possible"
            )
        if code == findings.NOWHERE:
            message = f"no equilibrium can have a total of {totals[which]:.9g}, as one is said to have"
            return Completeness(False, proved, message)
        low, high = proved[-1]
        if code == findings.MISCOUNTED:
            word = "no equilibrium was found" if which == 0 else f"{which} equilibria were found"
            message = f"{word} with a total between {low:.9g} and {high:.9g}, where some may be"
        else:
            message = f"{SEVERAL[code]} (total between {low:.9g} and {high:.9g})"
        return Completeness(False, proved, message)

    @property
    def _numbers(self) -> tuple[Any, ...]:
        read = self.read
        game = read.squares, read.slack, read.even, read.alpha
        return *game, self.caps, self.bound, self.w, read.a, read.rho, read.defect


def coincide(game: GameModel, caps: npt.ArrayLike | None = None) -> bool:
    """Return True if the stored embeddings of all clients with a positive cap are the same numbers.

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
    """Return the compiled passes, loaded when they are first needed."""
    from . import _segment_kernels

    return _segment_kernels

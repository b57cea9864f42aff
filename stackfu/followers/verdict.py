"""Claims about the zeros of t: those of the solver, and those that the checkers accept.

The path only proposes: zeros of t, faces through them, a chain of profiles along the curve. What is said about them is what
:mod:`stackfu.judging.stakes` (is this an equilibrium?) and :mod:`stackfu.judging.completeness` (are there others?) have
accepted. Where they refuse and the game is small, the path is followed once more in several hundred bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..judging.completeness import Completeness, follow_chain
from ..judging.stakes import NEGLIGIBLE, bound_gains, check_at_caps, check_stakes
from ..model import Array, GameModel, frozen
from ..results import Face, Status, Uniqueness
from .faces import equilibrium_face, span_of
from .path import Path, Root, follow_path, tracing
from .solver_tolerances import LOOKS_WRONG, RESIDUAL, STILL

__all__ = ["TRADE", "Findings", "examine", "status_of"]

#: Meaning of a face of equilibria.
TRADE = "clients can trade participation without changing S or the mixture's mean"
#: About so many profiles between the ends of an interval of equilibria are looked at.
BETWEEN = 8
#: Squared distances with products safely in the range of floats.
SQUARE_ROOTS = (1e-150, 1e150)


@dataclass(frozen=True, eq=False)
class Findings:
    """All equilibria that a path found, the faces they lie on, and what was accepted about them.

    ``regrets`` are proved bounds on the largest gain of a client relative to its own stakes, one per equilibrium; ``residuals`` and
    ``gains`` what :meth:`~stackfu.model.GameModel.judge` finds there.
    """

    path: Path
    faces: tuple[Face | None, ...]
    regrets: tuple[float, ...]
    residuals: tuple[float, ...]
    gains: tuple[float, ...]
    uniqueness: Uniqueness
    reason: str
    complete: bool

    @property
    def roots(self) -> tuple[Root, ...]:
        """The equilibria, by ascending total."""
        return self.path.roots

    @property
    def accepted(self) -> bool:
        """True if all found profiles are equilibria."""
        return _proved(self.regrets, self.residuals)

    @property
    def settled(self) -> bool:
        """True if nothing is open, and every client is at its best response up to rounding."""
        return (
            self.complete
            and self.uniqueness is not Uniqueness.UNKNOWN
            and max(self.regrets, default=np.inf) <= NEGLIGIBLE
            and max(self.residuals, default=np.inf) <= RESIDUAL
        )


def examine(
    game: GameModel, payments: Array, enough: float = NEGLIGIBLE, caps: Array | None = None
) -> Findings:
    """Follow the path and have it judged; ``enough`` is the regret, relative to stakes, that floats must show."""
    found = _judged(game, payments, follow_path(game, payments, caps), enough, caps)
    if found.settled:
        return found
    most = game.no_caps if caps is None else caps
    verdict = check_at_caps(game, payments, caps)
    if verdict:  # nothing else is possible, whatever rounding did to the path
        everybody = Root(most, np.where(most > 0, 1, -1).astype(np.int8), "crossing", 0)
        regret = float(check_stakes(game, payments, most, caps, enough).max())
        residual, gain = game.judge_checked(payments, most, caps)
        path = replace(found.path, roots=(everybody,))
        return Findings(
            path, (None,), (regret,), (residual,), (gain,), Uniqueness.UNIQUE, verdict.message, True
        )
    from .path import precise

    if not precise.possible(game) or not SQUARE_ROOTS[0] < game.geometry.scale < SQUARE_ROOTS[1]:
        return found  # its tests for zero are in floats, and products of two distances are out of their range
    from .path.tracing import smallest_total

    lowest = smallest_total(game, game.reluctance_under(payments), caps)
    path = precise.follow_precisely(game, payments, lowest, caps)
    again = _judged(game, payments, path, enough, caps)
    better = (again.settled, again.accepted, again.complete) > (False, found.accepted, found.complete)
    return again if path.finished and path.roots and better else found


def _proved(regrets: tuple[float, ...], residuals: tuple[float, ...]) -> bool:
    """Return True if all found profiles are equilibria."""
    return max(regrets, default=np.inf) <= NEGLIGIBLE and max(residuals, default=np.inf) <= LOOKS_WRONG


def status_of(residual: float, regret: float, tolerance: float, failure: Status = Status.FAILED) -> Status:
    """CERTIFIED where the regret is proved to be negligible, CONVERGED where only the residual is small.

    A visible residual with a proved regret belongs to a client that may move very little, or with a share of a billionth of its
    stakes: nothing is proved about its best response, so nothing is claimed.
    """
    if not (residual <= tolerance or regret <= tolerance) or not residual <= LOOKS_WRONG:
        return failure
    return Status.CERTIFIED if regret <= NEGLIGIBLE else Status.CONVERGED


def _judged(game: GameModel, payments: Array, path: Path, enough: float, caps: Array | None) -> Findings:
    roots = path.roots
    most = game.no_caps if caps is None else caps
    regrets = tuple(
        float(bound_gains(game, payments, root.participation, most, enough).max()) for root in roots
    )
    judged = [game.judge_checked(payments, root.participation, caps) for root in roots]
    residuals, gains = tuple(r for r, _ in judged), tuple(g for _, g in judged)
    proposed = _faces(game, payments, path, caps)
    uniqueness, reason = _claim(game, payments, path, proposed)
    # a face is stated only if its points are equilibria, whatever else is left open
    faces = tuple(
        face if face is not None and _holds(game, payments, face, caps) else None for face in proposed
    )
    left = ""
    if uniqueness is not Uniqueness.UNKNOWN:
        left = (
            _not_equilibria(regrets, residuals)
            or _no_faces(roots, proposed, faces)
            or _maybe_others(game, payments, path, faces, caps)
        )
    complete = uniqueness is not Uniqueness.UNKNOWN and not left
    if left:
        uniqueness, reason = Uniqueness.UNKNOWN, left
    return Findings(path, faces, regrets, residuals, gains, uniqueness, reason, complete)


def _not_equilibria(regrets: tuple[float, ...], residuals: tuple[float, ...]) -> str:
    """Return the reason why the found profiles may not be equilibria, or an empty string."""
    if _proved(regrets, residuals):
        return ""
    return (
        f"an equilibrium that the path found may give a client {max(regrets, default=np.inf):.1e} of its stakes to gain, "
        f"or leaves its condition open by {max(residuals, default=np.inf):.1e}"
    )


def _no_faces(
    roots: tuple[Root, ...], proposed: tuple[Face | None, ...], faces: tuple[Face | None, ...]
) -> str:
    """Return the reason why clients may not be able to trade although it looks so, or an empty string."""
    if all(face is not None or one is None for face, one in zip(faces, proposed, strict=True)):
        return ""
    if any(root.kind == "flat" for root in roots):
        return "t(s) comes within rounding of zero on a whole interval of totals s; whether it is zero there cannot be told"
    return "clients seem to be able to trade participation, but not without somebody gaining by it"


def _maybe_others(
    game: GameModel, payments: Array, path: Path, faces: tuple[Face | None, ...], caps: Array | None
) -> str:
    """Return the reason why the path may have missed equilibria, or an empty string."""
    if len(path.chain) < 3:
        return f"that there are no others is proved for at most {tracing.LARGEST_CHAIN:,} clients"
    totals = [float(game.alpha @ root.participation) for root in path.roots]
    continua = [(s, s) for s, face in zip(totals, faces, strict=True) if face is not None]
    flat = [s for s, root in zip(totals, path.roots, strict=True) if root.kind == "flat"]
    continua += zip(flat[::2], flat[1::2], strict=True)
    verdict = _check_complete(game, payments, path, totals, continua, caps)
    return "" if verdict else f"that there are no others could not be proved: {verdict.message}"


def _check_complete(
    game: GameModel,
    payments: Array,
    path: Path,
    totals: list[float],
    continua: list[tuple[float, float]],
    caps: Array | None,
) -> Completeness:
    """Return the judge in floats, and where the path was followed more precisely than that, in balls."""
    most = game.no_caps if caps is None else caps
    chain = np.array(path.chain, order="C")
    verdict = follow_chain(game, payments, chain, totals, most, continua)
    if verdict or not path.exact:
        return verdict
    from ..judging.completeness_balls import LARGEST_CHAIN, check_complete_in_balls

    if game.count > LARGEST_CHAIN:
        return verdict
    profiles = [root.participation for root in path.roots]
    return check_complete_in_balls(game, payments, path.exact, profiles, caps, continua)


def _faces(game: GameModel, payments: Array, path: Path, caps: Array | None) -> tuple[Face | None, ...]:
    roots = path.roots
    faces: list[Face | None] = [
        equilibrium_face(game, payments, root.participation, caps=caps) if root.tight else None
        for root in roots
    ]
    flat = [i for i, root in enumerate(roots) if root.kind == "flat"]
    for i, j in zip(flat[::2], flat[1::2], strict=True):
        first, second = roots[i].participation, roots[j].participation
        faces[i] = faces[j] = span_of(
            game, payments, first, second, _between(game, path, first, second), caps
        )
    return tuple(faces)


def _between(game: GameModel, path: Path, first: Array, second: Array) -> list[Array]:
    """Some profiles of the chain with totals between those of two others."""
    low, high = sorted((float(game.alpha @ first), float(game.alpha @ second)))
    ends = path.chain[::2]
    profiles = [*ends, *(0.5 * (a + b) for a, b in pairwise(ends))]
    inner = [frozen(x) for x in profiles if low < float(game.alpha @ x) < high]
    return inner[:: max(1, len(inner) // BETWEEN)]


def _holds(game: GameModel, payments: Array, face: Face, caps: Array | None) -> bool:
    """Return True if the face's points are equilibria and differ; they share S and m, so all between them are equilibria too."""
    apart = float(np.ptp(np.array(face.points), axis=0).max(initial=0.0)) if face.points else 0.0
    return apart > STILL and all(
        float(check_stakes(game, payments, x, caps).max()) <= NEGLIGIBLE for x in face.points
    )


def _claim(
    game: GameModel, payments: Array, path: Path, faces: tuple[Face | None, ...]
) -> tuple[Uniqueness, str]:
    """Return the path's own conclusion."""
    if not path.complete:
        return Uniqueness.UNKNOWN, (
            f"a check along t(s) failed (violation {path.violation:.1e}, jump {path.jump:.1e}, "
            f"{'reached' if path.finished else 'did not reach'} s = 0): equilibria may be missing"
        )
    kinds = [root.kind for root in path.roots]
    if "flat" in kinds:
        return Uniqueness.CONTINUUM, "t(s) is zero on a whole interval of totals s"
    wide = next((face for face in faces if face is not None), None)
    if wide is not None:
        return Uniqueness.CONTINUUM, f"{TRADE}: {wide}"
    if kinds.count("crossing") == 1 and len(kinds) > 1:
        return Uniqueness.UNKNOWN, (
            "t(s) crosses zero once and elsewhere comes within rounding of zero without crossing: "
            "the equilibria there may be none, one or two"
        )
    if len(kinds) > 1:
        return Uniqueness.MULTIPLE, f"t(s) is zero at {len(kinds)} totals s in (0, 1]"
    return Uniqueness.UNIQUE, f"t(s), followed over all {len(path)} pieces of (0, 1], is zero once"

"""One equilibrium or all of them: which method, and what may be said about the result."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import numpy as np

from ..errors import ConvergenceError, NoEquilibriumError
from ..model import Array, GameModel, Profile
from ..results import Equilibria, Equilibrium, Face, Status, Uniqueness
from .faces import equilibrium_face, span_of
from .homogeneous import COLLAPSE, homogeneous_equilibrium
from .options import SearchOptions
from .path import Path, Root, follow_path
from .tolerances import EQUAL, ZERO, default_tolerance

__all__ = ["LARGEST_PATH", "enumerate_equilibria", "find_equilibrium"]

#: Up to this many clients ``equilibrium()`` follows the path, which settles uniqueness as well.
LARGEST_PATH = 300
#: What a face of equilibria means.
TRADE = "clients can trade participation without changing S or the mixture's mean"
#: Up to this many clients the path is followed when sweeps do not converge.
LARGEST_FALLBACK = 3000


def enumerate_equilibria(game: GameModel, payments: Array) -> Equilibria:
    """Every equilibrium, ordered by total participation.

    A continuum is represented by one point with its :class:`~stackfu.result.Face`, or by its two ends where
    the total varies along it.
    """
    began = time.perf_counter()
    if game.is_homogeneous:
        return _homogeneous(game, payments, began)
    path = follow_path(game, payments)
    faces = _faces(game, payments, path.roots)
    uniqueness, reason = _verdict(game, payments, path, faces)
    tolerance = default_tolerance(game.count)
    items = [
        _from_root(game, payments, path, root, face, uniqueness, reason, tolerance, began)
        for root, face in zip(path.roots, faces, strict=True)
    ]
    complete = path.complete and all(item.status is Status.CERTIFIED for item in items)
    if not complete and uniqueness is not Uniqueness.UNKNOWN:
        uniqueness = Uniqueness.UNKNOWN
        reason = "an equilibrium that the path found does not meet the tolerance at the returned point"
    return Equilibria(
        game, payments, tuple(items), uniqueness, reason, complete, path, time.perf_counter() - began
    )


def find_equilibrium(
    game: GameModel, payments: Array, options: SearchOptions | None = None, *, start: Array | None = None
) -> Equilibrium:
    """One equilibrium, verified at the returned point; ``start`` alone may be given without a record of options.

    ``path`` returns the equilibrium with the largest total participation if there are several, or, given a
    ``start``, the one nearest to where sequential best responses lead from there. ``sweeps`` returns the one
    its best responses reach from ``start``, ``qp`` the one its bisection closes in on.
    """
    options = SearchOptions(start=start) if options is None else options
    began = time.perf_counter()
    if game.is_homogeneous:
        all_of_them = _homogeneous(game, payments, began)
        if not all_of_them:
            raise NoEquilibriumError(COLLAPSE)
        return all_of_them[-1]
    tolerance, method = options.tolerance_for(game.count), options.method
    if method == "auto":
        method = "path" if game.count <= LARGEST_PATH else "sweeps"
    if method == "path":
        return _by_path(game, payments, options.start, tolerance, began)
    if method == "qp":
        return _by_qp(game, payments, tolerance, began)
    found = _by_sweeps(game, payments, options, tolerance, began)
    if found.status is Status.MAX_ITERATIONS and game.count <= LARGEST_FALLBACK:
        return _by_path(game, payments, options.start, tolerance, began)
    return found


def _by_sweeps(
    game: GameModel, payments: Array, options: SearchOptions, tolerance: float, began: float
) -> Equilibrium:
    from .sweeps import sweep_to_equilibrium

    sweeps = sweep_to_equilibrium(game, payments, options, tolerance)
    stopped = Status.INTERRUPTED if sweeps.interrupted else Status.MAX_ITERATIONS
    history = tuple(sweeps.history)
    return _found(game, payments, sweeps.profile, "sweeps", stopped, tolerance, began, len(history), history)


def _by_qp(game: GameModel, payments: Array, tolerance: float, began: float) -> Equilibrium:
    from .qp import bisect_total

    x, solved = bisect_total(game, payments)
    return _found(game, payments, game.profile(x), "qp", Status.FAILED, tolerance, began, solved)


def _found(
    game: GameModel,
    payments: Array,
    profile: Profile,
    method: str,
    failure: Status,
    tolerance: float,
    began: float,
    iterations: int,
    history: tuple[dict[str, Any], ...] = (),
) -> Equilibrium:
    """The record of a point found without following the path; uniqueness is what theory says about it."""
    residual, regret = game.judge(payments, profile)
    status = Status.CONVERGED if residual <= tolerance else failure
    uniqueness, reason, face = Uniqueness.UNKNOWN, "no verified equilibrium", None
    if status.success:
        uniqueness, reason, face = _by_theory(game, payments, profile)
    return Equilibrium(
        game=game,
        payments=payments,
        participation=profile.x,
        status=status,
        uniqueness=uniqueness,
        reason=reason,
        method=method,
        regret=regret,
        residual=residual,
        iterations=iterations,
        seconds=time.perf_counter() - began,
        face=face,
        history=history,
    )


def _by_theory(game: GameModel, payments: Array, profile: Profile) -> tuple[Uniqueness, str, Face | None]:
    """What can be said about uniqueness at an equilibrium without looking for others."""
    w, x = game.reluctance(payments), profile.x
    inside = int(np.count_nonzero((x > 0) & (x < 1)))
    features = game.embeddings.features
    if features is not None and inside > features.shape[1] + 1:
        return (
            Uniqueness.CONTINUUM,
            f"{inside} clients are strictly inside (0, 1); so many embeddings in {features.shape[1]} "
            f"dimensions are affinely dependent, so {TRADE}",
            None,
        )
    face = equilibrium_face(game, payments, x, profile)
    if face is not None:
        return Uniqueness.CONTINUUM, f"{TRADE}: {face}", face
    if float(np.ptp(w)) <= EQUAL * float(np.abs(w).max()):
        return (
            Uniqueness.UNIQUE,
            "all w_k are equal: a concave potential game with unique S and mean, and no clients can trade",
            None,
        )
    if np.all(w > 0) and not np.any(x == 1):
        return (
            Uniqueness.UNKNOWN,
            "the only equilibrium in which nobody takes part fully; others were not searched for",
            None,
        )
    return (
        Uniqueness.UNKNOWN,
        "other equilibria were not searched for; equilibria() does that for smaller games",
        None,
    )


def _by_path(
    game: GameModel, payments: Array, start: Array | None, tolerance: float, began: float
) -> Equilibrium:
    path = follow_path(game, payments)
    faces = _faces(game, payments, path.roots)
    uniqueness, reason = _verdict(game, payments, path, faces)
    chosen = len(path.roots) - 1
    if len(path.roots) > 1:
        if start is None:
            reason += "; this is the one with the largest total participation"
        else:
            chosen = _nearest(game, payments, start, path.roots)
            reason += "; this is the one that sequential best responses from the given start lead to"
    if chosen < 0:
        raise ConvergenceError("the path found no equilibrium; its checks failed on the way")
    return _from_root(
        game, payments, path, path.roots[chosen], faces[chosen], uniqueness, reason, tolerance, began
    )


def _nearest(game: GameModel, payments: Array, start: Array, roots: tuple[Root, ...]) -> int:
    from .dynamics import best_response_dynamics

    *_, x = islice(best_response_dynamics(game, payments, start, kind="sequential"), 200)
    distances = [float(np.abs(game.alpha * (root.participation - x)).sum()) for root in roots]
    return int(np.argmin(distances))


def _faces(game: GameModel, payments: Array, roots: tuple[Root, ...]) -> list[Face | None]:
    faces: list[Face | None] = [
        equilibrium_face(game, payments, root.participation) if root.tight else None for root in roots
    ]
    flat = [i for i, root in enumerate(roots) if root.kind == "flat"]
    for i, j in zip(flat[::2], flat[1::2], strict=True):
        faces[i] = faces[j] = span_of(game, payments, roots[i].participation, roots[j].participation)
    return faces


def _verdict(
    game: GameModel, payments: Array, path: Path, faces: list[Face | None]
) -> tuple[Uniqueness, str]:
    if not path.complete:
        return Uniqueness.UNKNOWN, (
            f"a check along t(s) failed (violation {path.violation:.1e}, jump {path.jump:.1e}, "
            f"{'reached' if path.finished else 'did not reach'} s = 0): equilibria may be missing"
        )
    kinds = [root.kind for root in path.roots]
    if "flat" in kinds:
        ends = [root.participation for root in path.roots if root.kind == "flat"]
        if max(game.residual(payments, x) for x in ends) > ZERO:
            return Uniqueness.UNKNOWN, (
                "t(s) comes within rounding of zero on a whole interval of totals s; whether it is zero there "
                "cannot be told"
            )
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


def _from_root(
    game: GameModel,
    payments: Array,
    path: Path,
    root: Root,
    face: Face | None,
    uniqueness: Uniqueness,
    reason: str,
    tolerance: float,
    began: float,
) -> Equilibrium:
    residual, regret = game.judge_checked(game.reluctance_under(payments), root.participation)
    if residual > tolerance:
        status = Status.FAILED
        uniqueness, reason = Uniqueness.UNKNOWN, "no verified equilibrium"
    else:
        status = Status.CERTIFIED if path.complete else Status.CONVERGED
    return Equilibrium(
        game=game,
        payments=payments,
        participation=root.participation,
        status=status,
        uniqueness=uniqueness,
        reason=reason,
        method="path",
        regret=regret,
        residual=residual,
        iterations=len(path),
        seconds=time.perf_counter() - began,
        face=face,
    )


def _homogeneous(game: GameModel, payments: Array, began: float) -> Equilibria:
    answer = homogeneous_equilibrium(game, payments)
    if answer is None:
        return Equilibria(
            game, payments, (), Uniqueness.UNKNOWN, COLLAPSE, True, None, time.perf_counter() - began
        )
    x, face = answer
    if face is None:
        uniqueness, reason = Uniqueness.UNIQUE, "all clients own the same data; payment and cost alone decide"
    else:
        uniqueness, reason = (
            Uniqueness.CONTINUUM,
            f"all clients own the same data and some are paid just their cost: {face}",
        )
    item = Equilibrium(
        game=game,
        payments=payments,
        participation=x,
        status=Status.CERTIFIED,
        uniqueness=uniqueness,
        reason=reason,
        method="homogeneous",
        regret=game.regret(payments, x),
        residual=game.residual(payments, x),
        seconds=time.perf_counter() - began,
        face=face,
    )
    return Equilibria(game, payments, (item,), uniqueness, reason, True, None, time.perf_counter() - began)

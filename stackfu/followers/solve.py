"""One equilibrium or all of them: which method, and what may be said about the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from itertools import islice
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..errors import ConvergenceError, NoEquilibriumError
from ..judging.completeness import LARGEST_ALIKE, check_alike, coincide
from ..judging.stakes import NEGLIGIBLE, check_at_caps, check_stakes
from ..model import Array, GameModel, Profile
from ..results import Equilibria, Equilibrium, Face, Status, Uniqueness
from ..results.equilibrium import LARGEST, equilibrium_on_path
from .at_once import settle_at_once
from .faces import equilibrium_face
from .homogeneous import COLLAPSE, all_alike, homogeneous_equilibrium
from .options import SearchOptions
from .path import Root
from .solver_tolerances import EQUAL, LOOKS_WRONG, RESIDUAL
from .verdict import TRADE, Findings, examine, status_of

__all__ = ["LARGEST_PATH", "enumerate_equilibria", "find_equilibrium"]

P = ParamSpec("P")
R = TypeVar("R")

#: Up to this many clients ``equilibrium()`` follows the path, which settles uniqueness as well.
LARGEST_PATH = 300
#: Up to this many clients the path is followed when sweeps do not converge.
LARGEST_FALLBACK = 3000


def _within_floats(solver: Callable[P, R]) -> Callable[P, R]:
    """Reject overflows, which no checker accepts; an error reports them if nothing can be computed."""

    @wraps(solver)
    def careful(*args: P.args, **named: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            try:
                return solver(*args, **named)
            except (ArithmeticError, np.linalg.LinAlgError) as error:
                raise ConvergenceError(
                    f"costs, payments, sizes and distances are too far apart for float64 ({error})"
                ) from error

    return careful


@_within_floats
def enumerate_equilibria(game: GameModel, payments: Array, caps: Array | None = None) -> Equilibria:
    """Every equilibrium, ordered by total participation; ``caps`` are the most that is taken of each client (None: everything).

    A continuum is represented by one point with its :class:`~stackfu.results.Face`, or by its two ends where
    the total varies along it.
    """
    began = time.perf_counter()
    caps = _binding(caps)
    tolerance = RESIDUAL
    alike = all_alike(game, caps)
    found = (
        None if alike and not _worth_telling_apart(game, caps) else examine(game, payments, tolerance, caps)
    )
    if found is None or (alike and not found.settled):
        return _homogeneous(game, payments, began, caps)
    items = tuple(
        _from_root(game, payments, found, i, tolerance, began, caps) for i in range(len(found.roots))
    )
    return Equilibria(
        game,
        payments,
        items,
        found.uniqueness,
        found.reason,
        found.complete,
        found.path,
        time.perf_counter() - began,
    )


@_within_floats
def find_equilibrium(
    game: GameModel,
    payments: Array,
    options: SearchOptions | None = None,
    *,
    start: Array | None = None,
    caps: Array | None = None,
) -> Equilibrium:
    """Return one equilibrium, verified at the returned point; ``start`` alone may be given without a record of options.

    ``path`` returns the equilibrium with the largest total participation if there are several, or, given a
    ``start``, the one nearest to where sequential best responses lead from there. ``sweeps`` returns the one
    its best responses reach from ``start``, ``qp`` the one its bisection closes in on.
    """
    options = SearchOptions(start=start) if options is None else options
    began = time.perf_counter()
    caps = _binding(caps)
    if all_alike(game, caps):
        all_of_them = enumerate_equilibria(game, payments, caps)
        if not all_of_them:
            raise NoEquilibriumError(all_of_them.reason)
        return all_of_them[-1]
    tolerance, method = options.tolerance_for(game.count), options.method
    if method == "auto":
        method = "path" if game.count <= LARGEST_PATH else "sweeps"
    if method == "path":
        return _settled(game, payments, options.start, tolerance, began, caps) or _by_path(
            game, payments, options.start, tolerance, began, caps
        )
    if method == "qp":
        return _by_qp(game, payments, tolerance, began, caps)
    found = _by_sweeps(game, payments, options, tolerance, began, caps)
    if found.status is Status.MAX_ITERATIONS and game.count <= LARGEST_FALLBACK:
        return _by_path(game, payments, options.start, tolerance, began, caps)
    return found


def _by_sweeps(
    game: GameModel,
    payments: Array,
    options: SearchOptions,
    tolerance: float,
    began: float,
    caps: Array | None,
) -> Equilibrium:
    from .sweeps import sweep_to_equilibrium

    sweeps = sweep_to_equilibrium(game, payments, options, tolerance, caps)
    stopped = Status.INTERRUPTED if sweeps.interrupted else Status.MAX_ITERATIONS
    history = tuple(sweeps.history)
    return _found(
        game, payments, sweeps.profile, "sweeps", stopped, tolerance, began, len(history), history, caps
    )


def _by_qp(
    game: GameModel, payments: Array, tolerance: float, began: float, caps: Array | None
) -> Equilibrium:
    from .qp import bisect_total

    x, solved = bisect_total(game, payments, caps=caps)
    return _found(game, payments, game.profile(x), "qp", Status.FAILED, tolerance, began, solved, caps=caps)


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
    caps: Array | None = None,
) -> Equilibrium:
    """Return the record of a point found without following the path; uniqueness is what theory says about it."""
    # of very many clients one more pass is not worth the last digits of those who are close to the mixture
    residual, regret = game.judge(payments, profile if game.count > LARGEST_FALLBACK else profile.x, caps)
    bound = float(check_stakes(game, payments, profile.x, caps).max()) if residual < LOOKS_WRONG else np.inf
    status = status_of(residual, bound, tolerance, failure)
    uniqueness, reason, face = Uniqueness.UNKNOWN, "no verified equilibrium", None
    if status.success:
        uniqueness, reason, face = _by_theory(game, payments, profile, caps)
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
        caps=caps,
        history=history,
    )


def _by_theory(
    game: GameModel, payments: Array, profile: Profile, caps: Array | None
) -> tuple[Uniqueness, str, Face | None]:
    """Return the conclusion about uniqueness at an equilibrium without a search for others."""
    w, x = game.reluctance(payments), profile.x
    most = game.no_caps if caps is None else caps
    inside = int(np.count_nonzero((x > 0) & (x < most)))
    features = game.embeddings.features
    if features is not None and inside > features.shape[1] + 1:
        return (
            Uniqueness.CONTINUUM,
            f"{inside} clients are strictly between their bounds; so many embeddings in {features.shape[1]} "
            f"dimensions are affinely dependent, so {TRADE}",
            None,
        )
    if np.array_equal(x, most):
        verdict = check_at_caps(game, payments, caps)
        if verdict:
            return Uniqueness.UNIQUE, verdict.message, None
    face = equilibrium_face(game, payments, x, profile, caps, patient=False)
    if face is not None:
        return Uniqueness.CONTINUUM, f"{TRADE}: {face}", face
    if w.min() > 0 and float(np.ptp(w)) <= EQUAL * float(w.max()) and game.count <= LARGEST_ALIKE:
        verdict = check_alike(game, payments, x, caps)
        return Uniqueness.UNIQUE if verdict else Uniqueness.UNKNOWN, verdict.message, None
    if np.all(w > 0) and not np.any((x == most) & (most > 0)):
        return (
            Uniqueness.UNKNOWN,
            "the only equilibrium with no client at full participation; others were not searched for",
            None,
        )
    return (
        Uniqueness.UNKNOWN,
        "other equilibria were not searched for; equilibria() does that for smaller games",
        None,
    )


def _settled(
    game: GameModel,
    payments: Array,
    start: Array | None,
    tolerance: float,
    began: float,
    caps: Array | None,
) -> Equilibrium | None:
    """Return the equilibrium if one compiled call finds it and its checkers accept it, None otherwise."""
    if caps is not None and not caps.min() > 0:
        return None
    found = settle_at_once(
        game, payments[None, :], caps, min(tolerance, NEGLIGIBLE), min(tolerance, RESIDUAL)
    )
    if found is None or not found.columns[0, 0]:
        return None
    if start is not None and found.columns[0, 1] > 1.0:
        return None
    _, count, pieces, residual, regret, _ = found.columns[0].tolist()
    x = found.profiles[0]
    x.setflags(write=False)
    return equilibrium_on_path(
        game,
        payments,
        x,
        count=int(count),
        pieces=int(pieces),
        residual=residual,
        regret=regret,
        seconds=time.perf_counter() - began,
        caps=caps,
    )


def _by_path(
    game: GameModel,
    payments: Array,
    start: Array | None,
    tolerance: float,
    began: float,
    caps: Array | None,
) -> Equilibrium:
    found = examine(game, payments, min(tolerance, NEGLIGIBLE), caps)
    chosen, which = len(found.roots) - 1, ""
    if chosen > 0:
        if start is None:
            which = f"; {LARGEST}"
        else:
            chosen = _nearest(game, payments, start, found.roots, caps)
            which = "; this is the one that sequential best responses from the given start lead to"
    if chosen < 0:
        raise ConvergenceError("the path found no equilibrium; its checks failed on the way")
    return _from_root(game, payments, found, chosen, tolerance, began, caps, which)


def _nearest(
    game: GameModel, payments: Array, start: Array, roots: tuple[Root, ...], caps: Array | None
) -> int:
    from .dynamics import best_response_dynamics

    *_, x = islice(best_response_dynamics(game, payments, start, caps=caps, kind="sequential"), 200)
    distances = [float(np.abs(game.alpha * (root.participation - x)).sum()) for root in roots]
    return int(np.argmin(distances))


def _from_root(
    game: GameModel,
    payments: Array,
    found: Findings,
    i: int,
    tolerance: float,
    began: float,
    caps: Array | None,
    which: str = "",
) -> Equilibrium:
    x, residual, regret = found.roots[i].participation, found.residuals[i], found.gains[i]
    status = status_of(residual, found.regrets[i], tolerance)
    uniqueness, reason = found.uniqueness, found.reason + which
    if not status.success:
        uniqueness, reason = Uniqueness.UNKNOWN, "no verified equilibrium"
    return Equilibrium(
        game=game,
        payments=payments,
        participation=x,
        status=status,
        uniqueness=uniqueness,
        reason=reason,
        method="path",
        regret=regret,
        residual=residual,
        iterations=len(found.path),
        seconds=time.perf_counter() - began,
        face=found.faces[i],
        caps=caps,
    )


def _binding(caps: Array | None) -> Array | None:
    """Return the caps, None if none binds."""
    return None if caps is None or caps.min() >= 1.0 else caps


def _worth_telling_apart(game: GameModel, caps: Array | None) -> bool:
    """Return True if clients alike up to rounding differ in storage, and are few enough for the precise path."""
    from .path import precise

    return precise.possible(game) and not coincide(game, caps)


def _homogeneous(game: GameModel, payments: Array, began: float, caps: Array | None) -> Equilibria:
    answer = homogeneous_equilibrium(game, payments, caps)
    exact = coincide(game, caps)
    if answer is None:
        reason = COLLAPSE if exact else f"up to rounding, {COLLAPSE}"
        return Equilibria(
            game, payments, (), Uniqueness.UNKNOWN, reason, exact, None, time.perf_counter() - began
        )
    x, face, sure = answer
    if not exact:
        uniqueness, reason = (
            Uniqueness.UNKNOWN,
            "all clients own the same data up to rounding; what is stored of them differs",
        )
    elif not sure:
        exact, uniqueness, reason = False, Uniqueness.UNKNOWN, "whether some can trade is up to rounding"
    elif face is None:
        uniqueness, reason = Uniqueness.UNIQUE, "all clients own the same data; payment and cost alone decide"
    elif game.sampling > 0.0:
        uniqueness, reason = (
            Uniqueness.CONTINUUM,
            f"all clients own the same data and some are equally reluctant: {face}",
        )
    else:
        uniqueness, reason = (
            Uniqueness.CONTINUUM,
            f"all clients own the same data and some are paid just their cost: {face}",
        )
    residual, regret = game.judge(payments, x, caps)
    bound = float(check_stakes(game, payments, x, caps).max())
    item = Equilibrium(
        game=game,
        payments=payments,
        participation=x,
        status=status_of(residual, bound, RESIDUAL),
        uniqueness=uniqueness,
        reason=reason,
        method="homogeneous",
        regret=regret,
        residual=residual,
        seconds=time.perf_counter() - began,
        face=face,
        caps=caps,
    )
    return Equilibria(game, payments, (item,), uniqueness, reason, exact, None, time.perf_counter() - began)

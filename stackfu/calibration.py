"""C and A from a handful of pilot trainings.

A pilot trains a model with a known participation profile and measures what happened to every remaining client's loss against the
original model. With ``D_pk = d_k^2(m_p) - d_k^2(mu_O)`` and ``I_p = 1 / n_used - 1 / n_O`` the model says

    Q_pk = C D_pk + A I_p + error,        C >= 0, A >= 0

which is non-negative least squares in two unknowns. Errors of one pilot share its training, so observations of one pilot are
kept together: intervals come from leaving out one pilot at a time (the jackknife, with Student's t of pilots - 1 degrees of
freedom), and so does the out-of-sample R2. What the pilots cannot tell is said, not guessed: if all of them use the same amount of
data A cannot be told from zero, and if none of them moves the mixture C cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .embedding.names import rows_by_name
from .errors import InputError
from .model import Array, GameModel
from .model.impacts import drift_changes, thinning

__all__ = ["Calibration", "calibrate", "pilot_counts", "pilot_profiles"]

#: Random plans of pilots that are tried before none is taken to exist.
PLANS = 50

#: Two columns with directions closer than this (sine of the angle) are indistinguishable under noise of double precision.
COLLINEAR = 1e-6


@dataclass(frozen=True)
class Calibration:
    """Estimates of the two constants from pilots.

    ``loss_constant`` is C and ``sampling_constant`` A, with intervals at ``level``; ``r2`` and ``rank_correlation`` are out of
    sample: each pilot predicted by the others (R2 over all observations, Spearman's correlation within a pilot, averaged).
    """

    loss_constant: float
    sampling_constant: float
    loss_interval: tuple[float, float]
    sampling_interval: tuple[float, float]
    level: float
    r2: float
    rank_correlation: float
    pilots: int

    @property
    def identified(self) -> bool:
        """True if the pilots distinguish C from zero; otherwise prices computed with it have no basis."""
        return self.loss_interval[0] > 0.0

    @property
    def predicts(self) -> bool:
        """True if the other pilots predict a pilot better than one number for all changes does."""
        return self.r2 > 0.0

    def summary(self) -> dict[str, Any]:
        """Return the constants as plain values."""
        return {
            "loss_constant": self.loss_constant,
            "loss_interval": list(self.loss_interval),
            "sampling_constant": self.sampling_constant,
            "sampling_interval": list(self.sampling_interval),
            "level": self.level,
            "r2_out_of_sample": self.r2,
            "rank_correlation": self.rank_correlation,
            "pilots": self.pilots,
            "identified": self.identified,
            "predicts": self.predicts,
        }

    def __str__(self) -> str:
        c, a = self.loss_interval, self.sampling_interval
        return (
            f"C = {self.loss_constant:.4g} ({self.level:.0%}: {c[0]:.4g} to {c[1]:.4g}), "
            f"A = {self.sampling_constant:.4g} ({a[0]:.4g} to {a[1]:.4g}), from {self.pilots} pilots; "
            f"out of sample R2 {self.r2:.2f}, rank correlation {self.rank_correlation:.2f}"
        )


def calibrate(
    game: GameModel, participation: npt.ArrayLike, changes: npt.ArrayLike, *, level: float = 0.95
) -> Calibration:
    """Fit C and A to observed changes of the clients' losses, one row per pilot and one column per remaining client."""
    profiles, observed = _pilots(game, participation, changes)
    if not 0.0 < level < 1.0:
        raise InputError("level", "must lie between 0 and 1", value=level)
    drift, thin, rounding = _regressors(game, [profile.x for profile in profiles])
    _require_identified(drift, thin, rounding)
    columns = np.stack([drift, np.broadcast_to(thin[:, None], drift.shape)], axis=-1)
    estimate = _fit(columns, observed)
    without = np.array(
        [_fit(np.delete(columns, p, 0), np.delete(observed, p, 0)) for p in range(len(profiles))]
    )
    predicted = np.einsum("pkj,pj->pk", columns, without)
    spread = _jackknife(without, level)
    intervals = [
        (max(float(value - half), 0.0), float(value + half))
        for value, half in zip(estimate, spread, strict=True)
    ]
    total = float(((observed - observed.mean()) ** 2).sum())
    error = float(((observed - predicted) ** 2).sum())
    return Calibration(
        loss_constant=float(estimate[0]),
        sampling_constant=float(estimate[1]),
        loss_interval=intervals[0],
        sampling_interval=intervals[1],
        level=level,
        r2=1.0 - error / total if total > 0 else float("nan"),
        rank_correlation=_rank_correlation(predicted, observed),
        pilots=len(profiles),
    )


def pilot_profiles(game: GameModel, count: int, seed: int = 0) -> Array:
    """Return participation profiles that tell C and A apart, each of whole samples: :func:`pilot_counts` over the sizes."""
    return np.asarray(pilot_counts(game, count, seed) / game.sizes)


def pilot_counts(game: GameModel, count: int, seed: int = 0) -> npt.NDArray[np.intp]:
    """Return a plan of pilots in whole samples, one row per pilot and one column per remaining client.

    Pilots come in pairs with nearly the same random mixture, one near full participation and one with a fraction of it. No client
    brings more samples than it has, and one that takes part in a pair brings at least one sample to both of its pilots.

    Parameters
    ----------
    game
        The game with the constants to be fitted.
    count
        Number of pilots, at least 2.
    seed
        Seed of the random mixtures.

    Raises
    ------
    InputError
        If no client has a whole sample, or if the clients have too few for pilots that tell C and A apart.

    Examples
    --------
    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.eye(3))
    >>> game = sf.StackelbergGame(emb, [40, 25, 10], removed=[0])
    >>> pilot_counts(game, 4)
    array([[25,  0],
           [ 9,  0],
           [25,  3],
           [10,  1]])
    """
    if count < 2:
        raise InputError("count", "two pilots at least are needed to tell C and A apart", value=count)
    most = np.floor(game.sizes)
    if not most.any():
        raise InputError(
            "sizes",
            "are all below one sample, and a pilot uses whole samples; give the number of samples of each client",
            value=float(game.sizes.max()),
        )
    if game.is_homogeneous:
        raise InputError(
            "embeddings",
            "all remaining clients have the same data, which no pilot mixes anew: C is not identified",
        )
    rng = np.random.default_rng(seed)
    for _ in range(PLANS):
        plan = _whole_pilots(rng, most, count)
        try:
            _require_identified(*_regressors(game, plan / game.sizes))
        except InputError as error:
            why = error.problem
        else:
            return plan
    raise InputError(
        "count",
        f"no such plan was found with the samples that clients have ({most.sum():g} in all): {why}",
        value=count,
    )


def _whole_pilots(rng: np.random.Generator, most: Array, count: int) -> npt.NDArray[np.intp]:
    """Pilots in pairs, by whole samples."""
    rows: list[Array] = []
    for i in range(count):
        if i % 2 == 0:
            shape = np.where(most > 0, rng.dirichlet(np.full(len(most), 0.5)), 0.0)
            rows.append(np.rint(shape / shape.max() * most))
        else:
            rows.append(
                np.where(rows[-1] > 0, np.maximum(np.rint(rows[-1] * rng.uniform(0.1, 0.4)), 1.0), 0.0)
            )
    return np.array(rows).astype(np.intp)


def _regressors(game: GameModel, rows: Any) -> tuple[Array, Array, float]:
    """Drift and thinning of pilots, and the rounding error of the drift."""
    profiles = [game.profile(row) for row in rows]
    drift = np.array([drift_changes(game, profile) for profile in profiles])
    thin = np.array([thinning(game, profile, float(game.all_sizes.sum())) for profile in profiles])
    return drift, thin, game.rounding * game.geometry.scale


def _pilots(game: GameModel, participation: npt.ArrayLike, changes: npt.ArrayLike) -> tuple[list[Any], Array]:
    profiles = rows_by_name(participation, "participation", game.client_names)
    measured = rows_by_name(changes, "changes", game.client_names)
    try:
        rows = np.atleast_2d(np.asarray(profiles, dtype=np.float64))
        observed = np.atleast_2d(np.asarray(measured, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(
            "changes", "and participation must be arrays of numbers, one row per pilot"
        ) from None
    if rows.shape[1:] != (game.count,):
        raise InputError(
            "participation", f"needs {game.count} columns, one per remaining client", value=rows.shape
        )
    if observed.shape != rows.shape:
        raise InputError("changes", f"needs the shape of participation, {rows.shape}", value=observed.shape)
    if not np.isfinite(observed).all():
        p, k = np.argwhere(~np.isfinite(observed))[0]
        raise InputError(
            "changes", f"pilot {p} must be finite", client=game.label(int(k)), value=observed[p, k]
        )
    if observed.size > 1 and observed.any() and np.ptp(observed) == 0.0:
        raise InputError(
            "changes", "are the same number for every client in every pilot", value=observed.flat[0]
        )
    if len(rows) < 2:
        raise InputError(
            "participation", "two pilots at least are needed to say how sure the fit is", value=len(rows)
        )
    return [game.profile(row) for row in rows], observed


def _require_identified(drift: Array, thin: Array, rounding: float) -> None:
    if (
        np.abs(drift).max() <= rounding / COLLINEAR
    ):  # what is left has lost too many digits to be told from nothing
        raise InputError(
            "participation", "no pilot moves the mixture away from the original one: C is not identified"
        )
    if np.ptp(thin) <= COLLINEAR * np.abs(thin).max():
        # with one amount of data, A is separated from C through one constant only, and its noise is all evidence about A
        raise InputError(
            "participation",
            "all pilots use the same amount of data: A is not identified; train one with a fraction of it",
            value=thin[0],
        )
    a, b = drift.ravel(), np.broadcast_to(thin[:, None], drift.shape).ravel()
    cosine = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    if 1.0 - cosine**2 < COLLINEAR**2:
        raise InputError(
            "participation", "drift and amount of data move together: C and A are not identified"
        )


def _fit(columns: Array, observed: Array) -> Array:
    """Non-negative least squares in two unknowns, scaled so that neither column's unit matters."""
    from scipy.optimize import nnls

    design = columns.reshape(-1, 2)
    size = np.maximum(np.linalg.norm(design, axis=0), np.finfo(np.float64).tiny)
    solution, _ = nnls(design / size, observed.ravel())
    return np.asarray(solution / size)


def _jackknife(without: Array, level: float) -> Array:
    """Half-widths of the intervals from the estimates that leave out one pilot each."""
    from scipy.stats import t

    count = len(without)
    variance = (count - 1) / count * ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray(t.ppf(0.5 * (1.0 + level), count - 1) * np.sqrt(variance))


def _rank_correlation(predicted: Array, observed: Array) -> float:
    from scipy.stats import rankdata

    found = []
    for a, b in zip(predicted, observed, strict=True):
        x, y = rankdata(a) - (len(a) + 1) / 2, rankdata(b) - (len(b) + 1) / 2
        size = float(np.linalg.norm(x) * np.linalg.norm(y))
        if size > 0:
            found.append(float(x @ y) / size)
    return float(np.mean(found)) if found else float("nan")

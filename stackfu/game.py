"""The game: its data and its formulas.

A server has lost the clients in ``removed`` and must rebuild its model from the clients that remain. Remaining client
k owns the share ``alpha_k = n_k / n_N`` of the remaining data, takes part with a share ``x_k`` of it at cost ``c_k x_k``,
is paid ``p_k x_k``, and suffers ``lambda_q C d_k^2`` when the data used drifts ``d_k`` away from its own:

    U_k(x) = p_k x_k - c_k x_k - lam d_k^2,                          lam = lambda_q C
    u_server(x) = lam_v ||m - mu_N||^2 + lam_s ||m - mu_O||^2,       lam_v = lambda_v C,  lam_s = lambda_s C

with the embedding ``m`` of the data used (:mod:`stackfu.profile`). In those variables client k's utility has slope

    d U_k / d y_k = (2 lam / S) g_k,     g_k = d_k^2 - S w_k,     w_k = (c_k - p_k) / (2 lam alpha_k)

so ``y != 0`` is an equilibrium iff ``g_k <= 0`` where ``y_k = 0``, ``g_k = 0`` where ``0 < y_k < alpha_k`` and
``g_k >= 0`` where ``y_k = alpha_k``. Nothing in this module iterates; the solvers live in :mod:`stackfu.followers`
and :mod:`stackfu.leader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .geometry import Array, FeatureGeometry, Geometry, GramGeometry, frozen
from .profile import Profile

if TYPE_CHECKING:
    from .embedding import MeanEmbeddings
    from .leader.frontier import Frontier
    from .result import Equilibria, Equilibrium, Solution

__all__ = ["StackelbergGame"]


class StackelbergGame:
    """Federated unlearning as a Stackelberg game. Immutable.

    Parameters
    ----------
    embeddings
        Mean embeddings of all original clients, removed ones included.
    sizes
        Amount of data of every original client: positive numbers, usually counts.
    removed
        Numbers of the clients whose data must be forgotten.
    costs
        Cost of full participation, one number a remaining client; by default ``cost_scale * n_k / n_O``.
    cost_scale
        Scale of the default costs.
    lambda_v, lambda_s, lambda_q
        Weights of unlearning effectiveness, global stability (server) and performance change (clients).
    loss_constant
        C, loss per squared embedding distance.

    Examples
    --------
    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.6], [0.0, 0.0], [0.8, 0.0], [0.1, 0.9]]))
    >>> game = sf.StackelbergGame(emb, sizes=[100, 100, 200, 100], removed=[0], cost_scale=0.1)
    >>> game
    StackelbergGame(4 clients, removed (0,), 3 remaining, largest share 50%, diameter 1.14)
    >>> game.alpha
    array([0.25, 0.5 , 0.25])
    """

    __slots__ = (
        "__dict__",
        "_alpha",
        "_costs",
        "_embeddings",
        "_geometry",
        "_kappa",
        "_remaining",
        "_removed",
        "_sizes",
        "_weights",
    )

    def __init__(
        self,
        embeddings: MeanEmbeddings,
        sizes: npt.ArrayLike,
        removed: Iterable[int] = (),
        *,
        costs: npt.ArrayLike | None = None,
        cost_scale: float = 10.0,
        lambda_v: float = 1.0,
        lambda_s: float = 1.0,
        lambda_q: float = 1.0,
        loss_constant: float = 1.0,
    ) -> None:
        from .embedding import MeanEmbeddings

        if not isinstance(embeddings, MeanEmbeddings):
            raise InputError("embeddings", "must be MeanEmbeddings", value=type(embeddings).__name__)
        count = len(embeddings)
        all_sizes = _vector(sizes, "sizes", count, "embeddings has {} clients")
        _require_positive(all_sizes, "sizes", range(count))
        gone = _client_numbers(removed, count)
        keep = np.setdiff1d(np.arange(count), np.array(gone, dtype=np.intp))
        if len(keep) == 0:
            raise InputError("removed", "nobody is left", value=gone)
        if len(keep) == 1:
            raise InputError(
                "removed",
                f"only client {keep[0]} is left; a game needs at least two remaining clients",
                value=gone,
            )
        weights = {
            "lambda_v": (_number(lambda_v, "lambda_v"), 0.0),
            "lambda_s": (_number(lambda_s, "lambda_s"), 0.0),
            "lambda_q": (_number(lambda_q, "lambda_q"), None),
            "loss_constant": (_number(loss_constant, "loss_constant"), None),
        }
        for name, (value, floor) in weights.items():
            if value < 0 or (floor is None and value == 0):
                raise InputError(
                    name, "must be positive" if floor is None else "must not be negative", value=value
                )
        if not np.isfinite(_quiet_sum(all_sizes)):
            raise InputError("sizes", "are too large: their sum is not a number", value=all_sizes.max())
        sizes_left = all_sizes[keep]
        alpha = sizes_left / sizes_left.sum()
        if costs is None:
            scale = _number(cost_scale, "cost_scale")
            if scale <= 0:
                raise InputError("cost_scale", "must be positive", value=scale)
            cost = scale * sizes_left / all_sizes.sum()
        else:
            cost = _vector(costs, "costs", len(keep), "{} clients remain")
            _require_positive(cost, "costs", keep)

        with np.errstate(over="ignore", divide="ignore", under="ignore", invalid="ignore"):
            reluctance = cost / (2.0 * weights["lambda_q"][0] * weights["loss_constant"][0] * alpha)
        if not np.isfinite(reluctance).all():
            k = int(np.argmin(np.isfinite(reluctance)))
            raise InputError(
                "costs",
                "are too large beside lambda_q * loss_constant: the ratio is not a number",
                client=int(keep[k]),
                value=cost[k],
            )

        self._embeddings = embeddings
        self._sizes = frozen(all_sizes)
        self._removed = gone
        self._remaining = keep
        self._remaining.setflags(write=False)
        self._alpha = frozen(alpha)
        self._costs = frozen(cost)
        self._kappa = frozen(cost / alpha)
        self._weights = {name: value for name, (value, _) in weights.items()}
        original_weights = all_sizes / all_sizes.sum()
        features = embeddings.features
        if features is not None and features.shape[1] < len(keep):
            self._geometry: Geometry = FeatureGeometry(features, keep, self._alpha, original_weights)
        elif features is not None:
            self._geometry = GramGeometry.of_features(features, keep, self._alpha, original_weights)
        else:
            # the embeddings know 1 - G better than G where clients are nearly alike; centring ignores the constant
            self._geometry = GramGeometry(-embeddings._best, keep, self._alpha, original_weights)

    # ---------------------------------------------------------------- data

    @property
    def embeddings(self) -> MeanEmbeddings:
        """Mean embeddings of all original clients."""
        return self._embeddings

    @property
    def geometry(self) -> Geometry:
        """Distances between mixtures of the remaining clients, see :mod:`stackfu.geometry`."""
        return self._geometry

    @property
    def removed(self) -> tuple[int, ...]:
        """Numbers of the removed clients, ascending."""
        return self._removed

    @property
    def remaining(self) -> npt.NDArray[np.intp]:
        """Numbers of the remaining clients, ascending; every per-client array follows this order."""
        return self._remaining

    @property
    def count(self) -> int:
        """N, the number of remaining clients."""
        return len(self._remaining)

    @property
    def sizes(self) -> Array:
        """Amounts of data of the remaining clients."""
        return frozen(self._sizes[self._remaining])

    @property
    def all_sizes(self) -> Array:
        """Amounts of data of all original clients."""
        return self._sizes

    @property
    def alpha(self) -> Array:
        """``alpha_k = n_k / n_N``, shares of the remaining data."""
        return self._alpha

    @property
    def costs(self) -> Array:
        """``c_k``, cost of full participation."""
        return self._costs

    @property
    def kappa(self) -> Array:
        """``kappa_k = c_k / alpha_k``, cost per share of the remaining data."""
        return self._kappa

    @property
    def lambda_v(self) -> float:
        """Weight of unlearning effectiveness."""
        return self._weights["lambda_v"]

    @property
    def lambda_s(self) -> float:
        """Weight of global stability."""
        return self._weights["lambda_s"]

    @property
    def lambda_q(self) -> float:
        """Weight of a client's own performance change."""
        return self._weights["lambda_q"]

    @property
    def loss_constant(self) -> float:
        """C, loss per squared embedding distance."""
        return self._weights["loss_constant"]

    @property
    def lam(self) -> float:
        """``lam = lambda_q C``."""
        return self.lambda_q * self.loss_constant

    @property
    def lam_v(self) -> float:
        """``lam_v = lambda_v C``."""
        return self.lambda_v * self.loss_constant

    @property
    def lam_s(self) -> float:
        """``lam_s = lambda_s C``."""
        return self.lambda_s * self.loss_constant

    @property
    def diameter(self) -> float:
        """Largest distance between two remaining clients (for very many, to their mean)."""
        return float(np.sqrt(self._geometry.scale))

    @cached_property
    def heterogeneity(self) -> Array:
        """``||mu_k - mu_R||``, distance of every remaining client to the removed clients' joint data."""
        if not self._removed:
            return frozen(np.full(self.count, np.nan))
        gone = np.array(self._removed)
        share = self._sizes[gone] / self._sizes[gone].sum()
        if isinstance(self._geometry, FeatureGeometry):
            centre = share @ np.asarray(self._geometry.features[gone], dtype=np.float64)
            return frozen(np.sqrt(self._geometry.squared_distances(centre)))
        gram = self._embeddings.gram
        inner = gram[np.ix_(self._remaining, gone)] @ share
        square = share @ gram[np.ix_(gone, gone)] @ share
        return frozen(np.sqrt(np.maximum(np.diag(gram)[self._remaining] - 2.0 * inner + square, 0.0)))

    @property
    def rounding(self) -> float:
        """Rounding error of squared distances relative to the largest one between clients."""
        return self._geometry.rounding

    @cached_property
    def is_homogeneous(self) -> bool:
        """Whether all remaining clients have the same embedding, so that drift does not matter to anyone."""
        return self.rounding >= 0.2

    def replace(self, **changes: Any) -> StackelbergGame:
        """A game that differs in the named constructor arguments.

        Unless ``costs`` is given, the costs are kept when the clients that remain do not change.
        """
        kept: dict[str, Any] = {
            "embeddings": self._embeddings,
            "sizes": self._sizes,
            "removed": self._removed,
            "costs": self._costs,
            **self._weights,
        }
        unknown = changes.keys() - kept.keys() - {"cost_scale"}
        if unknown:
            known = ", ".join([*kept, "cost_scale"])
            raise InputError(min(unknown), f"is not an argument of a game; those are {known}")
        if {"sizes", "removed", "embeddings", "cost_scale"} & changes.keys() and "costs" not in changes:
            del kept["costs"]
        return StackelbergGame(**{**kept, **changes})

    # ---------------------------------------------------------------- profiles and payments

    def profile(self, participation: npt.ArrayLike) -> Profile:
        """The variables y, S, z, m of a participation profile; refuses the empty one."""
        x = self.check_participation(participation)
        y = self._alpha * x
        total = float(y.sum())
        if total <= 0.0:
            raise InputError(
                "participation", "nobody takes part; the mixture of nobody's data is undefined", value="0"
            )
        z = y / total
        return Profile(x, y, total, z, self._geometry.mixture(z))

    def check_participation(self, participation: npt.ArrayLike) -> Array:
        """A read-only copy of a participation vector, or an error naming the client."""
        x = _vector(participation, "participation", self.count, "{} clients remain")
        if x.min() < 0 or x.max() > 1:
            k = np.flatnonzero((x < 0) | (x > 1))[0]
            raise InputError(
                "participation", "must lie in [0, 1]", client=int(self._remaining[k]), value=x[k]
            )
        return frozen(x)

    def check_payments(self, payments: npt.ArrayLike | None) -> Array:
        """A read-only copy of a payment vector (None: all zero), or an error naming the client."""
        if payments is None:
            return frozen(np.zeros(self.count))
        p = _vector(payments, "payments", self.count, "{} clients remain")
        if p.min() < 0:
            k = np.flatnonzero(p < 0)[0]
            raise InputError("payments", "must not be negative", client=int(self._remaining[k]), value=p[k])
        return frozen(p)

    # ---------------------------------------------------------------- the model's formulas

    def reluctance(self, payments: npt.ArrayLike | None = None) -> Array:
        """``w_k = (c_k - p_k) / (2 lam alpha_k)``: net cost in units of squared distance."""
        return self.reluctance_under(self.check_payments(payments))

    def reluctance_under(self, checked: Array) -> Array:
        """:meth:`reluctance` for payments that :meth:`check_payments` has seen."""
        return (self._costs - checked) / self._drift_weight

    @cached_property
    def _drift_weight(self) -> Array:
        return 2.0 * self.lam * self._alpha

    def inclination(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> Array:
        """``g_k = d_k^2 - S w_k``: positive where a client would rather take part more."""
        profile = self.profile(participation)
        return profile.to_clients - profile.total * self.reluctance(payments)

    def client_impacts(self, participation: npt.ArrayLike) -> Array:
        """``u_k = lam d_k^2``, the drift each client suffers."""
        return self.lam * self.profile(participation).to_clients

    def client_utilities(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> Array:
        """``U_k = (p_k - c_k) x_k - lam d_k^2``."""
        profile = self.profile(participation)
        return (self.check_payments(payments) - self._costs) * profile.x - self.lam * profile.to_clients

    def server_loss(self, participation: npt.ArrayLike) -> float:
        """``u_server = lam_v ||m - mu_N||^2 + lam_s ||m - mu_O||^2``."""
        distances = self.profile(participation).distances
        return self.lam_v * distances.to_remaining + self.lam_s * distances.to_original

    def server_utility(self, payments: npt.ArrayLike, participation: npt.ArrayLike) -> float:
        """``U_sr = -u_server - p . x``."""
        spend = float(self.check_payments(payments) @ self.check_participation(participation))
        return -self.server_loss(participation) - spend

    def effectiveness_bound(self, participation: npt.ArrayLike) -> float:
        """Bound on V, the loss against complete retraining: ``C ||m - mu_N||^2``."""
        return self.loss_constant * self.profile(participation).distances.to_remaining

    def stability_bound(self, participation: npt.ArrayLike) -> float:
        """Bound on S, the loss against the original model: ``C ||m - mu_O||^2``."""
        return self.loss_constant * self.profile(participation).distances.to_original

    def change_bounds(self, participation: npt.ArrayLike, gaps: npt.ArrayLike | None = None) -> Array:
        """Bounds on Q_k, a client's own loss change: ``C d_k^2 + delta_k`` (``gaps`` are the delta_k, default 0)."""
        bound = self.loss_constant * self.profile(participation).to_clients
        return bound if gaps is None else bound + _vector(gaps, "gaps", self.count, "{} clients remain")

    def finite_sample_penalty(self, participation: npt.ArrayLike) -> float:
        """``(lam_v + lam_s) sum_k z_k (1 - ||mu_k||^2) / (n_N S)``: variance of the used samples' embedding.

        ``u_server`` speaks of distributions and is blind to how many samples represent them; this term is what is
        lost by representing the mixture with the ``n_N S`` samples that take part. It needs a kernel with
        ``k(a, a) = 1``.
        """
        profile = self.profile(participation)
        samples = float(self._sizes[self._remaining].sum()) * profile.total
        return (self.lam_v + self.lam_s) * float(profile.mixture @ self.sampling_noise) / samples

    @cached_property
    def sampling_noise(self) -> Array:
        """``1 - ||mu_k||^2`` per remaining client: variance of one sample's embedding."""
        norms = self._embeddings.squared_norms[self._remaining]
        if np.any(norms > 1.0 + 1e-9):
            k = int(np.argmax(norms))
            raise InputError(
                "embeddings",
                "the finite-sample term needs a kernel with k(a, a) = 1, so squared norms of at most 1",
                client=int(self._remaining[k]),
                value=norms[k],
            )
        return frozen(np.maximum(1.0 - norms, 0.0))

    def best_response(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> Array:
        """Every client's best response to the others.

        ``y_k = clip((q_k / w_k)^(1/3) - S0_k, 0, alpha_k)`` with ``q_k = ||sum_{i != k} y_i (mu_i - mu_k)||^2 = S^2 d_k^2``
        where ``w_k > 0``; ``alpha_k`` where ``w_k < 0``, or ``w_k = 0`` and ``q_k > 0``; unchanged where the client is
        indifferent (``w_k = 0 = q_k``). A client facing nobody gains by shrinking towards 0 but loses all at 0; its
        entry is then 0.
        """
        profile = self.profile(participation)
        return self._responses(self.reluctance(payments), profile) / self._alpha

    def _responses(self, w: Array, profile: Profile) -> Array:
        """Best responses in y."""
        q = profile.total**2 * profile.to_clients
        rest = profile.others
        if w.min() > 0 and rest.min() > 0:  # the usual case, without the exceptions below
            return np.minimum(np.maximum(np.cbrt(q / w) - rest, 0.0), self._alpha)
        # facing nobody, the mixture is the client's own data whatever it brings
        q = np.where(rest > 0, q, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.cbrt(np.where(w > 0, q / np.where(w > 0, w, 1.0), 0.0)) - rest
        response = np.clip(inner, 0.0, self._alpha)
        eager = (w < 0) | ((w == 0) & (q > 0))
        response = np.where(eager, self._alpha, response)
        return np.where((w == 0) & (q == 0), profile.y, response)

    def thresholds(self, participation: npt.ArrayLike) -> tuple[Array, Array]:
        """Payments below which a client stays out, and above which it takes part fully, the others fixed.

        ``p_low = c_k - 2 lam alpha_k q_k / S0_k^3`` and ``p_high = c_k - 2 lam alpha_k q_k / (S0_k + alpha_k)^3``.
        """
        profile = self.profile(participation)
        rest = profile.others
        phi = 2.0 * self.lam * self._alpha * profile.total**2 * profile.to_clients
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(rest > 0, self._costs - phi / rest**3, self._costs)
        high = np.where(rest > 0, self._costs - phi / (rest + self._alpha) ** 3, self._costs)
        return low, high

    def residual(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> float:
        """Largest violation of the equilibrium conditions, relative to the largest squared distance."""
        return self._residual(self.reluctance(payments), self.profile(participation))

    def regrets(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> Array:
        """What every client could gain by its best response, never negative."""
        return self._regrets(self.reluctance(payments), self.profile(participation))

    def regret(self, payments: npt.ArrayLike | None, participation: npt.ArrayLike) -> float:
        """Largest gain any client has from deviating."""
        return float(self.regrets(payments, participation).max())

    def judge(
        self, payments: npt.ArrayLike | None, participation: npt.ArrayLike | Profile
    ) -> tuple[float, float]:
        """Residual and regret of a profile, with one pass over the clients."""
        w = self.reluctance(payments)
        if isinstance(participation, Profile):
            return self._residual(w, participation), float(self._regrets(w, participation).max())
        x = self.check_participation(participation)
        if not x.any():
            raise InputError("participation", "nobody takes part", value="0")
        return self.judge_checked(w, x)

    def judge_checked(self, w: Array, x: Array) -> tuple[float, float]:
        """:meth:`judge` for a reluctance and a participation that need no checking."""
        if isinstance(self._geometry, GramGeometry):
            violation, gain = _kernels().judge(self._geometry.gram, self._alpha, w, x)
            return violation / (self._geometry.scale or 1.0), self.lam * gain
        profile = self.profile(x)
        return self._residual(w, profile), float(self._regrets(w, profile).max())

    def _residual(self, w: Array, profile: Profile) -> float:
        g = profile.to_clients - profile.total * w
        # g_k > 0 is a violation unless the client takes part fully, g_k < 0 unless it stays out
        low = np.where(profile.x < 1, g, 0.0).max()
        high = np.where(profile.x > 0, g, 0.0).min()
        largest = max(float(low), -float(high), 0.0)
        scale = self._geometry.scale
        return largest / scale if scale > 0 else largest

    def _regrets(self, w: Array, profile: Profile) -> Array:
        step = self._responses(w, profile) - profile.y
        after = profile.total + step
        if profile.others.min() > 0:
            saved = profile.to_clients * (after + profile.total) / after**2
        else:  # facing nobody, a client sees no drift, and after may be 0
            d2 = np.where(profile.others > 0, profile.to_clients, 0.0)
            saved = d2 * (after + profile.total) / np.where(d2 > 0, after, 1.0) ** 2
        return np.maximum(self.lam * step * (saved - 2.0 * w), 0.0)

    @property
    def full_participation_price(self) -> float:
        """Cheapest total payment under which everybody takes part fully, in closed form.

        ``sum_k (c_k - 2 lam alpha_k ||mu_k - mu_N||^2)_+``
        """
        return float(self.payments_for(np.ones(self.count)).sum())

    # ---------------------------------------------------------------- solvers

    def equilibrium(
        self,
        payments: npt.ArrayLike | None = None,
        *,
        start: npt.ArrayLike | None = None,
        method: Literal["auto", "path", "sweeps", "qp"] = "auto",
        tolerance: float | None = None,
        max_iterations: int = 500,
        seed: int = 0,
        callback: Callable[[dict[str, Any]], None] | None = None,
        progress: bool | None = None,
    ) -> Equilibrium:
        """One Nash equilibrium of the clients, verified; see :mod:`stackfu.followers`."""
        from .followers import find_equilibrium

        return find_equilibrium(
            self,
            self.check_payments(payments),
            start=None if start is None else self.check_participation(start),
            method=method,
            tolerance=tolerance,
            max_iterations=max_iterations,
            seed=seed,
            callback=callback,
            progress=progress,
        )

    def equilibria(self, payments: npt.ArrayLike | None = None) -> Equilibria:
        """Every Nash equilibrium of the clients, ordered by total participation; see :mod:`stackfu.followers.path`."""
        from .followers import enumerate_equilibria

        return enumerate_equilibria(self, self.check_payments(payments))

    def dynamics(
        self,
        payments: npt.ArrayLike | None = None,
        start: npt.ArrayLike | None = None,
        *,
        kind: Literal["simultaneous", "sequential", "damped"] = "sequential",
        damping: float = 0.5,
    ) -> Iterator[Array]:
        """Best-response dynamics, one participation profile after another; see :mod:`stackfu.followers.dynamics`."""
        from .followers.dynamics import best_response_dynamics

        origin = np.ones(self.count) if start is None else start
        return best_response_dynamics(
            self, self.check_payments(payments), self.check_participation(origin), kind=kind, damping=damping
        )

    def payments_for(self, participation: npt.ArrayLike) -> Array:
        """Cheapest payments that make a profile an equilibrium; see :mod:`stackfu.leader.price`."""
        from .leader.price import cheapest_payments

        return cheapest_payments(self, self.profile(participation))

    def solve(
        self,
        budget: float | None = None,
        method: Literal["certified", "haipo", "uniform"] = "certified",
        **options: Any,
    ) -> Solution:
        """Payments that minimise the server's loss within a budget; see :mod:`stackfu.leader`."""
        from .leader import solve

        return solve(self, budget, method, **options)

    def frontier(self, budgets: Sequence[float] | npt.ArrayLike, **options: Any) -> Frontier:
        """Certified solutions along a list of budgets, each starting from the one before."""
        from .leader.frontier import trace_frontier

        return trace_frontier(self, budgets, **options)

    def save(self, path: Any) -> None:
        """Write the game to a ``.json`` or ``.npz`` file, without loss; read it with :func:`stackfu.load`."""
        from .io import save

        save(self, path)

    # ---------------------------------------------------------------- identity

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_") and not hasattr(self, name):
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"a StackelbergGame is immutable; use replace({name}=...) to get another one")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StackelbergGame):
            return NotImplemented
        return (
            self._removed == other._removed
            and self._weights == other._weights
            and np.array_equal(self._sizes, other._sizes)
            and np.array_equal(self._costs, other._costs)
            and self._embeddings == other._embeddings
        )

    def __hash__(self) -> int:
        return hash(
            (self._removed, tuple(self._weights.values()), self._sizes.tobytes(), self._costs.tobytes())
        )

    def __repr__(self) -> str:
        shown = self._removed if len(self._removed) <= 6 else f"{len(self._removed)} of them"
        return (
            f"StackelbergGame({len(self._sizes)} clients, removed {shown}, {self.count} remaining, "
            f"largest share {self._alpha.max():.0%}, diameter {self.diameter:.3g})"
        )


# -------------------------------------------------------------------- validation


def _number(value: object, name: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(name, "must be a number", value=repr(value)) from None
    if not np.isfinite(number):
        raise InputError(name, "must be finite", value=number)
    return number


@cache
def _kernels() -> Any:
    """The compiled passes, loaded when they are first needed."""
    from . import _geometry_kernels

    return _geometry_kernels


def _quiet_sum(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(values.sum())


def _vector(values: npt.ArrayLike, name: str, count: int, why: str) -> Array:
    """A finite float64 vector of the right length, or an error naming the entry."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(name, "must be a sequence of numbers", value=repr(values)) from None
    if vector.ndim != 1 or len(vector) != count:
        raise InputError(name, f"needs {count} numbers ({why.format(count)}), got shape {vector.shape}")
    if not np.isfinite(vector).all():
        bad = np.flatnonzero(~np.isfinite(vector))
        raise InputError(name, f"entry {bad[0]} must be finite", value=vector[bad[0]])
    return vector


def _require_positive(values: Array, name: str, clients: Sequence[int] | npt.NDArray[np.intp]) -> None:
    bad = np.flatnonzero(values <= 0)
    if len(bad):
        raise InputError(name, "must be positive", client=int(clients[bad[0]]), value=values[bad[0]])


def _client_numbers(removed: Iterable[int], count: int) -> tuple[int, ...]:
    if isinstance(removed, (int, np.integer)):
        removed = [int(removed)]
    if not isinstance(removed, Iterable):
        raise InputError("removed", "must hold client numbers", value=repr(removed))
    numbers = list(removed)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise InputError("removed", "must hold client numbers", value=repr(number))
        if not 0 <= number < count:
            raise InputError(
                "removed", f"there is no such client; the clients are 0 to {count - 1}", value=number
            )
    if len(set(numbers)) != len(numbers):
        raise InputError("removed", "names a client twice", value=tuple(int(k) for k in numbers))
    return tuple(sorted(int(k) for k in numbers))

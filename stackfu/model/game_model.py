"""The model behind one object: a game's data and its formulas, with arguments checked.

    U_k(x) = p_k x_k - c_k x_k - lam (d_k^2 + a / S),                lam = lambda_q C,  a = A / (C n_N)
    u_server(x) = lam_v (||m - mu_N||^2 + a / S) + lam_s (||m - mu_O||^2 + a / S),       lam_v = lambda_v C,  lam_s = lambda_s C

with the embedding ``m`` of the data used (:mod:`stackfu.model.profile`). In those variables client k's utility has slope

    d U_k / d y_k = (2 lam / S) g_k,     g_k = d_k^2 + a / (2 S) - S w_k,     w_k = (c_k - p_k) / (2 lam alpha_k)

so ``y != 0`` is an equilibrium iff ``g_k <= 0`` where ``y_k = 0``, ``g_k = 0`` where ``0 < y_k < alpha_k`` and
``g_k >= 0`` where ``y_k = alpha_k``. Nothing here iterates and nothing here knows a solver: those live in
:mod:`stackfu.followers` and :mod:`stackfu.leader`, and :class:`stackfu.StackelbergGame` puts them behind methods.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..embedding.names import PerClient, by_name
from ..errors import InputError
from .data import GameData, vector
from .geometry import Array, frozen, kernels
from .impacts import Impacts, predicted_impacts
from .price import cheapest_payments
from .profile import Profile
from .responses import best_responses, inclinations, regrets, violations

__all__ = ["GameModel", "require_formulas"]

#: Similarities of a sample with itself are 1 up to this: means of float64 numbers.
ONE = 1e-9


class GameModel(GameData):
    """Data and formulas of a game. Solvers and judges read these, so a subclass cannot redefine them."""

    __slots__ = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        _require_formulas(cls)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        _require_formulas(type(self))
        super().__init__(*arguments, **named)

    # ---------------------------------------------------------------- profiles and payments

    def profile(self, participation: PerClient) -> Profile:
        """Return the variables y, S, z, m of a participation profile; refuses the empty one."""
        x = self.check_participation(participation)
        y = self._alpha * x
        total = float(y.sum())
        if total <= 0.0:
            raise InputError(
                "participation", "nobody takes part; the mixture of nobody's data is undefined", value="0"
            )
        z = y / total
        return Profile(x, y, total, z, self._geometry.mixture(z))

    def check_participation(self, participation: PerClient) -> Array:
        """Return a read-only copy of a participation vector, or an error naming the client."""
        x = self._each(participation, "participation")
        if x.min() < 0 or x.max() > 1:
            k = np.flatnonzero((x < 0) | (x > 1))[0]
            raise InputError("participation", "must lie in [0, 1]", client=self.label(int(k)), value=x[k])
        return frozen(x)

    def check_payments(self, payments: PerClient | None) -> Array:
        """Return a read-only copy of a payment vector (None: all zero), or an error naming the client."""
        if payments is None:
            return self.no_payments
        return self.check_amounts(payments, "payments")

    def check_amounts(self, amounts: PerClient, name: str) -> Array:
        """Return a read-only copy of one amount of money per client, or an error naming argument and client."""
        p = self._each(amounts, name, others=0.0)
        if p.min() < 0:
            k = np.flatnonzero(p < 0)[0]
            raise InputError(name, "must not be negative", client=self.label(int(k)), value=p[k])
        return frozen(p)

    def _each(self, values: PerClient, name: str, others: float | None = None) -> Array:
        """Return one finite number per remaining client; ``others`` for who is not named, where they came by name."""
        ordered = by_name(values, name, self.client_names, others)
        return vector(ordered, name, self.count, "{} clients remain", self.label)

    def check_caps(self, caps: PerClient | None) -> Array:
        """Return a read-only copy of the shares that are taken at most (None: everything), or an error naming the client."""
        if caps is None:
            return self.no_caps
        most = self._each(caps, "caps", others=1.0)
        if most.min() < 0 or most.max() > 1:
            k = np.flatnonzero((most < 0) | (most > 1))[0]
            raise InputError("caps", "must lie in [0, 1]", client=self.label(int(k)), value=most[k])
        if not most.any():
            raise InputError("caps", "nothing is taken from anybody", value="0")
        return frozen(most)

    @cached_property
    def no_caps(self) -> Array:
        """Caps of 1 for every client, so that no cap binds."""
        return frozen(np.ones(self.count))

    @cached_property
    def no_payments(self) -> Array:
        """The payment vector of zeros."""
        return frozen(np.zeros(self.count))

    # ---------------------------------------------------------------- the model's formulas

    def reluctance(self, payments: PerClient | None = None) -> Array:
        """``w_k = (c_k - p_k) / (2 lam alpha_k)``: net cost in units of squared distance."""
        return self.reluctance_under(self.check_payments(payments))

    def reluctance_under(self, checked: Array) -> Array:
        """:meth:`reluctance` for payments that :meth:`check_payments` has seen."""
        return (self._costs - checked) / self.drift_weight

    def _prices(self, checked: Array) -> Array:
        """Return the larger of cost and payment, in the units of :meth:`reluctance`."""
        return np.asarray(np.maximum(self._costs, checked) / self.drift_weight)

    def inclination(self, payments: PerClient | None, participation: PerClient) -> Array:
        """``g_k = d_k^2 + a / (2 S) - S w_k``: positive where a client would rather take part more."""
        return inclinations(self.reluctance(payments), self.profile(participation), self.sampling)

    def client_impacts(self, participation: PerClient) -> Array:
        """``u_k = lam (d_k^2 + a / S)``: what drift and thin data cost each client."""
        return self._suffered(self.profile(participation))

    def _suffered(self, profile: Profile) -> Array:
        drift = self.lam * profile.to_clients
        return drift if self.sampling == 0.0 else drift + self.lam * self.sampling / profile.total

    def impacts(self, participation: PerClient) -> Impacts:
        """Predicted changes in loss against the original federation, see :mod:`stackfu.model.impacts`.

        >>> import numpy as np, stackfu as sf
        >>> emb = sf.MeanEmbeddings.from_features(np.eye(3))
        >>> game = sf.StackelbergGame(emb, [100, 100, 100], removed=[0], sampling_constant=10.0)
        >>> game.impacts([1.0, 1.0]).clients.round(4)
        array([-0.15, -0.15])
        """
        return predicted_impacts(self, self.profile(participation), self.calibrated)

    def client_utilities(self, payments: PerClient | None, participation: PerClient) -> Array:
        """``U_k = (p_k - c_k) x_k - lam (d_k^2 + a / S)``."""
        profile = self.profile(participation)
        return (self.check_payments(payments) - self._costs) * profile.x - self._suffered(profile)

    def server_loss(self, participation: PerClient) -> float:
        """Return the loss of :attr:`loss`; the paper's is ``u_server = lam_v ||m - mu_N||^2 + lam_s ||m - mu_O||^2``.

        With a sampling constant, every squared distance is ``a / S`` larger.
        """
        return self.loss_of(self.profile(participation))

    def server_losses(self, participation: Array) -> Array:
        """Return :meth:`server_loss` of every row of a matrix of participations.

        >>> import numpy as np, stackfu as sf
        >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [100, 100, 100], removed=[0])
        >>> game.server_losses(np.array([[1.0, 0.5], [0.5, 1.0]])).round(3)
        array([0.278, 0.278])
        """
        x = np.atleast_2d(participation)
        if not self._loss.is_of_paper or self._loss.sampling:
            return np.array([self.server_loss(row) for row in x])
        y = self._alpha * x
        totals = y.sum(axis=1)
        to_remaining, to_original = self._geometry.distances_of(y / totals[:, None])
        lam_v, lam_s = self._loss.weights
        losses = lam_v * to_remaining + lam_s * to_original
        if self.sampling:
            losses += self._loss.weight * self.sampling / totals
        return np.asarray(losses)

    def loss_of(self, profile: Profile, sampling: bool = False) -> float:
        """:meth:`server_loss` of a profile, with the sampling term if asked for or part of the loss."""
        if self._loss.is_of_paper:
            lam_v, lam_s = self._loss.weights
            value = lam_v * profile.distances.to_remaining + lam_s * profile.distances.to_original
        else:
            value = sum(
                weight * self._geometry.to_target(profile.mixture, profile.distances, target)
                for weight, target in zip(self._loss.weights, self._loss.targets, strict=True)
            )
        if self.sampling:
            value += self._loss.weight * self.sampling / profile.total
        return value + self._sampling_penalty(profile) if sampling or self._loss.sampling else value

    def server_utility(self, payments: PerClient, participation: PerClient) -> float:
        """``U_sr = -u_server - p . x``."""
        spend = float(self.check_payments(payments) @ self.check_participation(participation))
        return -self.server_loss(participation) - spend

    def effectiveness_bound(self, participation: PerClient) -> float:
        """Bound on V, the loss against complete retraining: ``C ||m - mu_N||^2``."""
        return self.loss_constant * self.profile(participation).distances.to_remaining

    def stability_bound(self, participation: PerClient) -> float:
        """Bound on S, the loss against the original model: ``C ||m - mu_O||^2``."""
        return self.loss_constant * self.profile(participation).distances.to_original

    def change_bounds(self, participation: PerClient, gaps: PerClient | None = None) -> Array:
        """Bounds on Q_k, a client's own loss change: ``C d_k^2 + delta_k`` (``gaps`` are the delta_k, default 0)."""
        bound = self.loss_constant * self.profile(participation).to_clients
        return bound if gaps is None else bound + self._each(gaps, "gaps", others=0.0)

    def finite_sample_penalty(self, participation: PerClient) -> float:
        """``weight sum_k z_k v_k / (n_N S)``: variance of the used samples' embedding, v_k that of one (:attr:`sampling_noise`).

        ``u_server`` speaks of distributions and is blind to how many samples represent them; this term is what is
        lost by representing the mixture with the ``n_N S`` samples that take part. ``weight`` is the sum of the loss's weights,
        ``lam_v + lam_s`` for the paper's. It needs a kernel with ``k(a, a) = 1``.
        """
        return self._sampling_penalty(self.profile(participation))

    def _sampling_penalty(self, profile: Profile) -> float:
        samples = float(self._sizes[self._remaining].sum()) * profile.total
        return self._loss.weight * float(profile.mixture @ self.sampling_noise) / samples

    @cached_property
    def sampling_noise(self) -> Array:
        """Return the variance of one sample's embedding for every remaining client, estimated without bias.

            n_k / (n_k - 1) (1 - ||mu_k||^2)

        with n_k = :attr:`noise_counts`: the mean of the client's own samples is nearer to them than their distribution's mean. Of
        a client with a single sample nothing is known; it counts with 1, the largest variance that a kernel with ``k(a, a) = 1``
        allows, and no estimate exceeds that.
        """
        own = self._embeddings.mean_self_similarity
        if own is not None and np.any(np.abs(np.asarray(own) - 1.0) > ONE):
            raise InputError(
                "finite_sample",
                "needs a kernel with k(a, a) = 1, and this one sees labels or is your own; use sampling_constant instead",
                value=float(np.max(own)),
            )
        norms = self._embeddings.squared_norms[self._remaining]
        if np.any(norms > 1.0 + ONE):
            k = int(np.argmax(norms))
            raise InputError(
                "embeddings",
                "the finite-sample term needs a kernel with k(a, a) = 1, so squared norms of at most 1",
                client=self.label(int(k)),
                value=norms[k],
            )
        counts = self.noise_counts
        several = counts > 1.0
        unbiased = counts / np.where(several, counts - 1.0, 1.0) * np.maximum(1.0 - norms, 0.0)
        return frozen(np.where(several, np.minimum(unbiased, 1.0), 1.0))

    @cached_property
    def noise_counts(self) -> Array:
        """Return the number of samples that each remaining client's embedding is the mean of.

        These are the numbers of embedded samples if samples were embedded, and otherwise the clients' sizes. Clients with equal
        embeddings hold samples of one distribution, and pool their knowledge of its variance.
        """
        embedded = self._embeddings.sample_counts
        counts = self.sizes if embedded is None else np.array(embedded, dtype=np.float64)[self._remaining]
        return frozen(np.full(self.count, counts.sum()) if self.is_homogeneous else counts)

    def best_response(
        self,
        payments: PerClient | None,
        participation: PerClient,
        caps: PerClient | None = None,
    ) -> Array:
        """Return every client's best response to the others.

        ``y_k = clip(R_k - S0_k, 0, cap_k alpha_k)`` where ``w_k > 0``, with the positive root of ``2 w_k R^3 - a R - 2 q_k = 0``,
        ``q_k = ||sum_{i != k} y_i (mu_i - mu_k)||^2 = S^2 d_k^2`` (without a sampling constant ``R_k = (q_k / w_k)^(1/3)``);
        all that is taken where ``w_k < 0``, or ``w_k = 0`` and there is anything to gain; unchanged where it is indifferent.
        Without a sampling constant a sole participant gains by shrinking towards 0 but loses all at 0; its entry is then 0.
        """
        profile = self.profile(participation)
        bound = self._alpha * self.check_caps(caps)
        return best_responses(bound, self.reluctance(payments), profile, self.sampling) / self._alpha

    def thresholds(self, participation: PerClient, caps: PerClient | None = None) -> tuple[Array, Array]:
        """Return payments below which a client stays out, and above which it takes part as much as it may, the others fixed.

        ``p(R) = c_k - 2 lam alpha_k (q_k / R^3 + a / (2 R^2))`` at ``R = S0_k`` and at ``R = S0_k + cap_k alpha_k``.
        """
        profile = self.profile(participation)
        rest, a = profile.others, self.sampling
        weight = self.drift_weight
        q = np.where(rest > 0, profile.total**2 * profile.to_clients, 0.0)

        def price(amount: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                drift = np.where(q > 0, q / amount**3, 0.0)
                thin = a / (2.0 * amount**2) if a > 0 else 0.0
                return np.asarray(self._costs - weight * (drift + thin))

        return price(rest), price(rest + self.check_caps(caps) * self._alpha)

    def residual(
        self,
        payments: PerClient | None,
        participation: PerClient,
        caps: PerClient | None = None,
    ) -> float:
        """Largest violation of an equilibrium condition, relative to what is added up in it.

        ``g_k`` beside the largest of ``d_k^2``, ``S c_k / (2 lam alpha_k)`` and ``S p_k / (2 lam alpha_k)``.
        """
        return self._residual(
            self.check_payments(payments), self.profile(participation), self.check_caps(caps)
        )

    def regrets(
        self,
        payments: PerClient | None,
        participation: PerClient,
        caps: PerClient | None = None,
    ) -> Array:
        """Return every client's gain from its best response, never negative."""
        return self._regrets(self.reluctance(payments), self.profile(participation), self.check_caps(caps))

    def regret(
        self,
        payments: PerClient | None,
        participation: PerClient,
        caps: PerClient | None = None,
    ) -> float:
        """Largest gain any client has from deviating."""
        return float(self.regrets(payments, participation, caps).max())

    def judge(
        self,
        payments: PerClient | None,
        participation: PerClient | Profile,
        caps: PerClient | None = None,
    ) -> tuple[float, float]:
        """Residual and regret of a profile, with one pass over the clients."""
        p, most = self.check_payments(payments), self.check_caps(caps)
        if isinstance(participation, Profile):
            regret = self._regrets(self.reluctance_under(p), participation, most).max()
            return self._residual(p, participation, most), float(regret)
        x = self.check_participation(participation)
        if not x.any():
            raise InputError("participation", "nobody takes part", value="0")
        return self.judge_checked(p, x, most)

    def judge_checked(self, payments: Array, x: Array, caps: Array | None = None) -> tuple[float, float]:
        """:meth:`judge` for payments, a participation and caps that need no checking."""
        most = self.no_caps if caps is None else caps
        y = self._alpha * x
        drift = self._geometry.drifts(y / max(float(y.sum()), 5e-324))
        violation, gain = kernels().judge(
            drift, self._alpha, most, self._costs, payments, self.drift_weight, x, self.sampling
        )
        return violation, self.lam * gain

    def _residual(self, payments: Array, profile: Profile, caps: Array) -> float:
        w, prices = self.reluctance_under(payments), self._prices(payments)
        return float(violations(w, prices, profile, self.sampling, caps).max())

    def _regrets(self, w: Array, profile: Profile, caps: Array) -> Array:
        return regrets(self._alpha * caps, w, self.lam, profile, self.sampling)

    @property
    def full_participation_price(self) -> float:
        """Cheapest total payment under which all clients take part fully, in closed form.

        ``sum_k (c_k - 2 lam alpha_k ||mu_k - mu_N||^2)_+``
        """
        return float(self.payments_for(np.ones(self.count)).sum())

    def payments_for(self, participation: PerClient) -> Array:
        """Cheapest payments that make a profile an equilibrium; see :mod:`stackfu.model.price`."""
        return cheapest_payments(self, self.profile(participation))

    def summary(self) -> dict[str, Any]:
        """Return the game as plain values."""
        return {
            "clients": len(self.all_sizes),
            "removed": [self.called(k) for k in self.removed],
            "remaining": self.remaining,
            "names": list(self.names),
            "sizes": self.sizes,
            "costs": self.costs,
            "heterogeneity": self.heterogeneity,
            "lambda_v": self.lambda_v,
            "lambda_s": self.lambda_s,
            "lambda_q": self.lambda_q,
            "loss_constant": self.loss_constant,
            "server_loss": repr(self.loss),
            "diameter": self.diameter,
            "currency": self.currency,
            "full_participation_price": self.full_participation_price,
        }


#: Data and formulas that solvers and checkers rely on, and the methods behind attributes and comparisons, by name.
_FORMULAS: dict[str, object] = {
    name: value
    for owner in (GameData, GameModel)
    for name, value in vars(owner).items()
    if not name.startswith("__") or name in ("__eq__", "__hash__", "__setattr__")
}
_OWN = _FORMULAS.keys() | {"__getattribute__"}


def require_formulas(game: GameModel) -> None:
    """An error if a game computes anything otherwise than the library does: it would get answers to a different problem.

    Classes are looked at when they are made and when a game is; both can be changed afterwards, so solvers and judges ask again.
    """
    _require_formulas(type(game))
    for name in sorted(vars(game).keys() & _OWN):
        if not isinstance(_FORMULAS.get(name), cached_property):
            raise _another(f"a game's {name}", name)


def _require_formulas(cls: type) -> None:
    for base in cls.__mro__[: cls.__mro__.index(GameData) + 1]:
        held = vars(base)
        for name in sorted(held.keys() & _OWN):
            if held[name] is not _FORMULAS.get(name):
                raise _another(f"{cls.__name__}.{name}", name)


def _another(what: str, name: str) -> TypeError:
    return TypeError(
        f"{what}: the solvers read the game's data, not this method, so another {name} would get "
        "answers to a different problem; pass server_loss=ServerLoss(...) for an objective of your own"
    )

"""The releases of its data that a client allows to any server: a file of the client, and an accountant.

A file ``policy.toml`` in the client's folder says what is allowed; what it does not say has the defaults of
:class:`Policy`. A mean of n unit vectors with Gaussian noise of deviation sigma has the privacy profile of a shift by
``mu = (2 / n) / sigma``, and releases add up exactly:

    mu^2 = sum_i mu_i^2,      delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)

(Dong, Roth and Su, Gaussian Differential Privacy, 2022). What is released by the exponential mechanism, the
bandwidth, costs its epsilon on top. The release that would exceed the total is refused.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import FileFormatError, InputError, StackfuError

__all__ = ["PARTING_METHODS", "POLICY_FILE", "Policy", "PolicyError", "Release", "spent_epsilon"]

POLICY_FILE = "policy.toml"
PARTING_METHODS = ("gradient-ascent", "quickdrop", "mode")  # those that need work of clients that leave


class PolicyError(StackfuError):
    """The client's policy does not allow what the server asks for."""


@dataclass(frozen=True)
class Release:
    """Something of the data that left: by noise of relative size ``mu``, or for a plain ``epsilon``; neither is negative."""

    mu: float = 0.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not self.mu >= 0.0:
            raise InputError("mu", "must not be negative", value=self.mu)
        if not 0.0 <= self.epsilon < math.inf:
            raise InputError("epsilon", "must be finite and not negative", value=self.epsilon)


def spent_epsilon(releases: Iterable[Release], delta: float) -> float:
    """Return the epsilon of all releases together, at this delta.

    >>> one = Release(mu=0.5)
    >>> spent_epsilon([one], 1e-5) < spent_epsilon([one, one], 1e-5) < 2 * spent_epsilon([one], 1e-5)
    True
    """
    releases = list(releases)
    plain = sum(release.epsilon for release in releases)
    mu = math.sqrt(sum(release.mu**2 for release in releases))
    if mu == 0.0:
        return plain
    if not math.isfinite(mu):
        return math.inf
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def left(epsilon: float) -> float:
        a, b = mu / 2.0, epsilon / mu
        return float(np.exp(log_ndtr(a - b)) - np.exp(epsilon + log_ndtr(-a - b))) - delta

    if left(0.0) <= 0.0:
        return plain
    top = 1.0
    while left(top) > 0.0:
        top *= 2.0
    return plain + float(brentq(left, 0.0, top, xtol=1e-10))


@dataclass(frozen=True)
class Policy:
    """Limits that a client sets.

    ``epsilon`` is the most that one embedding may cost at ``delta``, ``total_epsilon`` the most that everything may
    cost together, for ever. ``noiseless`` allows embeddings without noise, which reveal who is in the data.
    ``most_features``, ``least_bandwidth`` and ``most_bandwidth`` bound what is computed, ``kernels`` of which kind.
    ``erase`` demands that the server erases embeddings after settlement. ``server_key`` is the server's public key;
    without it the first one that is seen is kept. ``train_rounds`` bounds the rounds of unlearning. ``only_sums`` refuses
    rounds, and gradients, that the server would see of this client alone; single second derivatives are shown with
    ``curvature`` only, since those of few samples tell what the samples are. ``least_samples`` is how many samples an update,
    gradient or Hessian is made of at least that the server sees by itself. ``measured_requests`` is for how many requests, ever,
    this client measures models: losses at models of the server's choice tell more with every request. ``peers`` are other
    clients' public keys: with them, no other client is a member of a sum in which this client hides something. ``parting`` are the
    methods for which this client works when it leaves (:mod:`.methods`): what it sends is made, once more, of the data that is
    to be forgotten. ``trusting`` believes
    the server about an agreement of which a client without a folder has no records any more, as after a restart.
    ``keep_work`` keeps a
    copy of every model that this client sends in rounds of unlearning in its own folder, so that an audit can average them again.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    total_epsilon: float = 12.0
    noiseless: bool = False
    most_features: int = 256
    least_bandwidth: float = 1e-3
    most_bandwidth: float = 1e6
    kernels: tuple[str, ...] = ("rbf",)
    erase: bool = True
    server_key: str = ""
    train_rounds: int = 10_000
    only_sums: bool = False
    curvature: bool = False
    least_samples: int = 8
    measured_requests: int = 100
    peers: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    trusting: bool = False
    keep_work: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(self.kernels))
        object.__setattr__(self, "peers", tuple(self.peers))
        object.__setattr__(self, "parting", tuple(self.parting))
        strange = sorted(set(self.parting) - set(PARTING_METHODS))
        if strange:
            raise InputError("parting", f"must be among {', '.join(PARTING_METHODS)}", value=strange[0])
        for name in ("epsilon", "total_epsilon", "least_bandwidth", "most_bandwidth"):
            if not getattr(self, name) > 0:
                raise InputError(name, "must be positive", value=getattr(self, name))
        if not 0 < self.delta < 1:
            raise InputError("delta", "must be between 0 and 1", value=self.delta)
        if self.least_samples < 1:
            raise InputError("least_samples", "must be at least 1", value=self.least_samples)

    @classmethod
    def open(cls) -> Policy:
        """Return a policy that allows everything: for simulations without private data."""
        return cls(
            epsilon=math.inf,
            delta=0.5,
            total_epsilon=math.inf,
            noiseless=True,
            most_features=10**9,
            least_bandwidth=1e-300,
            most_bandwidth=math.inf,
            kernels=("rbf", "labels", "joint"),
            erase=False,
            parting=PARTING_METHODS,
            curvature=True,
            least_samples=1,
            measured_requests=10**9,
            trusting=True,
        )

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read a policy; without a file, the defaults. Unknown entries are refused."""
        if not path.is_file():
            return cls()
        try:
            stated: dict[str, Any] = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{path}: not a policy ({error})") from error
        known = {f.name: type(f.default) for f in fields(cls)}
        for name, value in stated.items():
            if name not in known:
                raise InputError("policy", f"{path} says {name}, of which nothing is known")
            wanted = (
                (list,) if known[name] is tuple else (int, float) if known[name] is float else (known[name],)
            )
            if not isinstance(value, wanted) or (isinstance(value, bool) and known[name] is not bool):
                raise InputError(name, f"{path}: must be of type {known[name].__name__}", value=value)
        return cls(**stated)

    def check_embedding(
        self,
        *,
        epsilon: float | None,
        delta: float | None,
        features: int,
        bandwidth: float,
        kernel: str,
        erase: bool,
    ) -> None:
        """Refuse an embedding that the policy does not allow."""
        if epsilon is None and not self.noiseless:
            raise PolicyError("this client releases no embedding without noise")
        if epsilon is not None and not 0 < epsilon <= self.epsilon:
            raise PolicyError(
                f"this client releases embeddings with epsilon up to {self.epsilon:g}, not {epsilon:g}"
            )
        if epsilon is not None and not (delta is not None and 0 < delta <= self.delta):
            raise PolicyError(f"this client releases embeddings with delta up to {self.delta:g}, not {delta}")
        if not 1 <= features <= self.most_features:
            raise PolicyError(f"this client releases up to {self.most_features} features, not {features}")
        if not self.least_bandwidth <= bandwidth <= self.most_bandwidth:
            raise PolicyError(
                f"this client allows bandwidths between {self.least_bandwidth:g} and {self.most_bandwidth:g}, "
                f"not {bandwidth:g}"
            )
        if kernel not in self.kernels:
            raise PolicyError(f"this client allows the kernels {', '.join(self.kernels)}, not {kernel}")
        if self.erase and not erase:
            raise PolicyError("this client demands that embeddings are erased after settlement")

    def check_spread(self, epsilon: float | None) -> None:
        """Refuse to say how far apart samples are at a privacy that the policy does not allow."""
        if epsilon is None and not self.noiseless:
            raise PolicyError("this client says nothing of its distances without noise")
        if epsilon is not None and not 0 < epsilon <= self.epsilon:
            raise PolicyError(
                f"this client says how far apart its samples are for a positive epsilon up to {self.epsilon:g}, not {epsilon:g}"
            )

    def check_samples(self, used: int, summed: bool) -> None:
        """Refuse an update of so few samples that it tells what they are, unless it is seen in a sum alone."""
        least = 1 if summed else self.least_samples
        if used < least:
            raise PolicyError(
                f"this client shows nothing by itself that is made of {used} samples, {least} are the least"
            )

    def check_parting(self, method: str) -> None:
        """Refuse to work for a method when leaving, unless the policy says that this client does."""
        if method not in self.parting:
            allowed = ", ".join(self.parting) or "nothing"
            raise PolicyError(f"when it leaves this client works for {allowed}, not for {method}")
        if self.only_sums:
            raise PolicyError("this client shows its updates in sums only")

    def check_total(self, released: Iterable[Release], new: Release) -> None:
        """Refuse the release that would exceed the total."""
        if not math.isfinite(self.total_epsilon):
            return
        spent = spent_epsilon([*released, new], self.delta)
        if spent > self.total_epsilon * (1 + 1e-9):
            raise PolicyError(
                f"this release would bring the total to epsilon = {spent:.4g}, and this client allows "
                f"{self.total_epsilon:g} in all"
            )

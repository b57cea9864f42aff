"""The clients' mean embeddings as one immutable value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.embedding.bandwidth import median_of
from stackfu.embedding.features import check_features, check_seed, frequencies, mean_features
from stackfu.embedding.gram import Arithmetic, Progress, mean_complements
from stackfu.embedding.samples import Array, Samples, positive_number
from stackfu.errors import InputError

# A gram of this many clients takes 3.2 GB.
LARGEST_GRAM = 20_000


class MeanEmbeddings:
    """Kernel mean embeddings mu_1 .. mu_M of M clients, known through their inner products.

    Made by :meth:`from_samples`, :meth:`from_features` or :meth:`from_gram`; immutable, equal by value.

    >>> import numpy as np
    >>> emb = MeanEmbeddings.from_samples([np.zeros((1, 1)), np.ones((1, 1))], bandwidth=1.0)
    >>> emb
    MeanEmbeddings(2 clients, bandwidth=1)
    >>> emb.gram.round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    >>> round(emb.distance(0, 1), 4)
    0.8871
    """

    __slots__ = ("_bandwidth", "_complement", "_features", "_gram")

    _bandwidth: float | None
    _features: Array | None
    _gram: NDArray[np.float64] | None
    # 1 - G, where it is known more accurately than G itself
    _complement: NDArray[np.float64] | None

    def __init__(self) -> None:
        raise TypeError("use MeanEmbeddings.from_samples, .from_features or .from_gram")

    @classmethod
    def _make(
        cls,
        *,
        bandwidth: float | None = None,
        features: Array | None = None,
        gram: NDArray[np.float64] | None = None,
        complement: NDArray[np.float64] | None = None,
    ) -> MeanEmbeddings:
        self = object.__new__(cls)
        for name, value in (
            ("_bandwidth", bandwidth),
            ("_features", _read_only(features)),
            ("_gram", _read_only(gram)),
            ("_complement", _read_only(complement)),
        ):
            object.__setattr__(self, name, value)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"MeanEmbeddings is immutable; cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"MeanEmbeddings is immutable; cannot delete {name}")

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_samples(
        cls,
        samples: Sequence[Any],
        bandwidth: float | str = "median",
        features: int | None = None,
        seed: int = 0,
        *,
        arithmetic: Arithmetic = "auto",
        progress: Progress | None = None,
    ) -> MeanEmbeddings:
        """Embed one (n_i, d) array of samples per client.

            G_ij = mean over a in client i, b in client j of exp(-|a - b|^2 / (2 sigma^2))

        exactly and in O(n^2 d) time, without ever holding more than tiles of the n x n kernel matrix; or,
        with ``features=D``, approximately through D random Fourier features in O(n d D) time.

        ``bandwidth`` is sigma, or ``"median"`` for :func:`~stackfu.median_bandwidth`. float32 samples give
        every G_ij to within 1e-6, float64 samples to within 1e-12; ``arithmetic="double"`` computes in double
        precision whatever the samples are stored in. ``progress(done, total)`` is called as tiles finish.

        >>> import numpy as np
        >>> data = np.random.default_rng(0).normal(size=(3, 100, 2))
        >>> exact = MeanEmbeddings.from_samples(data, bandwidth=1.0)
        >>> fast = MeanEmbeddings.from_samples(data, bandwidth=1.0, features=4096)
        >>> bool(abs(exact.gram - fast.gram).max() < 0.05)
        True
        """
        checked = Samples.check(samples)
        if arithmetic not in ("auto", "double"):
            raise InputError("arithmetic", 'must be "auto" or "double"', value=repr(arithmetic))
        if features is not None:
            check_features(features)
            check_seed(seed)
        if isinstance(bandwidth, str):
            if bandwidth != "median":
                raise InputError("bandwidth", 'must be "median" or a positive number', value=repr(bandwidth))
            sigma: float = median_of(checked, seed=seed)
        else:
            sigma = positive_number(bandwidth, "bandwidth")
            sigma = bandwidth if isinstance(bandwidth, float) else sigma  # a Bandwidth keeps what it knows
        if features is not None:
            directions = frequencies(checked.dimension, int(features), int(seed))
            return cls._make(
                bandwidth=sigma, features=mean_features(checked.arrays, directions / float(sigma))
            )
        if len(checked) > LARGEST_GRAM:
            raise _too_large(len(checked), "pass features=1024, say")
        complement = mean_complements(checked, float(sigma), arithmetic, progress)
        return cls._make(bandwidth=sigma, gram=1.0 - complement, complement=complement)

    @classmethod
    def from_features(cls, features: ArrayLike, bandwidth: float | None = None) -> MeanEmbeddings:
        """Take one feature vector per client, the rows of an (M, D) array, which is not copied.

            G_ij = features_i . features_j

        >>> import numpy as np
        >>> MeanEmbeddings.from_features(np.eye(3)).distance(0, 1) ** 2
        2.0000000000000004
        """
        try:
            array = np.asarray(features)
        except ValueError:
            raise InputError("features", "must be an (M, D) array: the rows differ in length") from None
        if array.ndim != 2 or 0 in array.shape:
            raise InputError(
                "features", f"must be an (M, D) array with a row per client, not shape {array.shape}"
            )
        array = Samples.check([array], "features").arrays[0]
        sigma = None if bandwidth is None else positive_number(bandwidth, "bandwidth")
        return cls._make(bandwidth=sigma, features=array)

    @classmethod
    def from_gram(cls, gram: ArrayLike, tolerance: float = 1e-8) -> MeanEmbeddings:
        """Take the (M, M) inner products themselves.

        Refuses a matrix that no set of vectors has: one with ``|G_ij - G_ji|`` above ``tolerance * max|G|``,
        or with an eigenvalue below ``-tolerance * max(largest eigenvalue, max|G|)``.

        >>> MeanEmbeddings.from_gram([[1.0, 0.5], [0.5, 1.0]]).distance(0, 1)
        1.0
        """
        try:
            array = np.array(gram, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("gram", "must be a square matrix of numbers") from None
        if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] == 0:
            raise InputError("gram", f"must be a square matrix, not shape {array.shape}")
        if len(array) > LARGEST_GRAM:
            raise _too_large(len(array), "use MeanEmbeddings.from_features")
        if not np.isfinite(array).all():
            i, j = np.argwhere(~np.isfinite(array))[0]
            raise InputError("gram", f"not a finite number in entry ({i}, {j})", value=array[i, j])
        if not (np.isfinite(tolerance) and tolerance >= 0):
            raise InputError("tolerance", "must be a number of at least 0", value=tolerance)
        size = float(np.abs(array).max())
        skew = np.abs(array - array.T)
        i, j = np.unravel_index(int(skew.argmax()), skew.shape)
        if skew[i, j] > tolerance * size:
            raise InputError(
                "gram",
                f"not symmetric: entries ({i}, {j}) and ({j}, {i}) are {array[i, j]} and {array[j, i]}",
            )
        array = (array + array.T) / 2
        eigenvalues = np.linalg.eigvalsh(array)
        if eigenvalues[0] < -tolerance * max(float(eigenvalues[-1]), size):
            raise InputError(
                "gram",
                f"not positive semidefinite: smallest eigenvalue {eigenvalues[0]:.6g} beside a largest of "
                f"{eigenvalues[-1]:.6g} (tolerance {tolerance:g}), so these are no inner products",
            )
        return cls._make(gram=array)

    # ------------------------------------------------------------------ what is known

    def __len__(self) -> int:
        known = self._features if self._features is not None else self._gram
        assert known is not None
        return len(known)

    @property
    def bandwidth(self) -> float | None:
        """Sigma of the kernel, or None if unknown."""
        return self._bandwidth

    @property
    def features(self) -> Array | None:
        """The (M, D) feature vectors, read-only, or None if the embeddings are known by their gram alone."""
        return self._features

    @property
    def gram(self) -> NDArray[np.float64]:
        """The (M, M) inner products, read-only; computed from the features on first use."""
        if self._gram is None:
            assert self._features is not None
            if len(self) > LARGEST_GRAM:
                raise _too_large(len(self), "work with .features")
            vectors = np.asarray(self._features, dtype=np.float64)
            object.__setattr__(self, "_gram", _read_only(vectors @ vectors.T))
        assert self._gram is not None
        return self._gram

    @property
    def squared_norms(self) -> NDArray[np.float64]:
        """``|mu_i|^2`` for every client."""
        if self._features is not None:
            return np.asarray(np.einsum("md,md->m", self._features, self._features, dtype=np.float64))
        return np.array(np.diagonal(self.gram))

    # ------------------------------------------------------------------ distances

    def distance(self, i: int, j: int) -> float:
        """Return ``|mu_i - mu_j|``, the maximum mean discrepancy (not squared) of clients i and j."""
        i, j = self._client(i, "i"), self._client(j, "j")
        if self._features is not None:
            return float(np.linalg.norm(np.subtract(self._features[i], self._features[j], dtype=np.float64)))
        return float(np.sqrt(_squared_distances(self._best[np.ix_([i, j], [i, j])])[0, 1]))

    def distances(self) -> NDArray[np.float64]:
        """Return the (M, M) matrix of ``|mu_i - mu_j|`` (not squared)."""
        if self._features is not None:
            if len(self) > LARGEST_GRAM:
                raise _too_large(len(self), "use .distance(i, j) or work with .features")
            from scipy.spatial.distance import pdist, squareform

            result: NDArray[np.float64] = squareform(pdist(self._features))
            return result
        return np.sqrt(_squared_distances(self._best))

    def mixture_distance(self, weights_a: ArrayLike, weights_b: ArrayLike) -> float:
        """Return the distance between two mixtures of the clients, ``|sum_i a_i mu_i - sum_i b_i mu_i|``.

        The weights (sizes, say) are non-negative, one per client, and normalised to sum to one.

        >>> import numpy as np
        >>> MeanEmbeddings.from_features(np.eye(2)).mixture_distance([1, 1], [1, 0]) ** 2
        0.5000000000000001
        """
        v = self._weights(weights_a, "weights_a") - self._weights(weights_b, "weights_b")
        if self._features is not None:
            return float(np.linalg.norm(v @ self._features))
        # v sums to zero, so a constant may be taken off every entry before digits cancel.
        best = self._best
        return float(np.sqrt(max(0.0, -float(v @ (best - best[0, 0]) @ v))))

    @property
    def _best(self) -> NDArray[np.float64]:
        """Minus the gram, up to a constant, in its most accurate form."""
        return self._complement if self._complement is not None else -self.gram

    def _client(self, i: int, argument: str) -> int:
        if not isinstance(i, (int, np.integer)) or not 0 <= i < len(self):
            raise InputError(argument, f"must be a client number from 0 to {len(self) - 1}", value=i)
        return int(i)

    def _weights(self, weights: ArrayLike, argument: str) -> NDArray[np.float64]:
        w = np.asarray(weights, dtype=np.float64)
        if w.shape != (len(self),):
            raise InputError(argument, f"must hold one number per client ({len(self)}), not shape {w.shape}")
        bad = ~(np.isfinite(w) & (w >= 0))
        if bad.any():
            k = int(bad.argmax())
            raise InputError(argument, "must be a finite number of at least 0", client=k, value=w[k])
        if not w.any():
            raise InputError(argument, "must not all be zero")
        w = w / w.max()
        return np.asarray(w / w.sum())

    # ------------------------------------------------------------------ value semantics

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MeanEmbeddings):
            return NotImplemented
        if self is other:
            return True
        if self._bandwidth != other._bandwidth or (self._features is None) != (other._features is None):
            return False
        if self._features is not None:
            return np.array_equal(self._features, other._features)  # type: ignore[arg-type]
        return np.array_equal(self.gram, other.gram)

    def __hash__(self) -> int:
        known = self._features if self._features is not None else self._gram
        assert known is not None
        return hash((self._bandwidth, known.shape, *known[0, :4].tolist()))

    def __repr__(self) -> str:
        parts = [f"{len(self)} clients" if len(self) != 1 else "1 client"]
        if self._features is not None:
            parts.append(f"{self._features.shape[1]} features")
        if self._bandwidth is not None:
            parts.append(f"bandwidth={float(self._bandwidth):.6g}")
        return f"MeanEmbeddings({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._bandwidth, self._features, self._gram, self._complement)


def _restore(
    bandwidth: float | None,
    features: Array | None,
    gram: NDArray[np.float64] | None,
    complement: Array | None,
) -> MeanEmbeddings:
    return MeanEmbeddings._make(bandwidth=bandwidth, features=features, gram=gram, complement=complement)


def _squared_distances(negative_gram: NDArray[np.float64]) -> NDArray[np.float64]:
    own = np.diagonal(negative_gram)
    squared = (negative_gram - own[:, None]) + (negative_gram - own[None, :])
    return np.asarray(np.maximum(squared, 0.0))


def _read_only(array: Array | None) -> Array | None:
    if array is None:
        return None
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _too_large(clients: int, instead: str) -> InputError:
    return InputError(
        "clients",
        f"a gram of so many takes {8 * clients**2 / 1e9:.1f} GB (limit: {LARGEST_GRAM} clients); {instead}",
        value=clients,
    )

"""The clients' mean embeddings as one immutable value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.embedding import rbf
from stackfu.embedding.bandwidth import median_of
from stackfu.embedding.clients import check_samples, column_names, is_table, split_by_client
from stackfu.embedding.features import check_features, check_seed, dealt_out, frequencies
from stackfu.embedding.gram import Arithmetic
from stackfu.embedding.labels import (
    Labels,
    check_counts,
    class_shares,
    histogram_features,
    histogram_self_similarity,
)
from stackfu.embedding.names import ClientNames, PerClient, by_name, check_names
from stackfu.embedding.own_kernel import mean_kernel
from stackfu.embedding.preparation import Missing, PreparedSamples, check_missing, prepare
from stackfu.embedding.samples import (
    Array,
    Backend,
    Names,
    Samples,
    called_by,
    check_bandwidth,
    is_tensor,
    positive_number,
)
from stackfu.embedding.tiles import Progress
from stackfu.errors import InputError, warn
from stackfu.html import MOST_ROWS, card, data_frame, table
from stackfu.threads import factoring

# A gram of this many clients takes 3.2 GB.
LARGEST_GRAM = 20_000
# Rows of a gram that are worked on together, and above how many clients a factorisation is asked before eigenvalues.
BLOCK, MANY = 1024, 3000

Kernel = Literal["rbf", "labels", "joint"] | Callable[[Any, Any], Any]


class MeanEmbeddings:
    """Kernel mean embeddings mu_1 .. mu_M of M clients, known through their inner products.

    Made by :meth:`from_samples`, :meth:`from_counts`, :meth:`from_features`, :meth:`from_class_features` or
    :meth:`from_gram`, and of several by :meth:`combined`; immutable, equal by value.

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

    __slots__ = (
        "_bandwidth", "_complement", "_counts", "_features", "_gram", "_kernel", "_names", "_self_similarity",
    )  # fmt: skip

    _bandwidth: float | None
    _features: Array | None
    _gram: NDArray[np.float64] | None
    # -G + r_i + r_j for some r, which has the same distances, where it is known more accurately than G itself; 1 - G for "rbf"
    _complement: NDArray[np.float64] | None
    _names: Names | None
    _kernel: str | None
    # None also where it is 1 because the kernel is "rbf"
    _self_similarity: NDArray[np.float64] | None
    # how many samples each client had, where samples were embedded
    _counts: tuple[int, ...] | None

    def __init__(self) -> None:
        raise TypeError(
            "use MeanEmbeddings.from_samples, .from_counts, .from_features, .from_class_features, .from_gram or .combined"
        )

    @classmethod
    def _make(
        cls,
        *,
        bandwidth: float | None = None,
        features: Array | None = None,
        gram: NDArray[np.float64] | None = None,
        complement: NDArray[np.float64] | None = None,
        names: Names | None = None,
        kernel: str | None = None,
        self_similarity: NDArray[np.float64] | None = None,
        counts: Sequence[int] | None = None,
    ) -> MeanEmbeddings:
        self = object.__new__(cls)
        for name, value in (
            ("_bandwidth", bandwidth),
            ("_features", _read_only(features)),
            ("_gram", _read_only(gram)),
            ("_complement", _read_only(complement)),
            ("_names", names),
            ("_kernel", kernel),
            ("_self_similarity", _read_only(self_similarity)),
            ("_counts", None if counts is None else tuple(int(n) for n in counts)),
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
        samples: Any,
        bandwidth: float | str = "median",
        features: int | None = None,
        seed: int = 0,
        *,
        labels: Any = None,
        kernel: Kernel = "rbf",
        shares: Mapping[Any, float] | ArrayLike | None = None,
        client: str = "client",
        names: Sequence[Any] | None = None,
        missing: Missing = "refuse",
        standardise: bool = False,
        backend: Backend = "auto",
        arithmetic: Arithmetic = "auto",
        progress: Progress | None = None,
    ) -> MeanEmbeddings:
        """Embed one (n_i, d) array of samples per client.

            G_ij = mean over a in client i, b in client j of k(a, b)

        exactly and in O(n^2 d) time, without ever holding more than tiles of the n x n kernel matrix; or,
        with ``features=D``, approximately through D random Fourier features in O(n d D) time.

        Parameters
        ----------
        samples
            A sequence with one (n_i, d) array per client, a dictionary {name: array}, a DataFrame with a
            ``client`` column, or :class:`~stackfu.PreparedSamples`. Names are kept; clients of a
            DataFrame are numbered in ascending order of theirs. May be None for kernels of labels only. torch
            tensors stay on their device: those on the CPU share their memory, for others all pairs are computed there.
        bandwidth
            sigma, or ``"median"`` for :func:`~stackfu.median_bandwidth` over all samples.
        features, seed
            D random Fourier features instead of exact inner products. For ``"joint"`` the D are dealt out to the
            classes, which is cheaper and needs 2 per class at least.
        labels
            One whole number or string per sample, in the form of the samples: a sequence with an array per client, a
            dictionary with the same names, or the name of a column. Only for kernels that look at them.
        kernel
            - ``"rbf"``: ``k(a, b) = exp(-|a - b|^2 / (2 sigma^2))``;
            - ``"labels"``: ``k = 1[y = y'] / pi_y`` with the share pi_y of class y in all data: class histograms, K
              exact features per client, with a chi-square distance as squared distance;
            - ``"joint"``: the product of both, samples of a class compared by their features;
            - a function of two arrays (n, d) and (m, d) that returns all ``k(a, b)`` as an (n, m) matrix; called with
              tiles, which are tensors where the samples are (``backend="numpy"`` makes arrays of those on the CPU).
        shares
            The pi_y, {class: share} or one number per class in ascending order, where they are not to come from these
            labels.
        client
            Client column of a table.
        names
            One name per client, for a sequence of samples.
        missing, standardise
            Treatment of gaps (``"refuse"``, ``"drop"`` or ``"median"``), and True to bring columns to one scale
            by the mean and spread of all clients' rows; see :func:`~stackfu.prepare_samples`, which also counts changes.
        backend
            ``"torch"`` computes with torch operations also on the CPU, ``"numpy"`` refuses tensors elsewhere.
        arithmetic
            float32 samples give every mean of an RBF kernel to within 1e-6, float64 samples to within 1e-12;
            ``"double"`` computes in double precision whatever the samples are stored in.
        progress
            ``progress(done, total)`` is called as tiles (or, for ``"joint"``, classes) finish.

        Returns
        -------
        MeanEmbeddings
            The clients' embeddings, in the order of the samples.

        Examples
        --------
        >>> import numpy as np
        >>> data = np.random.default_rng(0).normal(size=(3, 100, 2))
        >>> exact = MeanEmbeddings.from_samples(data, bandwidth=1.0)
        >>> fast = MeanEmbeddings.from_samples(data, bandwidth=1.0, features=4096)
        >>> bool(abs(exact.gram - fast.gram).max() < 0.05)
        True

        Two clients with the same features and different labels:

        >>> x, y = {"Leeds": data[0], "York": data[0]}, {"Leeds": ["cat"] * 100, "York": ["cat", "dog"] * 50}
        >>> MeanEmbeddings.from_samples(x, 1.0).distance("Leeds", "York")
        0.0
        >>> emb = MeanEmbeddings.from_samples(x, labels=y, kernel="labels")
        >>> emb.names, round(emb.distance("Leeds", "York") ** 2, 4)
        (('Leeds', 'York'), 1.3333)
        """
        if not (callable(kernel) or kernel in ("rbf", "labels", "joint")):
            raise InputError(
                "kernel", 'must be "rbf", "labels", "joint" or a function k(X, Y)', value=repr(kernel)
            )
        marked = samples.labels if isinstance(samples, PreparedSamples) else labels
        _refuse_what_a_kernel_ignores(kernel, bandwidth, features, marked, shares)
        check_missing(missing)
        prepared = None
        if isinstance(samples, PreparedSamples):
            _refuse_twice(kernel, labels, client, names, missing, standardise)
            prepared = samples
        else:
            _refuse_preparing_labels(kernel, missing, standardise)
            entries, marks, called = split_by_client(
                samples, labels, client, names, labels_only=kernel == "labels", gaps=missing != "refuse"
            )
            columns = () if kernel == "labels" else column_names(samples, labels, client)
            if columns or standardise or missing != "refuse":
                prepared = prepare(entries, marks, called, columns, missing, standardise)
        if prepared is not None:
            entries, marks, called = prepared.samples, prepared.labels, prepared.names
            for doubt in prepared.doubts:
                warn(doubt)
        if arithmetic not in ("auto", "double"):
            raise InputError("arithmetic", 'must be "auto" or "double"', value=repr(arithmetic))
        if features is not None:
            features = check_features(features)
            check_seed(seed)
        checked = None
        if entries is not None or kernel != "labels":
            checked = check_samples(entries, names=called, backend=_backend_of(entries, kernel, backend))
        classes: Labels | None = None
        pi = np.ones(1)
        if marks is not None:
            listed = list(shares) if isinstance(shares, Mapping) else None
            classes = Labels.check(marks, None if checked is None else checked.lengths, called, listed)
            pi = class_shares(classes.counts, shares, classes.classes)
        if kernel == "labels":
            assert classes is not None
            own = [int(n) for n in classes.counts.sum(axis=1)]
            return cls._of_counts(classes.counts, pi, called, own)
        assert checked is not None
        if features is None and len(checked) > LARGEST_GRAM:
            raise _too_large(len(checked), "pass features=1024, say")
        if callable(kernel):
            return cls._of_own_kernel(checked, kernel, progress)
        if features is not None and classes is not None:
            dealt_out(features, len(classes.classes))
        sigma = _bandwidth_of(checked, bandwidth, seed)
        known: dict[str, Any] = {
            "bandwidth": sigma,
            "names": called,
            "kernel": kernel,
            "counts": checked.lengths,
        }
        if classes is not None:
            known["self_similarity"] = histogram_self_similarity(classes.counts, pi)
        if features is not None:
            means = _mean_features(checked, classes, pi, float(sigma), features, int(seed))
            return cls._make(features=means, **known)
        gram, complement = _mean_products(checked, classes, pi, float(sigma), arithmetic, progress)
        return cls._make(gram=gram, complement=complement, **known)

    @classmethod
    def _of_own_kernel(
        cls, samples: Any, kernel: Callable[[Any, Any], Any], progress: Progress | None
    ) -> MeanEmbeddings:
        means, own = mean_kernel(samples, kernel, progress)
        try:
            gram = cls.from_gram(means).gram
        except InputError as error:
            raise InputError("kernel", f"its mean over pairs of samples is {error.problem}") from None
        called = getattr(kernel, "__name__", type(kernel).__name__)
        return cls._make(
            gram=gram, names=samples.names, kernel=called, self_similarity=own, counts=samples.lengths
        )

    @classmethod
    def from_counts(
        cls,
        counts: ArrayLike | Mapping[Any, ArrayLike],
        *,
        shares: ArrayLike | None = None,
        names: Sequence[Any] | None = None,
    ) -> MeanEmbeddings:
        """Take how many samples of each class every client has: (M, K) counts, {name: K counts}, or a table with a row per client.

            |mu_i - mu_j|^2 = sum_y (p_iy - p_jy)^2 / pi_y,       features p_iy / sqrt(pi_y),

        with the class shares p_i of client i and pi of all data together (or ``shares``, K positive numbers that sum
        to 1). Counts need not be whole numbers: noisy ones are as good, see :func:`~stackfu.client_counts`. Equal to
        :meth:`from_samples` with ``kernel="labels"``.

        Parameters
        ----------
        counts : array_like, mapping or table
            K counts per client.
        shares : array_like, optional
            Class shares pi instead of those of all counts.
        names : sequence, optional
            Names of the clients.

        Returns
        -------
        MeanEmbeddings
            The clients' embeddings, in the order given.

        Examples
        --------
        >>> emb = MeanEmbeddings.from_counts([[30, 10], [0, 40]])
        >>> emb
        MeanEmbeddings(2 clients, labels, 2 features)
        >>> round(emb.distance(0, 1) ** 2, 3)
        2.4
        """
        rows, called = _named_rows(counts, names, "counts")
        checked = check_counts(rows, called)
        return cls._of_counts(checked, class_shares(checked, shares), called)

    @classmethod
    def _of_counts(
        cls,
        counts: NDArray[np.float64],
        pi: NDArray[np.float64],
        names: Names | None,
        own: Sequence[int] | None = None,
    ) -> MeanEmbeddings:
        return cls._make(
            features=histogram_features(counts, pi),
            names=names,
            kernel="labels",
            self_similarity=histogram_self_similarity(counts, pi),
            counts=own,
        )

    @classmethod
    def from_class_features(
        cls,
        features: ArrayLike | Mapping[Any, ArrayLike],
        counts: ArrayLike | Mapping[Any, ArrayLike],
        bandwidth: float | None = None,
        *,
        shares: ArrayLike | None = None,
        names: Sequence[Any] | None = None,
    ) -> MeanEmbeddings:
        """Take what clients computed with :func:`~stackfu.client_features` and labels, and their class counts: the joint kernel.

        The features of class y are divided by ``sqrt(pi_y)``, with the class shares pi of all counts (or ``shares``).
        Equal to :meth:`from_samples` with ``kernel="joint"`` and as many features.

        Parameters
        ----------
        features : array_like or mapping
            A vector of :func:`~stackfu.client_features` per client.
        counts : array_like or mapping
            Class counts per client.
        bandwidth : float, optional
            Sigma of the RBF kernel behind the features.
        shares : array_like, optional
            Class shares pi instead of those of all counts.
        names : sequence, optional
            Names of the clients.

        Returns
        -------
        MeanEmbeddings
            The clients' embeddings, in the order given.

        Examples
        --------
        >>> import numpy as np
        >>> import stackfu as sf
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(2, 50, 3)), rng.integers(2, size=(2, 50))
        >>> sent = [sf.client_features(a, 2.0, 64, labels=b, classes=[0, 1]) for a, b in zip(x, y)]
        >>> counts = [sf.client_counts(b, classes=[0, 1]) for b in y]
        >>> emb = MeanEmbeddings.from_class_features(sent, counts, bandwidth=2.0)
        >>> emb == MeanEmbeddings.from_samples(x, 2.0, 64, labels=y, kernel="joint")
        True
        """
        rows, called = _named_rows(features, names, "features")
        count_rows, counted = _named_rows(counts, None, "counts")
        if called is not None and counted is not None and called != counted:
            raise InputError("counts", "must name the clients of the features, in the same order")
        sent = _check_features_array(rows)
        checked = check_counts(count_rows, called)
        if len(checked) != len(sent):
            raise InputError("counts", f"must have a row per client ({len(sent)})", value=len(checked))
        if sent.shape[1] % 2:
            raise InputError("features", "must be even (cosine and sine pairs)", value=sent.shape[1])
        dealt_out(sent.shape[1], checked.shape[1])
        pi = class_shares(checked, shares)
        return cls._make(
            bandwidth=None if bandwidth is None else check_bandwidth(bandwidth),
            features=rbf.weigh_classes(np.asarray(sent, dtype=np.float64), pi),
            names=called,
            kernel="joint",
            self_similarity=histogram_self_similarity(checked, pi),
        )

    @classmethod
    def from_features(
        cls,
        features: ArrayLike | Mapping[Any, ArrayLike],
        bandwidth: float | None = None,
        *,
        names: Sequence[Any] | None = None,
        self_similarity: PerClient | None = None,
    ) -> MeanEmbeddings:
        """Take one feature vector per client, the rows of an (M, D) array, which is not copied; or {name: vector}.

            G_ij = features_i . features_j

        Parameters
        ----------
        features : array_like or mapping
            A vector per client; an array is not copied.
        bandwidth : float, optional
            Sigma, if these are features of an RBF kernel.
        names : sequence, optional
            Names of the clients.
        self_similarity : per client, optional
            Mean of ``k(a, a)`` over each client's samples, see :attr:`mean_self_similarity`.

        Returns
        -------
        MeanEmbeddings
            The clients' embeddings, in the order given.

        Examples
        --------
        >>> import numpy as np
        >>> MeanEmbeddings.from_features(np.eye(3)).distance(0, 1) ** 2
        2.0000000000000004
        """
        rows, called = _named_rows(features, names, "features")
        array = _check_features_array(rows)
        sigma = None if bandwidth is None else check_bandwidth(bandwidth)
        if sigma is not None and self_similarity is not None:
            raise InputError("self_similarity", "is 1 for the RBF kernel, whose bandwidth is given")
        return cls._make(
            bandwidth=sigma,
            features=array,
            names=called,
            kernel=None if sigma is None else "rbf",
            self_similarity=_check_self_similarity(self_similarity, len(array), called),
        )

    @classmethod
    def from_gram(
        cls,
        gram: Any,
        tolerance: float = 1e-8,
        *,
        names: Sequence[Any] | None = None,
        self_similarity: PerClient | None = None,
    ) -> MeanEmbeddings:
        """Take the (M, M) inner products themselves.

        Refuses a matrix that no set of vectors has: one with ``|G_ij - G_ji|`` above ``tolerance * max|G|``,
        or with an eigenvalue below ``-tolerance * max(largest eigenvalue, max|G|)``. A DataFrame has the names on both sides.

        Parameters
        ----------
        gram : array_like or table
            Symmetric matrix of inner products; a table has the names on both sides.
        tolerance : float
            Relative tolerance for asymmetry and negative eigenvalues.
        names : sequence, optional
            Names of the clients.
        self_similarity : per client, optional
            Mean of ``k(a, a)`` over each client's samples.

        Returns
        -------
        MeanEmbeddings
            The clients' embeddings, in the order given.

        Examples
        --------
        >>> MeanEmbeddings.from_gram([[1.0, 0.5], [0.5, 1.0]]).distance(0, 1)
        1.0
        """
        if is_table(gram):
            gram, names = _named_square(gram, names)
        try:
            array = np.array(gram, dtype=np.float64, order="C")
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
        size = max(float(array.max()), -float(array.min()))
        for start in range(0, len(array), BLOCK):  # a second matrix of this size may not fit
            rows = slice(start, start + BLOCK)
            skew = np.abs(array[rows] - array[:, rows].T)
            i, j = (int(k) for k in np.unravel_index(int(skew.argmax()), skew.shape))
            if skew[i, j] > tolerance * size:
                i += start
                raise InputError(
                    "gram",
                    f"not symmetric: entries ({i}, {j}) and ({j}, {i}) are {array[i, j]} and {array[j, i]}",
                )
        _symmetrise(array)
        least = largest = 0.0
        if len(array) <= MANY or not _factors(array, tolerance * size):  # eigenvalues may take an hour
            eigenvalues = np.linalg.eigvalsh(array)
            least, largest = float(eigenvalues[0]), float(eigenvalues[-1])
        if least < -tolerance * max(largest, size):
            raise InputError(
                "gram",
                f"not positive semidefinite: smallest eigenvalue {least:.6g} beside a largest of "
                f"{largest:.6g} (tolerance {tolerance:g}), so these are no inner products",
            )
        called = None if names is None else check_names(names, len(array))
        own = _check_self_similarity(self_similarity, len(array), called)
        return cls._make(gram=array, names=called, self_similarity=own)

    @classmethod
    def combined(
        cls, embeddings: Sequence[MeanEmbeddings], weights: Sequence[float] | None = None
    ) -> MeanEmbeddings:
        """Return embeddings of the same clients by a weighted sum of kernels, ``k = sum_l w_l k_l`` (weights 1 by default).

            G = sum_l w_l G_l,       |mu_i - mu_j|^2 = sum_l w_l |mu_i - mu_j|_l^2

        Where all are known by features, so is the sum: its features are theirs, times ``sqrt(w_l)``, side by side.

        >>> import numpy as np
        >>> histogram = MeanEmbeddings.from_counts([[30, 10], [0, 40]])
        >>> gradients = MeanEmbeddings.from_features(np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> both = MeanEmbeddings.combined([histogram, gradients], weights=[1.0, 0.25])
        >>> both
        MeanEmbeddings(2 clients, labels + 0.25 features, 4 features)
        >>> round(both.distance(0, 1) ** 2, 3)
        2.9
        """
        parts = list(embeddings) if isinstance(embeddings, Sequence) else []
        if not parts or not all(isinstance(part, MeanEmbeddings) for part in parts):
            raise InputError("embeddings", "must be a sequence of MeanEmbeddings", value=repr(embeddings))
        factors = (
            np.ones(len(parts))
            if weights is None
            else np.array([positive_number(weight, "weights") for weight in weights])
        )
        if len(factors) != len(parts):
            raise InputError("weights", f"must be one number per kernel ({len(parts)})", value=len(factors))
        first = parts[0]
        for part in parts[1:]:
            if len(part) != len(first):
                raise InputError("embeddings", f"must all have {len(first)} clients", value=len(part))
        named = {part.names for part in parts if part.names is not None}
        if len(named) > 1:
            raise InputError("embeddings", "name their clients differently", value=sorted(named))
        owns = [part.mean_self_similarity for part in parts]
        known: dict[str, Any] = {
            "names": named.pop() if named else None,
            "kernel": " + ".join(
                f"{'' if factor == 1.0 else f'{factor:g} '}{_described(part)}"
                for factor, part in zip(factors, parts, strict=True)
            ),
        }
        if all(own is not None for own in owns):
            known["self_similarity"] = factors @ np.array(owns)
        if all(part.features is not None for part in parts):
            scaled = [np.sqrt(f) * np.asarray(p.features, float) for f, p in zip(factors, parts, strict=True)]
            return cls._make(features=np.concatenate(scaled, axis=1), **known)
        gram = sum(f * p.gram for f, p in zip(factors, parts, strict=True))
        complement = sum(f * p._best for f, p in zip(factors, parts, strict=True))
        return cls._make(gram=np.asarray(gram), complement=np.asarray(complement), **known)

    # ------------------------------------------------------------------ what is known

    def __len__(self) -> int:
        known = self._features if self._features is not None else self._gram
        assert known is not None
        return len(known)

    @property
    def bandwidth(self) -> float | None:
        """Sigma of the kernel, or None if it has none or none is known."""
        return self._bandwidth

    @property
    def kernel(self) -> str | None:
        """``"rbf"``, ``"labels"``, ``"joint"``, the name of a function, a sum of those, or None if unknown."""
        return self._kernel

    @property
    def names(self) -> Names | None:
        """Names of the clients in their order, or None if they are only numbered."""
        return self._names

    @property
    def sample_counts(self) -> tuple[int, ...] | None:
        """Number of embedded samples of each client, or None if no samples were embedded."""
        return self._counts

    @property
    def mean_self_similarity(self) -> NDArray[np.float64] | None:
        """The mean of ``k(a, a)`` over the samples of each client, or None where the kernel is unknown.

        One sample's embedding varies by ``n / (n - 1) (mean k(a, a) - |mu_i|^2)`` around the mean of the distribution that
        the client's n samples come from (without bias; nothing is known of it where n = 1). It is 1 for the RBF
        kernel, and ``sum_y p_iy / pi_y`` for those that look at labels, K on average over all samples.

        >>> MeanEmbeddings.from_counts([[30, 10], [0, 40]]).mean_self_similarity
        array([2.4, 1.6])
        """
        if self._self_similarity is None and self._kernel == "rbf":
            return _read_only(np.ones(len(self)))
        return self._self_similarity

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

    def distance(self, i: int | str, j: int | str) -> float:
        """Return ``|mu_i - mu_j|``, the maximum mean discrepancy (not squared) of clients i and j: by name if they have names."""
        clients = ClientNames.of(self._names, len(self))
        i, j = clients.position(i, "i"), clients.position(j, "j")
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

    def mixture_distance(self, weights_a: PerClient, weights_b: PerClient) -> float:
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
        """Minus the gram, up to terms r_i + r_j that no distance sees, in its most accurate form."""
        if self._complement is not None:
            return self._complement
        if self._features is not None:
            vectors = np.asarray(self._features, dtype=np.float64)
            centred = vectors - vectors.mean(axis=0)
            return np.asarray(-(centred @ centred.T))
        return -self.gram

    @property
    def _inner_products(self) -> NDArray[np.float64]:
        """The gram up to terms that no distance sees, in its most accurate form; not copied where it is stored like that."""
        return self.gram if self._complement is None and self._features is None else -self._best

    def _called(self) -> list[str]:
        return [str(name) for name in self._names or range(len(self))]

    def _weights(self, weights: PerClient, argument: str) -> NDArray[np.float64]:
        w = np.asarray(by_name(weights, argument, ClientNames.of(self._names, len(self))), dtype=np.float64)
        if w.shape != (len(self),):
            raise InputError(argument, f"must hold one number per client ({len(self)}), not shape {w.shape}")
        bad = ~(np.isfinite(w) & (w >= 0))
        if bad.any():
            k = int(bad.argmax())
            raise InputError(
                argument,
                "must be a finite number of at least 0",
                client=called_by(self._names)(k),
                value=w[k],
            )
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
        return (
            self._bandwidth == other._bandwidth
            and self._names == other._names
            and self._kernel == other._kernel
            and _same(self._self_similarity, other._self_similarity)
            and _same(self._features, other._features)
            and (self._features is not None or np.array_equal(self.gram, other.gram))
        )

    def __hash__(self) -> int:
        known = self._features if self._features is not None else self._gram
        assert known is not None
        return hash((self._bandwidth, self._names, known.shape, *known[0, :4].tolist()))

    # ------------------------------------------------------------------ to look at

    def summary(self) -> dict[str, Any]:
        """Return a description of the embeddings as plain values, without the numbers themselves."""
        return {
            "clients": len(self),
            "names": None if self._names is None else list(self._names),
            "kernel": self._kernel,
            "bandwidth": None if self._bandwidth is None else float(self._bandwidth),
            "features": None if self._features is None else int(self._features.shape[1]),
        }

    def to_pandas(self) -> Any:
        """Return the distances between all clients as a DataFrame with their names on both sides (needs pandas)."""
        called = list(self._names or range(len(self)))
        return data_frame(dict(zip(called, self.distances().T, strict=True)), called)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the clients as their distances lay them out; options are those of :func:`stackfu.plot.distance_map`."""
        from ..plot import distance_map

        return distance_map(self, ax, **options)

    def _repr_html_(self) -> str:
        title, called = repr(self), self._called()
        if len(self) > MOST_ROWS:
            return card(title, note=f"distances of {len(self)} clients are not shown; see distance(i, j)")
        rows = [
            [name, *map(float, row)] for name, row in zip(called, np.round(self.distances(), 12), strict=True)
        ]
        return card(title, table(["distance", *called], rows))

    def __repr__(self) -> str:
        parts = [f"{len(self)} clients" if len(self) != 1 else "1 client"]
        if self._kernel not in (None, "rbf"):
            parts.append(str(self._kernel))
        if self._features is not None:
            parts.append(f"{self._features.shape[1]} features")
        if self._bandwidth is not None:
            parts.append(f"bandwidth={float(self._bandwidth):.6g}")
        return f"MeanEmbeddings({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (
            self._bandwidth,
            self._features,
            self._gram,
            self._complement,
            self._names,
            self._kernel,
            self._self_similarity,
            self._counts,
        )


def _restore(
    bandwidth: float | None,
    features: Array | None,
    gram: NDArray[np.float64] | None,
    complement: Array | None,
    names: Names | None = None,
    kernel: str | None = None,
    self_similarity: Array | None = None,
    counts: tuple[int, ...] | None = None,
) -> MeanEmbeddings:
    return MeanEmbeddings._make(
        bandwidth=bandwidth,
        features=features,
        gram=gram,
        complement=complement,
        names=names,
        kernel=kernel,
        self_similarity=self_similarity,
        counts=counts,
    )


def _refuse_preparing_labels(kernel: Kernel, missing: str, standardise: bool) -> None:
    if kernel == "labels":
        for name, given, value in (
            ("missing", missing != "refuse", missing),
            ("standardise", standardise, standardise),
        ):
            if given:
                raise InputError(name, "is about coordinates; the kernel looks at labels alone", value=value)


def _refuse_twice(
    kernel: Kernel, labels: Any, client: str, names: Any, missing: str, standardise: bool
) -> None:
    """Refuse to say again of prepared samples what they know."""
    if kernel == "labels":
        raise InputError("samples", "were prepared, but the kernel looks at labels alone")
    said = {
        "labels": labels is not None,
        "client": client != "client",
        "names": names is not None,
        "missing": missing != "refuse",
        "standardise": standardise,
    }
    for name, given in said.items():
        if given:
            raise InputError(name, "is part of the prepared samples; give it to prepare_samples")


def _refuse_what_a_kernel_ignores(
    kernel: Kernel, bandwidth: Any, features: Any, labels: Any, shares: Any
) -> None:
    """An argument that the kernel does not look at is a misunderstanding, not a detail."""
    shown = "a function" if callable(kernel) else f'"{kernel}"'
    if kernel in ("labels", "joint"):
        if labels is None:
            raise InputError("labels", f"are needed for the kernel {shown}")
    else:
        for argument, value in (("labels", labels), ("shares", shares)):
            if value is not None:
                problem = (
                    f'the kernel is {shown}, which does not look at labels; pass kernel="joint" or "labels"'
                )
                raise InputError(argument, problem)
    if kernel not in ("rbf", "joint"):
        if features is not None:
            raise InputError(
                "features", f"are random features of the RBF kernel; this is {shown}", value=features
            )
        if not (isinstance(bandwidth, str) and bandwidth == "median"):
            raise InputError("bandwidth", f"is one of the RBF kernel; this is {shown}", value=bandwidth)


def _backend_of(entries: Any, kernel: Kernel, backend: Backend) -> Backend:
    """Return a user's own kernel gets tensors where the samples are tensors, on the CPU too."""
    tensors = hasattr(entries, "__len__") and len(entries) > 0 and all(map(is_tensor, entries))
    return "torch" if backend == "auto" and callable(kernel) and tensors else backend


def _bandwidth_of(samples: Any, bandwidth: float | str, seed: int) -> float:
    if not isinstance(bandwidth, str):
        return check_bandwidth(bandwidth)
    if bandwidth != "median":
        raise InputError("bandwidth", 'must be "median" or a positive number', value=repr(bandwidth))
    return median_of(samples, seed=seed)


def _named_rows(rows: Any, names: Sequence[Any] | None, argument: str) -> tuple[Any, Names | None]:
    """Return rows and names of what is an array with a row per client, a dictionary or a table of them."""
    if isinstance(rows, Mapping) or is_table(rows):
        if names is not None:
            raise InputError("names", f"the {argument} name the clients already")
        named = list(rows) if isinstance(rows, Mapping) else list(rows.index)
        if not named:
            raise InputError(argument, "must hold at least one client")
        called = check_names(named, None, argument)
        return (list(rows.values()) if isinstance(rows, Mapping) else rows.to_numpy()), called
    if names is None:
        return rows, None
    return rows, check_names(names, len(rows) if hasattr(rows, "__len__") else None)


def _named_square(table: Any, names: Sequence[Any] | None) -> tuple[Any, Sequence[Any] | None]:
    """Return matrix and names of a table that has the clients on both sides, in the order of its rows."""
    rows, columns = ([str(name) for name in side] for side in (table.index, table.columns))
    if rows == columns == [str(k) for k in range(len(rows))]:
        return table.to_numpy(), names
    if names is not None:
        raise InputError("names", "the gram names the clients already")
    called = check_names(rows, None, "gram")
    if sorted(rows) != sorted(columns):
        raise InputError("gram", "its rows and its columns must name the same clients")
    return table.to_numpy()[:, [columns.index(name) for name in rows]], called


def _check_features_array(rows: Any) -> Array:
    try:
        array = np.asarray(rows)
    except ValueError:
        raise InputError("features", "must be an (M, D) array: the rows differ in length") from None
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(
            "features", f"must be an (M, D) array with a row per client, not shape {array.shape}"
        )
    return Samples.check([array], "features").arrays[0]


def _check_self_similarity(
    values: PerClient | None, count: int, names: Names | None
) -> NDArray[np.float64] | None:
    if values is None:
        return None
    try:
        array = np.array(by_name(values, "self_similarity", ClientNames.of(names, count)), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("self_similarity", "must be one number per client") from None
    if array.shape != (count,):
        raise InputError(
            "self_similarity", f"must be one number per client ({count}), not shape {array.shape}"
        )
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        k = int(bad.argmax())
        raise InputError(
            "self_similarity",
            "must be a finite number of at least 0",
            client=called_by(names)(k),
            value=array[k],
        )
    return array


def _described(part: MeanEmbeddings) -> str:
    called = part.kernel or ("gram" if part.features is None else "features")
    return f"({called})" if " " in called else called


def _squared_distances(negative_gram: NDArray[np.float64]) -> NDArray[np.float64]:
    own = np.diagonal(negative_gram)
    squared = (negative_gram - own[:, None]) + (negative_gram - own[None, :])
    return np.asarray(np.maximum(squared, 0.0))


def _same(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _read_only(array: Array | None) -> Array | None:
    if array is None:
        return None
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _symmetrise(array: NDArray[np.float64]) -> None:
    """Replace a matrix by the mean of itself and its transpose, in place."""
    for start in range(0, len(array), BLOCK):
        rows = slice(start, start + BLOCK)
        for before in range(0, start + 1, BLOCK):
            columns = slice(before, before + BLOCK)
            mean = (array[rows, columns] + array[columns, rows].T) / 2
            array[rows, columns] = mean
            array[columns, rows] = mean.T


def _factors(symmetric: NDArray[np.float64], shift: float) -> bool:
    """Return True if ``symmetric + shift I`` has a Cholesky factorisation; it is written over one triangle and removed again."""
    from scipy.linalg.lapack import dpotrf

    own = np.diagonal(symmetric).copy()
    np.fill_diagonal(symmetric, own + shift)
    with factoring(len(symmetric)):
        _, info = dpotrf(symmetric.T, lower=1, clean=0, overwrite_a=1)
    for start in range(0, len(symmetric), BLOCK):  # the lower triangle is as it was
        rows = slice(start, start + BLOCK)
        for before in range(0, start, BLOCK):
            columns = slice(before, before + BLOCK)
            symmetric[columns, rows] = symmetric[rows, columns].T
        inside = np.tril(symmetric[rows, rows], -1)
        symmetric[rows, rows] = inside + inside.T
    np.fill_diagonal(symmetric, own)
    return bool(info == 0)


def _mean_features(
    samples: Any, classes: Labels | None, pi: Array, sigma: float, features: int, seed: int
) -> Array:
    """Random features of every client's mean embedding, class by class where there are classes."""
    if classes is not None:
        return rbf.weigh_classes(rbf.class_features(samples, classes, sigma, features, seed), pi)
    return rbf.mean_features(samples, frequencies(samples.dimension, features, seed), sigma)


def _mean_products(
    samples: Any,
    classes: Labels | None,
    pi: Array,
    sigma: float,
    arithmetic: Arithmetic,
    progress: Progress | None,
) -> tuple[Array, Array]:
    """Exact inner products of all mean embeddings, and what each lacks to 1."""
    if classes is not None:
        return rbf.joint_gram(samples, classes, pi, sigma, arithmetic, progress)
    complement = rbf.mean_complements(samples, sigma, arithmetic, progress)
    return 1.0 - complement, complement


def _too_large(clients: int, instead: str) -> InputError:
    return InputError(
        "clients",
        f"a gram of so many takes {8 * clients**2 / 1e9:.1f} GB (limit: {LARGEST_GRAM} clients); {instead}",
        value=clients,
    )

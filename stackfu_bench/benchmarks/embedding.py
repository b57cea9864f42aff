"""Samples to mean embeddings."""

import os
import subprocess
import sys
import tempfile

import numpy as np

from stackfu.embedding import MeanEmbeddings, client_features, median_bandwidth


def clients(n, d, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [(0.3 * rng.normal(size=d) + rng.normal(size=(n // 10, d))).astype(dtype) for _ in range(10)]


def sigma_of(d):
    return float(np.sqrt(2.2 * d))


class Gram:
    params = ([10_000, 40_000], [16, 64, 384])
    param_names = ("n", "d")
    timeout = 300

    def setup(self, n, d):
        self.samples, self.sigma = clients(n, d), sigma_of(d)
        MeanEmbeddings.from_samples(
            [s[:20] for s in self.samples], self.sigma
        )  # compile before the clock starts

    def time_exact(self, n, d):
        MeanEmbeddings.from_samples(self.samples, self.sigma)

    def peakmem_exact(self, n, d):
        MeanEmbeddings.from_samples(self.samples, self.sigma)


class DoublePrecision:
    params = (16, 384)
    param_names = ("d",)

    def setup(self, d):
        self.samples = clients(10_000, d, np.float64)
        MeanEmbeddings.from_samples([s[:20] for s in self.samples], sigma_of(d))

    def time_exact(self, d):
        MeanEmbeddings.from_samples(self.samples, sigma_of(d))


class Features:
    params = (128, 1024)
    param_names = ("features",)

    def setup(self, features):
        self.samples = clients(40_000, 16)
        client_features(self.samples[0][:2], 6.0, features)

    def time_all_clients(self, features):
        MeanEmbeddings.from_samples(self.samples, 6.0, features)

    def time_one_client(self, features):
        client_features(self.samples[0], 6.0, features)


def labels_of(n, classes):
    rng = np.random.default_rng(1)
    return [rng.integers(classes, size=n // 10) for _ in range(10)]


class Labels:
    """Kernels that see labels; compare with ``Gram`` and ``Features`` at the same n and d."""

    params = ([10_000, 40_000], [10, 100])
    param_names = ("n", "classes")
    timeout = 300

    def setup(self, n, classes):
        self.samples, self.sigma, self.labels = clients(n, 64), sigma_of(64), labels_of(n, classes)
        self.counts = np.array([np.bincount(y, minlength=classes) for y in self.labels])
        few = slice(0, 20)
        MeanEmbeddings.from_samples(
            [s[few] for s in self.samples], self.sigma, labels=[y[few] for y in self.labels], kernel="joint"
        )

    def time_joint(self, n, classes):
        MeanEmbeddings.from_samples(self.samples, self.sigma, labels=self.labels, kernel="joint")

    def peakmem_joint(self, n, classes):
        MeanEmbeddings.from_samples(self.samples, self.sigma, labels=self.labels, kernel="joint")

    def time_joint_by_1024_features(self, n, classes):
        MeanEmbeddings.from_samples(self.samples, self.sigma, 1024, labels=self.labels, kernel="joint")

    def time_labels(self, n, classes):
        MeanEmbeddings.from_samples(None, labels=self.labels, kernel="labels")

    def time_counts(self, n, classes):
        MeanEmbeddings.from_counts(self.counts)

    def time_one_client(self, n, classes):
        client_features(self.samples[0], self.sigma, 1024, labels=self.labels[0], classes=range(classes))


class OwnKernel:
    """A kernel as a function of two arrays, here the RBF kernel in NumPy."""

    def setup(self):
        self.samples, self.sigma = clients(10_000, 16), sigma_of(16)

    def kernel(self, a, b):
        squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        return np.exp(squared / (-2 * self.sigma**2))

    def time_function(self):
        MeanEmbeddings.from_samples(self.samples, kernel=self.kernel)


class OnDevice:
    """The torch path, on the CPU and, where there is one, on a GPU."""

    params = ("cpu", "cuda")
    param_names = ("device",)

    def setup(self, device):
        try:
            import torch
        except ImportError:
            raise NotImplementedError("torch is not installed") from None
        if device == "cuda" and not torch.cuda.is_available():
            raise NotImplementedError("there is no GPU")
        self.samples = [torch.tensor(s, device=device) for s in clients(10_000, 64)]
        self.labels = labels_of(10_000, 10)

    def time_rbf(self, device):
        MeanEmbeddings.from_samples(self.samples, sigma_of(64), backend="torch")

    def time_joint(self, device):
        MeanEmbeddings.from_samples(
            self.samples, sigma_of(64), labels=self.labels, kernel="joint", backend="torch"
        )


class Median:
    params = ("exact", "sampled")
    param_names = ("method",)

    def setup(self, method):
        self.samples = clients(10_000, 16)
        median_bandwidth([s[:20] for s in self.samples], method)

    def time_median(self, method):
        median_bandwidth(self.samples, method)


class Accuracy:
    """Largest error of any entry of the gram, and of any squared distance, against coordinate differences."""

    params = (["float32", "float64"], [16, 384])
    param_names = ("dtype", "d")
    unit = "absolute error"

    def setup(self, dtype, d):
        self.samples, self.sigma = clients(1_000, d, np.dtype(dtype)), sigma_of(d)
        gram = np.empty((10, 10))
        wide = [s.astype(np.float64) for s in self.samples]
        for i, a in enumerate(wide):
            for j, b in enumerate(wide):
                squared = ((a[:, None] - b[None]) ** 2).sum(axis=2)
                gram[i, j] = np.exp(-squared / (2 * self.sigma**2)).mean()
        own = np.diagonal(gram)
        self.gram, self.squared = gram, own[:, None] + own[None] - 2 * gram

    def track_gram_error(self, dtype, d):
        return float(np.abs(MeanEmbeddings.from_samples(self.samples, self.sigma).gram - self.gram).max())

    def track_squared_distance_error(self, dtype, d):
        squared = MeanEmbeddings.from_samples(self.samples, self.sigma).distances() ** 2
        return float(np.abs(squared - self.squared).max())


FIRST_CALL = """
import time, numpy as np
from stackfu.embedding import MeanEmbeddings
x = [np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)]
start = time.perf_counter()
MeanEmbeddings.from_samples(x, bandwidth=1.0)
print(time.perf_counter() - start)
"""


class Start:
    unit = "s"
    timeout = 300

    def setup(self):
        self.cache = tempfile.TemporaryDirectory()
        self.environment = {**os.environ, "NUMBA_CACHE_DIR": self.cache.name}

    def teardown(self):
        self.cache.cleanup()

    def _first_call(self):
        command = [sys.executable, "-c", FIRST_CALL]
        return float(subprocess.run(command, check=True, capture_output=True, env=self.environment).stdout)

    def track_first_call_that_compiles(self):
        return self._first_call()

    def track_first_call_from_the_cache_on_disk(self):
        self._first_call()
        return self._first_call()

    def time_import(self):
        subprocess.run([sys.executable, "-c", "import stackfu.embedding"], check=True)


Start.track_first_call_that_compiles.unit = "s"
Start.track_first_call_from_the_cache_on_disk.unit = "s"

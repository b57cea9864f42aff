"""Mean embeddings of 10 clients: stackfu, scikit-learn, torch, KeOps and the bare matrix product.

Every peer gets what favours it: the upper triangle of blocks only, samples centred and scaled outside the
clock where that is its own preparation, all cores, and a tile size that suits its caches.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from stackfu.embedding import MeanEmbeddings
from stackfu_bench.peers.table import Row, busy, fitted_exponent, interleaved

CLIENTS = 10
TARGETS = {16: 1.5, 64: 1.2, 384: 1.0}
FLOOR = 1 / 1.3


def clients(n: int, d: int, seed: int = 0) -> list[np.ndarray]:
    """Ten normal clouds around different centres."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=0.3, size=(CLIENTS, 1, d))
    return list((centres + rng.normal(size=(CLIENTS, n // CLIENTS, d))).astype(np.float32))


def sigma_of(d: int) -> float:
    return float(np.sqrt(2.2 * d))


def stackfu_gram(samples: list[np.ndarray], sigma: float) -> np.ndarray:
    return MeanEmbeddings.from_samples(samples, bandwidth=sigma).gram


def sklearn_gram(samples: list[np.ndarray], sigma: float) -> np.ndarray:
    from sklearn.metrics.pairwise import rbf_kernel

    return _by_blocks(
        samples, lambda a, b: float(rbf_kernel(a, b, gamma=0.5 / sigma**2).mean(dtype=np.float64))
    )


def torch_gram(samples: list[np.ndarray], sigma: float, tile: int = 1024) -> np.ndarray:
    """Tiled addmm, exp in place, sum."""
    import torch

    x = [torch.from_numpy(s) / sigma for s in samples]
    halves = [(-0.5 * (s * s).sum(1)) for s in x]

    def total(i: int, j: int) -> float:
        result = 0.0
        for a in range(0, len(x[i]), tile):
            for b in range(0, len(x[j]), tile):
                k = torch.addmm(halves[j][b : b + tile], x[i][a : a + tile], x[j][b : b + tile].T)
                k.add_(halves[i][a : a + tile, None]).exp_()
                result += float(k.sum())
        return result / (len(x[i]) * len(x[j]))

    return _upper(len(x), total)


def torch_tuned_gram(samples: list[np.ndarray], sigma: float, tile: int = 512) -> np.ndarray:
    """The norms as two more coordinates, so that one product into a cached tile is the exponent."""
    import torch

    left, right = [], []
    for s in samples:
        x = torch.from_numpy(s) / sigma
        half, one = -0.5 * (x * x).sum(1, keepdim=True), torch.ones(len(x), 1)
        left.append(torch.cat([x, half, one], 1))
        right.append(torch.cat([x, one, half], 1))
    space = torch.empty(tile * tile)

    def total(i: int, j: int) -> float:
        result = 0.0
        for a in range(0, len(left[i]), tile):
            rows = left[i][a : a + tile]
            for b in range(0, len(right[j]), tile):
                columns = right[j][b : b + tile]
                k = space[: len(rows) * len(columns)].view(len(rows), len(columns))
                torch.mm(rows, columns.T, out=k)
                result += float(k.exp_().sum())
        return result / (len(left[i]) * len(right[j]))

    return _upper(len(left), total)


def keops_gram(samples: list[np.ndarray], sigma: float) -> np.ndarray:
    import torch
    from pykeops.torch import LazyTensor

    x = [torch.from_numpy(s) / sigma for s in samples]

    def total(i: int, j: int) -> float:
        a, b = LazyTensor(x[i][:, None, :]), LazyTensor(x[j][None, :, :])
        sums = (-((a - b) ** 2).sum(-1) / 2).exp().sum(1)
        return float(sums.sum(dtype=torch.float64)) / (len(x[i]) * len(x[j]))

    return _upper(len(x), total)


def bare_product(samples: list[np.ndarray], sigma: float, tile: int = 1024) -> None:
    """The matrix product of the same blocks and nothing else: the floor of all that goes through BLAS."""
    import torch

    x = [torch.from_numpy(s) for s in samples]
    space = torch.empty(tile * tile)
    for i in range(len(x)):
        for j in range(i, len(x)):
            for a in range(0, len(x[i]), tile):
                for b in range(0, len(x[j]), tile):
                    rows, columns = x[i][a : a + tile], x[j][b : b + tile]
                    torch.mm(
                        rows, columns.T, out=space[: len(rows) * len(columns)].view(len(rows), len(columns))
                    )


def _upper(m: int, total: Callable[[int, int], float]) -> np.ndarray:
    gram = np.empty((m, m))
    for i in range(m):
        for j in range(i, m):
            gram[i, j] = gram[j, i] = total(i, j)
    return gram


def _by_blocks(samples: list[np.ndarray], mean: Callable[[np.ndarray, np.ndarray], float]) -> np.ndarray:
    return _upper(len(samples), lambda i, j: mean(samples[i], samples[j]))


PEERS: dict[str, Callable[[list[np.ndarray], float], np.ndarray]] = {
    "torch, addmm + exp_ + sum": torch_gram,
    "torch, tuned": torch_tuned_gram,
    "scikit-learn rbf_kernel": sklearn_gram,
    "KeOps": keops_gram,
}


def peers_that_work() -> dict[str, Callable[[list[np.ndarray], float], np.ndarray]]:
    """Peers that are installed and give the right answer on a small case."""
    samples = clients(200, 3)
    expected = stackfu_gram(samples, 2.0)
    found = {}
    for name, gram in PEERS.items():
        with contextlib.suppress(ImportError):
            if np.abs(gram(samples, 2.0) - expected).max() > 1e-5:
                raise AssertionError(f"{name} disagrees")
            found[name] = gram
    return found


def peak_memory(n: int, d: int) -> float:
    """Peak resident memory in MB beyond libraries, compiled kernels and input, in a fresh process."""
    code = f"from stackfu_bench.peers.embedding import _peak; _peak({n}, {d})"
    return float(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    )


def _peak(n: int, d: int) -> None:
    stackfu_gram(clients(100, d), sigma_of(d))  # libraries, kernels and threads are in memory now
    samples = [np.ascontiguousarray(s) for s in clients(n, d)]
    with open("/proc/self/clear_refs", "w") as file:  # start the peak afresh
        file.write("5")
    before = _resident()
    stackfu_gram(samples, sigma_of(d))
    status = Path("/proc/self/status").read_text().splitlines()
    peak = int(next(x for x in status if x.startswith("VmHWM")).split()[1]) / 1024
    print(peak - before)


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def run(quick: bool) -> list[Row]:
    """Processor time on one core, growth with n, wall time on all cores, and peak memory.

    Wall time is left out on a machine that is busy with something else: threads that wait for each other at
    barriers, as the peers' do, suffer from that more than independent tiles, and the ratios would flatter us.
    """
    peers = peers_that_work()
    rows: list[Row] = []
    with one_core():
        for d in (16, 64, 384):
            rows += _compare(peers, 4_000 if quick else 10_000, d, seconds=8.0 if quick else 30.0, alone=True)
        rows += _growth(quick)
    if busy():
        print("the machine is busy: wall times on all cores are left out", file=sys.stderr)
    else:
        for n in (4_000,) if quick else (10_000, 40_000):
            for d in (16, 64, 384):
                rows += _compare(peers, n, d, seconds=8.0 if quick else 40.0)
    if not quick and Path("/proc/self/clear_refs").exists():
        for d in (16, 384):
            task = f"peak memory beyond the input, n=40000, d={d}"
            rows.append(Row(task, "limit", peak_memory(40_000, d), 64.0, "MB", 1.0))
    return rows


def _compare(
    peers: dict[str, Callable[[list[np.ndarray], float], np.ndarray]],
    n: int,
    d: int,
    seconds: float,
    alone: bool = False,
) -> list[Row]:
    samples, sigma = clients(n, d), sigma_of(d)
    # scikit-learn and KeOps are an order of magnitude slower; where that takes minutes they are left out
    few = {k: f for k, f in peers.items() if "torch" in k or n * n * d < 1e10}
    calls = {"stackfu": stackfu_gram, **few, "bare product": bare_product}
    clock = time.process_time if alone else time.perf_counter
    tasks = {name: partial(call, samples, sigma) for name, call in calls.items()}
    best = interleaved(tasks, repeats=25, seconds=seconds, clock=clock)
    ours, floor = best.pop("stackfu"), best.pop("bare product")
    fastest = min(best, key=lambda k: best[k])
    task = f"gram, n={n}, d={d}" + (", one core" if alone else "")
    print(
        f"{task}: {ours:.4g} s, {fastest} {best[fastest]:.4g} s, bare {floor:.4g} s",
        file=sys.stderr,
        flush=True,
    )
    rows = [
        Row(task, name, ours, theirs, "s", TARGETS[d] if name == fastest else None)
        for name, theirs in best.items()
    ]
    return [*rows, Row(task, "bare product (torch.mm)", ours, floor, "s", FLOOR if d == 384 else None)]


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Run all peers on one thread, so that processor time is comparable under load."""
    import torch

    threads, numba = torch.get_num_threads(), os.environ.get("NUMBA_NUM_THREADS")
    torch.set_num_threads(1)
    os.environ["NUMBA_NUM_THREADS"] = "1"
    try:
        with threadpool_limits(1):  # BLAS of scikit-learn, OpenMP of KeOps
            yield
    finally:
        torch.set_num_threads(threads)
        os.environ.pop("NUMBA_NUM_THREADS")
        if numba is not None:
            os.environ["NUMBA_NUM_THREADS"] = numba


def _growth(quick: bool) -> list[Row]:
    """Fitted exponents of time against n: 2 for the exact gram, 1 for features."""
    rows = []
    for name, features, expected, sizes in (
        ("exact", None, 2.0, (5_000, 10_000, 20_000)),
        ("features=512", 512, 1.0, (20_000, 40_000, 80_000)),
    ):
        sizes = tuple(s // 4 for s in sizes) if quick else sizes
        tasks = {
            str(n): partial(MeanEmbeddings.from_samples, clients(n, 16), bandwidth=6.0, features=features)
            for n in sizes
        }
        best = interleaved(tasks, repeats=9, clock=time.process_time)
        exponent = fitted_exponent(sizes, [best[str(n)] for n in sizes])
        rows.append(Row(f"time grows as n^p, {name}, d=16", "theory", exponent, expected, "(p)"))
    return rows

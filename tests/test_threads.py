"""Many rows are factored by one thread: several end the process with a segmentation fault, see :mod:`stackfu.threads`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg.lapack
from threadpoolctl import threadpool_info, threadpool_limits

from stackfu import threads
from stackfu.embedding import mean_embeddings
from stackfu.judging import inner_products


def most_threads():
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


@pytest.fixture
def seen(monkeypatch):
    """Threads that every factorisation had."""
    found, factor = [], scipy.linalg.lapack.dpotrf

    def looked_at(*arguments, **options):
        found.append(most_threads())
        return factor(*arguments, **options)

    monkeypatch.setattr(scipy.linalg.lapack, "dpotrf", looked_at)
    with threadpool_limits(limits=2, user_api="blas"):
        if most_threads() < 2:
            pytest.skip("BLAS has one thread here")
        yield found


@pytest.mark.parametrize(("most", "expected"), [(5, 1), (100, 2)])
def test_the_judge_factors_many_rows_by_one_thread(monkeypatch, seen, most, expected):
    monkeypatch.setattr(threads, "MOST_TOGETHER", most)
    monkeypatch.setattr(inner_products, "ALL_PAIRS", 3)
    assert inner_products._factors(np.eye(8), 0.0)
    assert seen == [expected]


def test_inner_products_of_many_clients_are_factored_by_one_thread(monkeypatch, seen):
    monkeypatch.setattr(threads, "MOST_TOGETHER", 5)
    assert mean_embeddings._factors(np.eye(8), 0.1)
    assert seen == [1]

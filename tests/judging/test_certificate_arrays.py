"""Arrays of a certificate are read whole: nothing is left over, and no index is rounded."""

import numpy as np
import pytest

from stackfu.demo import digits_game
from stackfu.results.certificate import LeaderCertificate


@pytest.fixture(scope="module")
def record():
    return digits_game().solve(0.05, progress=False).certificate.to_record()


def test_an_honest_certificate_is_read_as_it_was_written(record):
    again = LeaderCertificate.from_record(record).to_record()
    assert all(np.array_equal(again[name], record[name]) for name in record)


@pytest.mark.parametrize("name", ["node_splits", "node_clients"])
def test_numbers_that_no_node_uses_are_refused(record, name):
    with pytest.raises(ValueError, match="more numbers than nodes"):
        LeaderCertificate.from_record({**record, name: np.append(record[name], 0)})


@pytest.mark.parametrize("name", ["row_clients", "row_ends", "centre_clients", "leaf_steps", "node_kinds"])
def test_an_index_that_is_no_whole_number_is_refused(record, name):
    with pytest.raises(ValueError, match="no whole number"):
        LeaderCertificate.from_record({**record, name: np.asarray(record[name], dtype=np.float64) + 0.5})

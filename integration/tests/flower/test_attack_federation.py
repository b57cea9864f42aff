"""A short version of the campaign: random dishonest steps against an oracle that knows what happened."""

from __future__ import annotations

import pytest
from attack_federation import WRONG, campaign


@pytest.mark.parametrize("seed", [7, 101, 2026])
def test_random_attacks_are_never_a_false_fit_and_blame_nobody_honest(seed):
    record = campaign(steps=40, first_seed=seed)
    assert record["wrong"] == []
    assert not set(WRONG) & set(record["counts"])

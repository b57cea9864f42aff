"""Hypothesis strategies for property tests about games, mechanisms and unlearning methods.

Every strategy *builds* what it draws: Gram matrices from drawn points, games from drawn reluctances,
payments from the thresholds of a drawn profile. Nothing is filtered away, so runs are fast and examples
shrink well. All of them seek edges on purpose:

- clients with identical or nearly identical data (distances down to 1e-8), collinear clients, a client
  inside the convex hull of the others;
- tiny and huge data sets side by side (shares down to about 1e-7);
- costs far below, at and far above what drift is worth, equal or unequal per share of data;
- payments of exactly 0, exactly the cost, exactly a threshold, and one rounding error away from it;
- participation and caps of exactly 0 and 1, and within 1e-9 of them;
- a sampling constant that is a hair, comparable to drift, or dominant.

Install with ``pip install 'stackfu[testing]'``. A property of your own mechanism then reads:

>>> import numpy as np
>>> from hypothesis import given, settings
>>> from stackfu import testing
>>> @settings(max_examples=20, deadline=None, database=None)
... @given(testing.plays())
... def nobody_is_paid_for_nothing(play):
...     game, payments, x = play
...     utilities = game.client_utilities(payments, x)
...     assert np.all(utilities <= payments * x)
>>> nobody_is_paid_for_nothing()

A failing example is printed as code that rebuilds it (:func:`as_code`). What mechanisms should do is one line:
:func:`check_mechanism`.
"""

from .mechanism_checks import (
    PROPERTIES,
    assert_individually_rational,
    assert_retains,
    assert_unmanipulable,
    assert_within_budget,
    check_mechanism,
)
from .rebuilding import as_code
from .strategies import (
    Play,
    Report,
    assert_own_report_does_not_matter,
    budgets,
    caps,
    embeddings,
    games,
    gram_matrices,
    misreports,
    mixtures,
    participations,
    payments,
    plays,
    points,
)

__all__ = [
    "PROPERTIES",
    "Play",
    "Report",
    "as_code",
    "assert_individually_rational",
    "assert_own_report_does_not_matter",
    "assert_retains",
    "assert_unmanipulable",
    "assert_within_budget",
    "budgets",
    "caps",
    "check_mechanism",
    "embeddings",
    "games",
    "gram_matrices",
    "misreports",
    "mixtures",
    "participations",
    "payments",
    "plays",
    "points",
]

"""What all tests of the package share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Machine code in all tests, compiled when it is first called, as in the core's tests
os.environ.setdefault("STACKFU_COMPILE", "now")

# a busy machine is no failure; all else stays as the core's tests set it where both run
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    # typer still imports names that click has deprecated
    config.addinivalue_line(
        "filterwarnings", "ignore:.*deprecated and will be removed in Click:DeprecationWarning"
    )

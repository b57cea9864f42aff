"""Shared by all tests of the package."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# a busy machine is no failure; all else stays as the core's tests set it where both run
settings.register_profile(
    "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    # typer still imports names that click has deprecated
    config.addinivalue_line(
        "filterwarnings", "ignore:.*deprecated and will be removed in Click:DeprecationWarning"
    )

"""What all tests of the package share."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    # typer still imports names that click has deprecated
    config.addinivalue_line(
        "filterwarnings", "ignore:.*deprecated and will be removed in Click:DeprecationWarning"
    )

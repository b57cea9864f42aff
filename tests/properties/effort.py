"""Fewer examples for the tests that solve something large."""

from hypothesis import settings


def share(part: float) -> settings:
    """The profile's number of examples, times ``part``."""
    return settings(max_examples=max(4, int(settings.default.max_examples * part)))

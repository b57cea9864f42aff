"""The former name of :mod:`stackfu.results`."""

from .results import *  # noqa: F403
from .results import __all__ as __all__

"""The former name of :mod:`stackfu.judging.proof`."""

from ..judging.proof import *  # noqa: F403
from ..judging.proof import __all__ as __all__

"""The former name of :mod:`stackfu.judging.diagnostics`."""

from ..judging.diagnostics import *  # noqa: F403
from ..judging.diagnostics import __all__ as __all__

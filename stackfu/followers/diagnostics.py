"""The former name of :mod:`stackfu.judging.diagnostics`: users import from here, the package itself does not."""

from ..judging.diagnostics import *  # noqa: F403
from ..judging.diagnostics import __all__ as __all__

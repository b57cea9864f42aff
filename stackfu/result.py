"""The former name of :mod:`stackfu.results`: users import from here, the package itself does not."""

from .results import *  # noqa: F403
from .results import __all__ as __all__

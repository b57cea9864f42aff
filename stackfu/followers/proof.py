"""The former name of :mod:`stackfu.judging.proof`: users import from here, the package itself does not."""

from ..judging.proof import *  # noqa: F403
from ..judging.proof import __all__ as __all__

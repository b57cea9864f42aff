"""The former name of :mod:`stackfu.model.price`: users import from here, the package itself does not."""

from ..model.price import *  # noqa: F403
from ..model.price import __all__ as __all__

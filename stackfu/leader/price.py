"""The former name of :mod:`stackfu.model.price`."""

from ..model.price import *  # noqa: F403
from ..model.price import __all__ as __all__

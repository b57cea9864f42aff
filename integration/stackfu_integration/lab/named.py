"""Objects by their address, ``module:function``, as the command line and worker processes name them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stackfu.errors import InputError

__all__ = ["is_address", "load_address"]


def is_address(name: str) -> bool:
    """Return True if a name is an address, ``module:function``.

    >>> is_address("my_lab:network"), is_address("resnet18"), is_address("C:\\\\models\\\\bert")
    (True, False, False)
    """
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_address(name: str, option: str) -> Callable[..., Any]:
    """Return the function at an address; modules in the working directory are found too.

    >>> load_address("math:sqrt", "--model")(4.0)
    2.0
    """
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # as `python my_lab.py` would find it
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise InputError(option, f"cannot be imported ({error})", value=name) from error
    except AttributeError:
        raise InputError(option, f"names no function of the module {module}", value=name) from None
    if not callable(found):
        raise InputError(option, "must name a function", value=name)
    return found  # type: ignore[no-any-return]

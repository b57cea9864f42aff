"""Every error that stackfu raises on purpose, and the one class of its warnings.

All derive from :class:`StackfuError`. Bad input raises :class:`InputError` before any work starts; its message
names the argument, the client (if one is to blame) and the value.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = [
    "ConvergenceError",
    "FileFormatError",
    "InfeasibleError",
    "InputError",
    "NoEquilibriumError",
    "NotDifferentiableError",
    "NotInducibleError",
    "StackfuError",
    "StackfuWarning",
    "VerificationError",
    "warn",
    "without_warnings",
]


class StackfuError(Exception):
    """Base of all errors of this library."""


class InputError(StackfuError, ValueError):
    """An argument is not acceptable; nothing was computed. A client is identified by its name, or by its number without names.

    >>> raise InputError("sizes", "must be positive", client=3, value=-2)
    Traceback (most recent call last):
    stackfu.errors.InputError: sizes[client 3] = -2: must be positive
    """

    def __init__(
        self, argument: str, problem: str, *, client: int | str | None = None, value: object = None
    ) -> None:
        where = argument if client is None else f"{argument}[client {client}]"
        what = "" if value is None else f" = {value}"
        super().__init__(f"{where}{what}: {problem}")
        self.argument, self.problem, self.client, self.value = argument, problem, client, value

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_input_error, (self.argument, self.problem, self.client, self.value)


def _rebuild_input_error(argument: str, problem: str, client: int | str | None, value: object) -> InputError:
    return InputError(argument, problem, client=client, value=value)


class InfeasibleError(StackfuError):
    """No payments can reach the request (a minimum above the clients' total data, say)."""


class NotInducibleError(InfeasibleError):
    """No non-negative payments make this participation profile an equilibrium.

    ``clients`` are the client numbers that would take part more than the profile says even when paid nothing.
    """

    def __init__(self, message: str, clients: Sequence[int]) -> None:
        super().__init__(message)
        self.clients = tuple(clients)

    def __reduce__(self) -> tuple[object, ...]:
        return NotInducibleError, (str(self), self.clients)


class NoEquilibriumError(StackfuError):
    """The clients' game has no equilibrium other than the collapse to zero participation."""


class NotDifferentiableError(StackfuError):
    """A result has no derivative in the way that was asked for; ``clients`` are the numbers of the clients that prevent it.

    Examples are a client exactly at the payment where it begins to take part, and a set of clients that can trade.
    """

    def __init__(self, message: str, clients: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.clients = tuple(clients)

    def __reduce__(self) -> tuple[object, ...]:
        return NotDifferentiableError, (str(self), self.clients)


class ConvergenceError(StackfuError):
    """A solver stopped without an answer it can stand behind."""


class VerificationError(StackfuError):
    """A result does not survive being recomputed from its game."""


class FileFormatError(StackfuError):
    """A file is broken, is not a stackfu file, or was written by a newer version."""


class StackfuWarning(UserWarning):
    """Warning about an answer that is correct but may not be what the user meant.

    Examples are a plan that uses less than one sample per participant and a budget in another unit than the costs. All warnings of
    the library have this class, so that one filter silences them or turns them into errors.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", StackfuWarning)
    """


def warn(message: str) -> None:
    """Issue a :class:`StackfuWarning` that points at the line of the user's program which called the library.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("the budget exceeds the price of full participation")
    >>> caught[0].category.__name__
    'StackfuWarning'
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "stackfu":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, StackfuWarning, stacklevel=level)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep warnings of the library from being shown for games that it solves on its own account.

    Examples are lines that a page compares with and the search for the largest budget of a slider: the user did not ask for these
    answers one by one, and hears of them in the place where they are shown.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StackfuWarning)
        yield

"""The command line: ``stackfu demo | embed | solve | cheapest | cascade | equilibria | frontier | calibrate | verify | ...``.

Tables for people by default, ``--json`` for programs (one JSON document on standard output), errors as one
sentence on standard error, and exit codes that scripts can rely on (:class:`ExitCode`).
"""

from __future__ import annotations

import enum
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["ExitCode", "main"]


class ExitCode(enum.IntEnum):
    """Exit codes of ``stackfu``."""

    OK = 0  #: done, and what is claimed of an answer is proved
    NOT_PROVED = (
        1  #: a valid answer without the proof, a check that failed, or no answer where there may be one
    )
    BAD_INPUT = 2  #: usage, file or argument; nothing was computed
    INFEASIBLE = 3  #: no payments or no equilibrium can do what was asked
    INTERNAL = 70  #: a defect of stackfu itself
    INTERRUPTED = 130  #: Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    import typer

    from ..errors import ConvergenceError, InfeasibleError, InputError, NoEquilibriumError, StackfuError
    from .commands import app
    from .wording import as_typed, numbers_told, told

    # older versions of typer build on click, newer ones carry a copy: its errors are found through typer
    usage_error: Any = typer.BadParameter.__mro__[1]
    cli_error: Any = typer.BadParameter.__mro__[2]

    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _notes(given):
            code = app(args=arguments, prog_name="stackfu", standalone_mode=False)
        sys.stdout.flush()
        if not given:  # click before 8.2 takes the help of the bare command for a success
            return ExitCode.BAD_INPUT
        return int(code or ExitCode.OK)
    except cli_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the bare command; its help has been shown
            return ExitCode.BAD_INPUT
        message = " ".join(error.format_message().split()).rstrip(".")
        message = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)  # click and typer may both say it
        message = numbers_told(message)
        if isinstance(error, usage_error):
            message += f" (see {error.ctx.command_path if error.ctx else 'stackfu'} --help)"
        return _complain(message, ExitCode.BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (InfeasibleError, NoEquilibriumError) as error:
        return _complain(as_typed(str(error), given), ExitCode.INFEASIBLE)
    except ConvergenceError as error:  # looked for, not found, and not proved to be impossible
        return _complain(as_typed(str(error), given), ExitCode.NOT_PROVED)
    except InputError as error:
        return _complain(told(error, given), ExitCode.BAD_INPUT)
    except (StackfuError, OSError) as error:
        return _complain(str(error), ExitCode.BAD_INPUT)
    except Exception as error:
        if os.environ.get("STACKFU_TRACEBACK"):
            raise
        return _complain(
            f"{type(error).__name__}: {error} (a defect of stackfu; set STACKFU_TRACEBACK=1 to see where)",
            ExitCode.INTERNAL,
        )


@contextmanager
def _notes(given: Sequence[str]) -> Iterator[None]:
    """Write the library's warnings as notes, each once; tables say of themselves that losses are a guess."""
    from ..errors import StackfuWarning
    from .answers import say_note
    from .wording import as_typed

    said: set[str] = set()

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, StackfuWarning):
            return others(message, category, *where, **more)
        text = as_typed(str(message), given)
        if text not in said and not text.startswith("A guess:"):
            said.add(text)
            say_note(text)
        return None

    with warnings.catch_warnings():
        others = warnings.showwarning
        warnings.simplefilter("always", StackfuWarning)
        warnings.showwarning = show
        yield


def _complain(message: str, code: ExitCode) -> int:
    print(f"stackfu: {' '.join(message.split())}", file=sys.stderr)
    return code

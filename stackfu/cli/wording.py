"""Errors about arguments in the words of the command line: ``min_total=...`` is typed ``--min-total``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import InputError

__all__ = ["NUMBERS", "as_typed", "numbers_told", "told"]

#: Advice on writing numbers.
NUMBERS = "write digits only, with a point for decimals: 12000, 0.5"
#: Message of the command line's parser about a word that is no number.
_NO_NUMBER = re.compile(r"('[^']*'|\"[^\"]*\") is not a valid (float|integer)( range)?")

#: A keyword argument in a sentence, with or without a value: ``offers="capped"``, ``finite_sample=True``, ``min_total=...``.
_KEYWORD = re.compile(r'\b([a-z]\w*)=(?:"(?P<text>[^"]*)"|(?P<word><\w+>|True|\.\.\.)?)')
#: An argument by its name alone.
_NAME = re.compile(r"(?<![\w-])[a-z]+(?:_[a-z]+)+(?![\w=])")
_OPTIONS = re.compile(r'is not an option of method "(?P<method>[^"]*)"; those are (?P<names>.*)')
#: Python calls and their command lines.
_CALLS = {"equilibria()": "stackfu equilibria"}


def told(error: InputError, given: Sequence[str]) -> str:
    """Return a complaint about an argument, under the name of the option that it is typed with."""
    known = _options(given)
    option = f"--{error.argument.replace('_', '-')}"
    value = error.value
    if isinstance(value, tuple):  # several clients by number: what was typed names them
        value = _value_of(option, given) or value
    name = option if option in known else error.argument
    problem = as_typed(error.problem, given)
    return str(InputError(name, problem, client=error.client, value=value))


def as_typed(text: str, given: Sequence[str] = ()) -> str:
    """The sentence with options in place of keyword arguments; those the command lacks go through ``--option`` if it has that.

    >>> import stackfu.cli.commands
    >>> as_typed('ask for offers="capped", min_total=... or min_samples=...', ["solve", "game.json"])
    'ask for --offers capped, --min-total or --min-samples'
    >>> as_typed("equilibria() does that")
    'stackfu equilibria does that'
    """
    known = _options(given)
    for call, command in _CALLS.items():
        text = text.replace(call, command)
    if found := _OPTIONS.search(text):
        names = [_typed(name, "=...", known) for name in found["names"].split(", ")]
        listed = ", ".join(name for name in names if name) or "none"
        text = f'{text[: found.start()]}is not an option of method "{found["method"]}"; those are {listed}'

    def option(match: re.Match[str]) -> str:
        word = match["text"] if match["text"] is not None else match["word"] or ""
        shown = "" if word in ("True", "...", "") else f" {word.strip('<>').upper() if '<' in word else word}"
        name = f"--{match[1].replace('_', '-')}"
        if name in known:
            return name + shown
        return f"--option {match[0]}" if "--option" in known else match[0]

    def bare(match: re.Match[str]) -> str:
        name = f"--{match[0].replace('_', '-')}"
        return name if name in known else match[0]

    return _NAME.sub(bare, _KEYWORD.sub(option, text)) if known and not found else text


def numbers_told(text: str) -> str:
    """Say how numbers are typed where the parser refused one.

    >>> numbers_told("Invalid value for '--budget': '12,000' is not a valid float")
    "Invalid value for '--budget': '12,000' is not a number; write digits only, with a point for decimals: 12000, 0.5"
    >>> numbers_told("Invalid value for '--plan': '2.5' is not a valid integer")
    "Invalid value for '--plan': '2.5' is not a whole number; write digits only: 12000"
    """

    def better(match: re.Match[str]) -> str:
        if match[2] == "float":
            return f"{match[1]} is not a number; {NUMBERS}"
        return f"{match[1]} is not a whole number; write digits only: 12000"

    return _NO_NUMBER.sub(better, text)


def _typed(name: str, value: str, known: frozenset[str]) -> str:
    """Return the command line form of a mechanism's option; empty if it has none."""
    option = f"--{name.replace('_', '-')}"
    if option in known:
        return option
    return f"--option {name}{value}" if "--option" in known and name not in _OF_PYTHON else ""


#: Options with values that cannot be typed.
_OF_PYTHON = frozenset({"callback", "progress"})


def _options(given: Sequence[str]) -> frozenset[str]:
    """Return the options of the command that was typed."""
    if not given:
        return frozenset()
    import typer

    from .app import app

    found = getattr(typer.main.get_command(app), "commands", {}).get(given[0])
    return frozenset(word for parameter in getattr(found, "params", ()) for word in parameter.opts)


def _value_of(option: str, given: Sequence[str]) -> str | None:
    """Return the typed value of an option."""
    for i, word in enumerate(given):
        if word == option and i + 1 < len(given):
            return given[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None

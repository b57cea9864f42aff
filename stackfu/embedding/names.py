"""Clients by name: one rule for every argument that names clients or holds a value per client.

Clients have names where they came with some (a client column, a dictionary, an index, ``names=``). There a number means the name:
``removed=[1]`` removes the client called 1, wherever it stands. Clients without names are numbered from 0, and a number is that
position. A key that could mean two clients is refused with both readings. Values in a dictionary or in a pandas series have names;
those in a list or an array are in the order of the clients. pandas is never imported; a series is recognised by what it can do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.errors import InputError, warn

__all__ = [
    "ClientNames",
    "PerClient",
    "Position",
    "Positions",
    "by_name",
    "check_names",
    "listed",
    "name_of",
    "natural_order",
    "refuse_names",
    "rows_by_name",
    "visible",
]

#: One number per client: in their order, or by name.
PerClient: TypeAlias = ArrayLike | Mapping[Any, float]

#: Text that is a number as it is written without leading zeros: "1" and "1.0" are the same client, "01" is another one.
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?")
#: Letters of the Greek and Cyrillic alphabets that look like letters of the Latin one, and those.
_LOOKS_LATIN = str.maketrans(
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"
    "\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425"
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u0501\u051b\u051d",
    "ABEZHIKMNOPTYXoSIJABEKMHOPCTXaeopcyxsijhdqw",
)
#: Variants of a character that look like it: wide, ligatures, fonts, hyphens and blanks that do not break.
_VARIANTS = ("<wide>", "<narrow>", "<compat>", "<font>", "<noBreak>")
#: Controls that change the order in which text is shown: a name with one shows other letters than it holds.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Errors list at most this many names.
MOST_LISTED = 12


class Position(int):
    """The position of a client among all original clients, as results give it.

    Arguments take it as that position also where clients have names, so that ``game.replace(removed=[*game.removed, "York"])``
    removes the right clients even if they are called 3, 1 and 2.
    """

    __slots__ = ()


class Positions(NDArray[np.intp]):
    """An array of positions that gives each as a :class:`Position`, so that ``removed=game.remaining[:2]`` removes these clients.

    What is computed from it is an array of plain numbers.
    """

    def __iter__(self) -> Iterator[Any]:
        return map(Position, np.asarray(self)) if self.ndim == 1 else iter(np.asarray(self))

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Position(found) if isinstance(found, np.integer) else found

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> Any:
        return _positions_of, (np.array(self),)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (np.asarray(one) if isinstance(one, Positions) else one for one in inputs)
        return getattr(ufunc, method)(*plain, **options)


def _positions_of(values: NDArray[np.intp]) -> Positions:
    return values.view(Positions)


#: Floating point tells neighbouring whole numbers apart below this.
EXACT = 2.0**53


def name_of(value: Any, argument: str = "names") -> str:
    """Return the name that a value gives a client: 3, 3.0 and "3" name the client "3"; white space around a name is no part of it.

    >>> name_of(3), name_of(3.0), name_of(" York")
    ('3', '3', 'York')

    Raises
    ------
    InputError
        If the value is missing (None, NaN), empty, or a float too large to tell neighbouring whole numbers apart.
    """
    if isinstance(value, str):
        name = str.__str__(value).strip()
        if not visible(name):
            raise InputError(argument, "is empty", value=repr(str(value)))
        if any(c in _REORDERING or (unicodedata.category(c) == "Cc" and not c.isspace()) for c in name):
            raise InputError(
                argument,
                "holds control characters, with which a terminal shows another name",
                value=ascii(str(value)),
            )
        return name
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        raise InputError(argument, "a client has no name", value=repr(value))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if not np.isfinite(number):
            raise InputError(argument, "a client has no name", value=repr(number))
        if abs(number) >= EXACT:
            raise InputError(
                argument, "is too large for floating point to be exact; give it as text", value=repr(number)
            )
        if number.is_integer():
            return str(int(number))
    return str(int(value)) if _number(value) is not None and isinstance(value, int) else str(value)


def check_names(names: Any, count: int | None, argument: str = "names") -> tuple[str, ...]:
    """Return the names as strings, one per client and all different.

    Raises
    ------
    InputError
        If these are no names in an order, there are too many or too few, one is missing, or two cannot be told apart: the same, or
        the same but for white space, invisible characters or how accents are composed.
    """
    if isinstance(names, (str, bytes, Set, Mapping)) or not isinstance(names, Iterable):
        raise InputError(argument, "must be a sequence with one name per client", value=repr(names))
    index: Any = getattr(names, "index", None)
    if _has_index(names) and not _counts(index, list(index)):
        raise InputError(
            argument,
            "has an index of its own; pass to_list() if the names are in the order of the clients",
            value=type(names).__name__,
        )
    given = list(names)
    if count is not None and len(given) != count:
        raise InputError(argument, f"must hold one name per client ({count})", value=len(given))
    found = list[str]()
    seen: dict[str, int] = {}
    for k, value in enumerate(given):
        try:
            found.append(name_of(value, argument))
        except InputError as error:
            raise InputError(argument, error.problem, client=k, value=error.value) from None
        other = seen.setdefault(visible(found[-1]), k)
        if other != k:
            problem = (
                "two clients have this name"
                if str(given[other]) == str(value) or not isinstance(value, str)
                else f"looks the same as {_plain(given[other])!a}, and would be another client; mend these names"
            )
            raise InputError(argument, problem, client=k, value=ascii(_plain(value)))
    return tuple(found)


def visible(name: str) -> str:
    """Return what can be seen of a name: characters composed, invisible ones left out, white space as one blank.

    Letters of other alphabets that look like Latin ones, and variants of a character such as wide digits, count as what they look
    like.

    >>> visible("New  York\\u200b "), visible("Y\\u043erk")
    ('New York', 'York')
    """
    if not name.isascii():
        shown = (c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf")
        plain = "".join(
            unicodedata.normalize("NFKC", c) if unicodedata.decomposition(c).startswith(_VARIANTS) else c
            for c in shown
        )
        name = unicodedata.normalize("NFC", plain.translate(_LOOKS_LATIN))
    return " ".join(name.split())


def resembling(name: str) -> str:
    """Return a name without what is easily typed in two ways: case, accents, punctuation, zeros before a number.

    >>> resembling("St. Albans") == resembling("ST ALBANS"), resembling("ward 01") == resembling("Ward-1")
    (True, True)
    >>> resembling("1.5") == resembling("15")
    False
    """
    if _number(name) is not None:
        return str(_number(name))
    letters = unicodedata.normalize("NFKD", visible(name)).casefold()
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    parts = re.findall(r"[^\W_]+", plain)
    return " ".join(part.lstrip("0") or "0" if part.isdecimal() else part for part in parts) or plain


@dataclass(frozen=True, eq=False)
class ClientNames:
    """The original clients, by name if they have names, and those of them that an argument asks for.

    Parameters
    ----------
    count
        Number of original clients.
    names
        Their names; None where they are numbered.
    asked
        Positions of the clients that per-client values are for, ascending; None for all of them.

    Examples
    --------
    >>> clients = ClientNames(3, ("3", "1", "2"))
    >>> clients.position(1, "removed"), clients.positions([2, "3"], "removed")
    (1, (2, 0))
    """

    count: int
    names: Sequence[str] | None = None
    asked: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, names: Sequence[Any] | None, count: int) -> ClientNames:
        """Return clients with these names, which count as numbers where they are 0, 1, 2, ... in order."""
        if names is None or all(name == str(k) for k, name in enumerate(names)):
            return cls(count)
        return cls(count, tuple(names))

    @cached_property
    def all(self) -> Sequence[str]:
        """Names of all original clients; their numbers as text where they have none."""
        return [str(k) for k in range(self.count)] if self.names is None else self.names

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Positions of the clients that are asked for."""
        return np.arange(self.count) if self.asked is None else self.asked

    def name(self, place: int) -> str:
        """Return the name of the client at a position."""
        return str(int(place)) if self.names is None else self.names[place]

    # ---------------------------------------------------------------- clients that are named

    def position(self, key: Any, argument: str, *, remaining: bool = False) -> Position:
        """Return the position of the client that a key names; with ``remaining`` only of one that is asked for."""
        return self._resolved([key], argument, remaining)[0]

    def positions(
        self, keys: Any, argument: str, *, remaining: bool = False, removing: bool = False
    ) -> tuple[Position, ...]:
        """Return the positions of the clients that are named, one or several, in the order in which they are named.

        With ``removing`` a :class:`~stackfu.StackfuWarning` points out clients that stay although their names resemble one that is
        named: "york" where "York" is removed.

        Raises
        ------
        InputError
            If a key names no client, may mean two, or names one again; the message lists all such keys, up to a dozen.
        """
        if _has_index(keys) and hasattr(keys, "columns"):
            raise InputError(argument, "is a table; pass one of its columns", value=type(keys).__name__)
        alone = isinstance(keys, (int, float, str, bytes, np.generic)) or (
            isinstance(keys, np.ndarray) and keys.ndim == 0
        )
        if not alone and not isinstance(keys, Iterable):
            raise InputError(argument, "must hold client numbers or names", value=repr(keys))
        if isinstance(keys, Mapping) and any(isinstance(v, (bool, np.bool_)) for v in keys.values()):
            raise InputError(
                argument, "must hold client numbers or names, not yes or no for each", value=repr(keys)
            )
        given = [keys] if alone else list(keys)
        found = self._resolved(given, argument, remaining)
        if len(set(found)) != len(found):
            again = next(k for k in found if found.count(k) > 1)
            shown = int(again) if self.names is None else repr(self.names[again])
            raise InputError(argument, "names a client twice", value=shown)
        if removing and not all(isinstance(key, Position) for key in given):
            self._warn_of_resembling(found)
        return found

    def _resolved(self, keys: Sequence[Any], argument: str, remaining: bool = False) -> tuple[Position, ...]:
        found, unknown = list[Position](), list[Any]()
        for key in keys:
            same = self._matches(key, argument)
            if len(same) > 1:
                one, two = (repr(self.name(k)) for k in same[:2])
                raise InputError(
                    argument,
                    f"could mean client {one} or client {two}; write the name as text",
                    value=repr(key),
                )
            found += same
            if not same:
                unknown.append(key)
        if unknown:
            raise self._nobody(unknown, argument, remaining)
        if remaining and self.asked is not None:
            there = set(self.asked.tolist())
            gone = [k for k in found if k not in there]
            if gone:
                raise self._removed(gone, argument)
        return tuple(found)

    def _matches(self, key: Any, argument: str) -> list[Position]:
        """Return the positions of all clients that a key may mean."""
        if isinstance(key, np.ndarray) and key.ndim == 0:
            key = key.item()
        if isinstance(key, Position):
            return [key] if 0 <= key < self.count else []
        if isinstance(key, str) and self.names is not None:
            if key in self._by_text:
                return [self._by_text[key]]
            if same := self._by_sight.get(visible(key)):
                return same
        if isinstance(key, (float, np.floating)) and np.isfinite(key) and abs(key) >= EXACT:
            raise InputError(
                argument,
                "is too large for floating point to be exact; give it as text",
                value=repr(float(key)),
            )
        value = _number(key)
        if value is None:
            if isinstance(key, (bytes, np.ndarray, float)) or key is None:
                raise InputError(argument, "must hold client numbers or names", value=repr(key))
            if self.names is None and not isinstance(key, str):
                raise InputError(argument, "must hold client numbers or names", value=repr(key))
            text = str(key)
            return [self._by_text[text]] if self.names is not None and text in self._by_text else []
        if self.names is None:
            return [Position(value)] if isinstance(value, int) and 0 <= value < self.count else []
        return self._by_number.get(value, [])

    @cached_property
    def _by_text(self) -> dict[str, Position]:
        return {name: Position(k) for k, name in enumerate(self.names or ())}

    @cached_property
    def _by_sight(self) -> dict[str, list[Position]]:
        found: dict[str, list[Position]] = {}
        for k, name in enumerate(self.names or ()):
            found.setdefault(visible(name), []).append(Position(k))
        return found

    @cached_property
    def _by_number(self) -> dict[float, list[Position]]:
        found: dict[float, list[Position]] = {}
        for k, name in enumerate(self.names or ()):
            if (value := _number(name)) is not None:
                found.setdefault(value, []).append(Position(k))
        return found

    def _nobody(self, keys: Sequence[Any], argument: str, remaining: bool) -> InputError:
        """Return the error about keys that name no client."""
        if remaining and self.asked is not None:
            known = f"those that remain are {self._rest()}"
            problem = (
                "there is no such remaining client"
                if len(keys) == 1
                else "there are no such remaining clients"
            )
        else:
            numbered = self.names is None and all(isinstance(key, (int, np.integer)) for key in keys)
            known = f"the clients are {f'0 to {self.count - 1}' if numbered else listed(self.all)}"
            problem = "there is no such client" if len(keys) == 1 else "there are no such clients"
        value: Any = ", ".join(_shown(key) for key in keys[:MOST_LISTED]) + (
            ", ..." if len(keys) > MOST_LISTED else ""
        )
        if self.names is None and len(keys) == 1 and isinstance(keys[0], (int, np.integer)):
            value = keys[0]
        hint = ""
        if meant := self._resembling(keys):
            return InputError(argument, f"{problem}; {known}; is {_shown(meant)} meant?", value=value)
        if self.names is not None:
            for key in keys:
                place = _number(key)
                if isinstance(place, int) and 0 <= place < self.count:
                    hint = (
                        f"; {place} as a position would be {self.names[place]!r}, but these clients have names, so a number means "
                        "the name"
                    )
                    break
        return InputError(argument, f"{problem}; {known}{hint}", value=value)

    def _resembling(self, keys: Sequence[Any]) -> str | None:
        """Return the only client with the key's name up to case, accents, punctuation and zeros before a number."""
        for key in keys if self.names is not None else ():
            if isinstance(key, (bool, np.bool_)) or not isinstance(key, (str, int, np.integer)):
                continue
            wanted = resembling(str(key))
            alike = [name for name in self.names or () if resembling(name) == wanted]
            if len(alike) == 1:
                return alike[0]
        return None

    def _warn_of_resembling(self, gone: Sequence[int]) -> None:
        """Warn if the name of a remaining client equals that of a removed one up to case, accents, punctuation or zeros."""
        if self.names is None:
            return
        left = {resembling(self.names[k]): self.names[k] for k in gone}
        going = set(gone)
        for k, name in enumerate(self.names):
            if k not in going and (other := left.get(resembling(name))) is not None:
                warn(f"client {other!r} is removed and {name!r} stays; if these are one client, remove both")

    def _removed(self, places: Sequence[int], argument: str) -> InputError:
        """Return the error about clients that were removed where only those that remain can be named."""
        value = ", ".join(repr(self.name(k)) for k in places[:MOST_LISTED]) + (
            ", ..." if len(places) > MOST_LISTED else ""
        )
        problem = "there is no such remaining client" if len(places) == 1 else "these clients do not remain"
        were = "it was removed" if len(places) == 1 else "they were removed"
        return InputError(argument, f"{problem}, {were}; those that remain are {self._rest()}", value=value)

    def _rest(self) -> str:
        """Return the clients that are asked for, as errors list them."""
        return listed([self.name(k) for k in self.places[: MOST_LISTED + 1].tolist()])

    # ---------------------------------------------------------------- values by name

    def in_order(
        self, keys: Sequence[Any], entries: Sequence[Any], argument: str, others: Any = None
    ) -> list[Any]:
        """Return named values in the order of the clients that are asked for.

        ``others`` stands for clients without a value, where that is allowed. Values of all original clients are taken where only
        those that remain are asked for: the values of removed clients are ignored with a :class:`~stackfu.StackfuWarning`.
        """
        places = self._resolved(keys, argument)
        given = dict[int, Any]()
        for place, entry in zip(places, entries, strict=True):
            if place in given:
                raise InputError(argument, "is given twice", client=self.name(place))
            given[place] = entry
        wanted = self.places.tolist()
        if self.asked is not None:
            there = set(wanted)
            gone = [place for place in given if place not in there]
            if gone and len(given) < self.count:
                raise self._removed(gone, argument)
            if gone:
                names = listed([self.name(k) for k in gone])
                warn(f"{argument}: the values of removed clients are ignored ({names})")
        missing = [place for place in wanted if place not in given]
        if missing and others is None:
            if len(missing) == 1:
                raise InputError(argument, "is missing", client=self.name(missing[0]))
            raise InputError(argument, f"has no value for {listed([self.name(k) for k in missing])}")
        return [given.get(place, others) for place in wanted]

    def of_counted_series(self, series: Any, argument: str, others: Any) -> Any:
        """Return the values of a series with the index 0, 1, 2, ..., which may be names of clients or positions."""
        entries, asked = list(series.to_numpy()), len(self.places)
        if self.names is None:
            if len(entries) == asked:
                return entries
            return self.in_order(range(len(entries)), entries, argument, others)
        try:
            named = self.in_order(range(len(entries)), entries, argument, others)
        except InputError:
            named = None
        if named is not None and len(entries) == asked and all(map(_same, named, entries)):
            return entries
        in_order = "series.to_numpy() if the values are in the order of the clients"
        if not any(k in self._by_number for k in range(len(entries))):
            raise InputError(
                argument,
                f"the index 0 to {len(entries) - 1} of the series names none of the clients, who are {self._rest()}; "
                f"pass {in_order}, else a series whose index holds the names",
            )
        readings = ""
        if named is not None and len(entries) == asked:
            k = next(i for i in range(asked) if not _same(named[i], entries[i]))
            name = self.name(self.places[k])
            readings = f": client {name!r} would get {named[k]} by name and {entries[k]} by position"
        raise InputError(
            argument,
            f"the index 0 to {len(entries) - 1} of the series could be names of clients or positions{readings}; pass "
            f"series.rename_axis('client') if it holds names, {in_order}",
        )


def _same(one: Any, two: Any) -> bool:
    return one is two or bool(one == two)


def _number(key: Any) -> int | float | None:
    """Return the number that a key is, or spells without leading zeros; None where it is none."""
    if isinstance(key, (bool, np.bool_)):
        return None
    if isinstance(key, (int, np.integer)):
        return int(key)
    if isinstance(key, (float, np.floating)):
        value = float(key)
        return int(value) if value.is_integer() else value if np.isfinite(value) else None
    if isinstance(key, str) and _NUMBER.fullmatch(text := key.strip()):
        whole, _, rest = text.partition(".")
        return float(text) if rest.strip("0") else int(whole)
    return None


def _shown(key: Any) -> str:
    return repr(_plain(key))


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


def by_name(values: Any, argument: str, clients: ClientNames, others: Any = None) -> Any:
    """Return one value per client that is asked for, in their order; ``others`` stands for clients that are not named.

    A dictionary and a series with an index name their clients, and must name exactly those that are asked for (fewer where
    ``others`` is given, all original clients too). A list or an array is in the order of the clients and stays as it is.

    >>> clients = ClientNames(2, ("Hull", "York"))
    >>> by_name({"York": 2.0, "Hull": 1.0}, "sizes", clients)
    [1.0, 2.0]
    >>> by_name({"York": 2.0}, "payments", clients, others=0.0)
    [0.0, 2.0]
    >>> by_name([3.0, 4.0], "sizes", clients)
    [3.0, 4.0]
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, Mapping):
        return clients.in_order(list(values), list(values.values()), argument, others)
    if not _has_index(values):
        return values
    if hasattr(values, "columns"):
        raise InputError(argument, "is a table; pass one of its columns", value=type(values).__name__)
    keys = list(values.index)
    if _counts(values.index, keys):
        return clients.of_counted_series(values, argument, others)
    return clients.in_order(keys, list(values.to_numpy()), argument, others)


def rows_by_name(values: Any, argument: str, clients: ClientNames, others: Any = None) -> Any:
    """Return one row of values per case (a request, a pilot), each in the order of the clients.

    A table names the clients in its columns; in a list every row may be a dictionary or a series; one row may stand alone.
    """
    if _has_index(values) and hasattr(values, "columns"):
        values = [row for _, row in values.iterrows()]
    if isinstance(values, (list, tuple)) and any(
        isinstance(row, Mapping) or _has_index(row) for row in values
    ):
        return [by_name(row, argument, clients, others) for row in values]
    return by_name(values, argument, clients, others)


def refuse_names(values: Any, argument: str, order: str) -> None:
    """Refuse values by name where no names are known: their order would be taken for that of the clients.

    ``order`` says in the message which values are wanted.
    """
    if isinstance(values, Mapping):
        raise InputError(argument, f"must be {order}, not a dictionary", value=type(values).__name__)
    if _has_index(values):
        index = getattr(values, "columns", values.index)
        if not _counts(index, list(index)):
            raise InputError(
                argument,
                f"must be {order}; its index has names, which are not known here: bring it into that order and pass to_numpy()",
                value=type(values).__name__,
            )


def _has_index(values: Any) -> bool:
    return hasattr(values, "index") and hasattr(values, "to_numpy")


def _counts(index: Any, keys: Sequence[Any]) -> bool:
    """Return True if an index merely counts: it is 0, 1, 2, ... and has no name."""
    if getattr(index, "name", None) is not None:
        return False
    return all(
        isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k == i for i, k in enumerate(keys)
    )


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the first names as they are typed on the command line: one that holds a comma stands in quotation marks.

    >>> listed(["York", "Kingston upon Hull, City of"])
    'York, "Kingston upon Hull, City of"'
    """
    shown = ", ".join(
        '"' + name.replace('"', '""') + '"' if "," in name or name.startswith('"') else name
        for name in names[:most]
    )
    return shown + (", ..." if len(names) > most else "")


def natural_order(values: Sequence[Any]) -> NDArray[np.intp]:
    """Return the places of the values in ascending order; numbers within names count as numbers.

    >>> [["ward 10", "ward 2", "Hull"][i] for i in natural_order(["ward 10", "ward 2", "Hull"])]
    ['Hull', 'ward 2', 'ward 10']
    """
    if all(isinstance(value, (int, float, np.number)) for value in values):
        return np.argsort(np.asarray(values), kind="stable")
    return np.array(sorted(range(len(values)), key=lambda i: _natural(str(values[i]))), dtype=np.intp)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]

"""Conversion between events and rows of the ledger: the column of each field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, get_type_hints

import numpy as np

from stackfu.errors import FileFormatError
from stackfu_integration.arrays import FloatArray

__all__ = [
    "EVENTS",
    "NO_CLIENT",
    "Amount",
    "Client",
    "ClientEvent",
    "ClientNumbers",
    "Content",
    "Count",
    "CountPerClient",
    "CountPerShard",
    "Event",
    "KeysPerClient",
    "Lengths",
    "NamePerClient",
    "NamePerShard",
    "Names",
    "Number",
    "NumberPerClient",
    "NumbersPerShard",
    "OtherNumbers",
    "Row",
    "Signed",
    "Vector",
    "Verdict",
    "from_row",
    "to_row",
    "told",
]

NameOf: TypeAlias = Callable[[int], str]  # what a client is called

NO_CLIENT = -1  # in the columns client and round: an event of the server, or one that belongs to no round


@dataclass(frozen=True)
class Row:
    """One row as the database has it; ``seq`` and ``at`` are given when it is written."""

    request: str
    kind: str
    client: int = NO_CLIENT
    round: int = NO_CLIENT
    amount: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes | None = field(default=None, repr=False)
    seq: int = 0
    at: str = ""


# ---- how a field is stored


def _same(value: Any) -> Any:
    return value


def _untouched(stored: Any, who: NameOf) -> Any:
    return stored


@dataclass(frozen=True)
class _Stored:
    """The column of a field, and the translation into what the column holds and back; ``tell`` puts names for clients in it."""

    column: str = "detail"
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same
    tell: Callable[[Any, NameOf], Any] = _untouched


def _with_text_keys(by_client: Mapping[int, Any]) -> dict[str, Any]:
    return {str(client): value for client, value in by_client.items()}


def _by_client_number(stored: Mapping[str, Any]) -> dict[int, Any]:
    return {client: stored[str(client)] for client in sorted(int(text) for text in stored)}


def _named(stored: Any, who: NameOf) -> list[str]:
    return [who(int(client)) for client in stored]


def _named_keys(stored: Mapping[str, Any], who: NameOf) -> dict[str, Any]:
    return {who(int(client)): value for client, value in stored.items()}


def _to_bytes(vector: FloatArray) -> bytes:
    return np.ascontiguousarray(vector, dtype=np.float64).tobytes()


def _from_bytes(stored: bytes | None) -> FloatArray:
    return np.frombuffer(stored or b"", dtype=np.float64)  # nothing is left of a vector that was erased


Client = Annotated[int, _Stored("client")]
Number = Annotated[int, _Stored("round")]
Amount = Annotated[float, _Stored("amount", float, float)]
Count = Annotated[int, _Stored("amount", float, int)]
Verdict = Annotated[bool, _Stored("amount", float, bool)]
Content = Annotated[bytes, _Stored("payload", bytes, lambda stored: stored or b"")]
Vector = Annotated[FloatArray, _Stored("payload", _to_bytes, _from_bytes)]
ClientNumbers = Annotated[tuple[int, ...], _Stored(write=list, read=tuple, tell=_named)]
OtherNumbers = Annotated[tuple[int, ...], _Stored(write=list, read=tuple)]  # of rows, of shards
Names = Annotated[tuple[str, ...], _Stored(write=list, read=tuple)]
Signed = Mapping[str, Any] | None
_PER_CLIENT = _Stored(write=_with_text_keys, read=_by_client_number, tell=_named_keys)
_PER_SHARD = _Stored(write=_with_text_keys, read=_by_client_number)
Lengths = Annotated[Mapping[int, Mapping[str, float]] | None, _PER_CLIENT]
NamePerClient = Annotated[Mapping[int, str], _PER_CLIENT]
NumberPerClient = Annotated[Mapping[int, float], _PER_CLIENT]
CountPerClient = Annotated[Mapping[int, int] | None, _PER_CLIENT]
KeysPerClient = Annotated[Mapping[str, str], _Stored(tell=_named_keys)]
NamePerShard = Annotated[Mapping[int, str], _PER_SHARD]
CountPerShard = Annotated[Mapping[int, int], _PER_SHARD]
NumbersPerShard = Annotated[
    Mapping[int, tuple[int, ...]],
    _Stored(
        write=lambda by_shard: _with_text_keys({shard: list(held) for shard, held in by_shard.items()}),
        read=lambda stored: {shard: tuple(held) for shard, held in _by_client_number(stored).items()},
        tell=lambda stored, who: {shard: _named(held, who) for shard, held in stored.items()},
    ),
]


# ---- events

EVENTS: dict[str, type[Event]] = {}  # by kind


class Event:
    """Something that happened; ``kind`` is its name in the ledger."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind
        if kind:
            if kind in EVENTS:
                raise TypeError(f"two events of kind {kind!r}: {EVENTS[kind].__name__} and {cls.__name__}")
            EVENTS[kind] = cls


@dataclass(frozen=True)
class ClientEvent(Event):
    """Something that concerns one client."""

    client: Client


# ---- to and from rows


class _Slot(NamedTuple):
    name: str
    stored: _Stored
    default: Any
    given: bool  # to the constructor; other fields follow from those


@cache
def _slots(kind: str) -> tuple[_Slot, ...]:
    event = EVENTS[kind]
    hints = get_type_hints(event, include_extras=True)

    def stored(name: str) -> _Stored:
        marks = getattr(hints[name], "__metadata__", ())
        return next((mark for mark in marks if isinstance(mark, _Stored)), _Stored())

    return tuple(
        _Slot(f.name, stored(f.name), f.default, f.init)
        for f in fields(event)  # type: ignore[arg-type]
    )


def to_row(request: str, event: Event) -> Row:
    """Return the row of an event; a field that has its default is not written.

    >>> from stackfu_integration.flower.events import WorkDelivered
    >>> to_row("r1", WorkDelivered(client=3, number=2, samples=40))
    Row(request='r1', kind='work', client=3, round=2, amount=40.0, detail={}, seq=0, at='')
    """
    columns: dict[str, Any] = {}
    detail: dict[str, Any] = {}
    for slot in _slots(event.kind):
        value = getattr(event, slot.name)
        if slot.default is not MISSING and value is slot.default:
            continue
        target, key = (detail, slot.name) if slot.stored.column == "detail" else (columns, slot.stored.column)
        target[key] = slot.stored.write(value)
    return Row(request=request, kind=event.kind, detail=detail, **columns)


def told(row: Row, who: NameOf) -> dict[str, Any]:
    """Return the detail of a row with the names of the clients in it; what is no part of an event stays as it is.

    >>> from stackfu_integration.flower.events import GroupSumReceived
    >>> told(to_row("r1", GroupSumReceived((0, 2), 7, np.zeros(1), 0.0)), ["Leeds", "York", "Hull"].__getitem__)
    {'clients': ['Leeds', 'Hull'], 'deviation': 0.0}
    """
    tell = {slot.name: slot.stored.tell for slot in _slots(row.kind)} if row.kind in EVENTS else {}
    detail = dict(row.detail)
    for name, value in row.detail.items():
        with suppress(AttributeError, TypeError, ValueError):
            detail[name] = tell.get(name, _untouched)(value, who)
    return detail


def from_row(row: Row) -> Event:
    """Return the event that a row describes; a row that describes none is refused.

    >>> from stackfu_integration.flower.events import ClientPaid
    >>> from_row(to_row("r1", ClientPaid(client=3, amount=1.5, delivered=2, agreed=3)))
    ClientPaid(client=3, amount=1.5, delivered=2, agreed=3)
    """
    event = EVENTS.get(row.kind)
    if event is None:
        raise FileFormatError(f"row {row.seq} of the ledger: unknown event {row.kind!r}")
    values = {}
    try:
        for slot in _slots(row.kind):
            inside = slot.stored.column == "detail"
            if not slot.given or (inside and slot.default is not MISSING and slot.name not in row.detail):
                continue
            raw = row.detail[slot.name] if inside else getattr(row, slot.stored.column)
            values[slot.name] = slot.stored.read(raw)
        return event(**values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"row {row.seq} of the ledger: not a whole {row.kind!r} ({error!r})") from error

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu.errors import FileFormatError
from stackfu_integration.flower import PaymentLedger
from stackfu_integration.flower.events import (
    EVENTS,
    NO_CLIENT,
    ClientCommitted,
    ClientPaid,
    EmbeddingReceived,
    Event,
    GameFounded,
    RoundFinished,
    Row,
    WorkDelivered,
    from_row,
    to_row,
)

number = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**40)
VALUES = {
    "int": count,
    "float": number,
    "float | None": st.none() | number,
    "str": st.text(max_size=10),
    "bool": st.booleans(),
    "Client": st.integers(0, 10**6),
    "Number": st.integers(0, 10**6),
    "Amount": number,
    "Count": count,
    "Vector": st.lists(number, max_size=5).map(np.array).map(lambda v: v.astype(np.float64)),
    "ClientNumbers": st.lists(count, max_size=4).map(tuple),
    "OtherNumbers": st.lists(count, max_size=4).map(tuple),
    "KeysPerClient": st.dictionaries(count.map(str), st.text(max_size=5), min_size=1, max_size=3),
    "NamePerShard": st.dictionaries(count, st.text(max_size=5), min_size=1, max_size=3),
    "NumberPerClient": st.dictionaries(count, number, max_size=4),
    "CountPerClient": st.none() | st.dictionaries(count, count, min_size=1, max_size=4),
    "CountPerShard": st.dictionaries(count, count, max_size=4),
    "NumbersPerShard": st.dictionaries(count, st.lists(count, max_size=3).map(tuple), max_size=3),
    "NamePerClient": st.dictionaries(count, st.text(max_size=5), min_size=1, max_size=3),
    "Mapping[str, Any]": st.dictionaries(st.text(max_size=3), number | st.text(max_size=3), max_size=3),
    "Verdict": st.booleans(),
    "Content": st.binary(max_size=5),
    "Lengths": st.none()
    | st.dictionaries(
        count, st.dictionaries(st.text(max_size=3), number, max_size=2), min_size=1, max_size=3
    ),
    "Names": st.lists(st.text(max_size=3), max_size=3).map(tuple),
    "Signed": st.none() | st.dictionaries(st.text(max_size=3), number | st.text(max_size=3), max_size=3),
    "Mapping[str, str]": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    "Mapping[str, float]": st.dictionaries(st.text(max_size=3), number, max_size=3),
}


def some(event: type[Event]) -> st.SearchStrategy[Event]:
    return st.builds(event, **{f.name: VALUES[f.type] for f in fields(event) if f.init})


def plain(event: Event) -> dict:
    values = {f.name: getattr(event, f.name) for f in fields(event)}
    return {name: v.tobytes() if isinstance(v, np.ndarray) else v for name, v in values.items()}


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_read_back_is_the_event_that_was_written(kind, tmp_path_factory):
    """Through a real file, so that JSON's and SQLite's view of numbers and text is part of it."""
    with PaymentLedger(tmp_path_factory.mktemp("events") / "ledger.sqlite") as ledger:
        ledger._db.execute("DROP TRIGGER work_was_agreed")
        ledger._db.execute("DROP TRIGGER payment_was_earned")
        written = iter(range(10**6))

        @given(some(EVENTS[kind]))
        def check(event):
            request = f"r{next(written)}"
            ledger.add(request, event)
            (row,) = ledger.rows(request)
            back = from_row(row)
            assert type(back) is type(event)
            assert plain(back) == plain(event)
            expected = to_row(request, event)
            assert replace(row, seq=0, at="") == replace(expected, detail=dict(row.detail))

        check()


def test_money_is_where_the_database_looks_for_it():
    """Triggers read these columns and these entries of the detail."""
    agreed = to_row("r", ClientCommitted(client=1, share=0.5, price=4.0, samples=20, rounds=2))
    assert (agreed.kind, agreed.client, agreed.amount) == ("commitment", 1, 0.5)
    assert agreed.detail == {"price": 4.0, "samples": 20, "rounds": 2}
    work = to_row("r", WorkDelivered(client=1, number=2, samples=20))
    assert (work.kind, work.client, work.round) == ("work", 1, 2)
    paid = to_row("r", ClientPaid(client=1, amount=2.0, delivered=2, agreed=2))
    assert (paid.kind, paid.client, paid.round, paid.amount) == ("payment", 1, NO_CLIENT, 2.0)
    game = to_row("r", GameFounded(10.0, bandwidth=1.0, costs={12: 3.0}, full_price=5.0, clipped=0.0))
    assert (game.kind, game.amount, game.detail["costs"]) == ("game", 10.0, {"12": 3.0})


def test_an_embedding_says_how_many_numbers_it_has():
    assert to_row("r", EmbeddingReceived(1, 20, np.zeros(3), 0.0)).detail == {"deviation": 0.0, "numbers": 3}


def test_what_is_not_said_is_not_written():
    assert to_row("r", RoundFinished(1, "model")).detail == {"model": "model"}
    assert to_row("r", RoundFinished(1, "model", {3: 4})).detail == {"model": "model", "samples": {"3": 4}}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row("r", "bribe", seq=7), "row 7 of the ledger: unknown event 'bribe'"),
        (Row("r", "payment", client=1, amount=1.0, seq=8), "row 8 of the ledger: not a whole 'payment'"),
        (Row("r", "settled", seq=9), "row 9"),
        (Row("r", "embedding", client=1, amount=1.0, payload=b"odd", detail={"deviation": 0.0}), "embedding"),
        (Row("r", "game", amount=1.0, detail={"costs": 3}), "not a whole 'game'"),
    ],
)
def test_a_row_that_is_no_event_is_named(row, said):
    with pytest.raises(FileFormatError, match=said):
        from_row(row)


def test_a_kind_belongs_to_one_event():
    with pytest.raises(TypeError, match="two events of kind 'payment'"):

        @dataclass(frozen=True)
        class Bribe(Event, kind="payment"):
            pass

    assert EVENTS["payment"] is ClientPaid

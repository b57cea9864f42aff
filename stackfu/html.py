"""Small HTML tables for notebooks, readable in light and in dark (colours come from the page around them), and frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from .errors import InputError

__all__ = ["MONEY", "NOTHING", "Html", "bar", "card", "data_frame", "in_currency", "money", "number", "table"]

#: Headings of the columns that hold amounts of money.
MONEY = frozenset(
    {
        "budget",
        "cost",
        "full above",
        "is paid",
        "least spend proved",
        "out below",
        "payment",
        "price",
        "receives",
        "receives for whole samples",
        "retainer",
        "spend",
        "utility",
    }
)

#: A payment below this share of a client's cost is what rounding left of nothing.
NOTHING = 1e-9

#: Numbers below this are written without an exponent: their whole digits are exact.
LARGEST_PLAIN = 1e12

#: Rows beyond this many are counted, not shown.
MOST_ROWS = 20

_STYLE = (
    "<style>.stackfu{font-family:inherit;line-height:1.4;overflow-x:auto}"
    ".stackfu table{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums}"
    ".stackfu th,.stackfu td{padding:.15em .7em;text-align:right;border:0;background:transparent;color:inherit}"
    ".stackfu th:first-child,.stackfu td:first-child{text-align:left;white-space:nowrap}"
    ".stackfu thead th{border-bottom:1px solid currentColor;font-weight:600}"
    ".stackfu .share{display:inline-flex;align-items:center;width:7.5em}"
    ".stackfu .bar{height:.7em;background:currentColor;opacity:.45;margin-right:.4em}"
    ".stackfu .quiet{opacity:.7;font-size:.9em;max-width:60em}</style>"
)


class Html(str):
    """Text that is HTML already; whatever is not of this type is escaped, also a client's name that looks like it."""

    __slots__ = ()


def number(value: float, rounding: float = 0.0) -> str:
    """Return a number in four digits, or in whole units; 0 for what is no more than rounding, a dash for what is no number.

    >>> number(0.123456), number(12345.678), number(1e-12, rounding=1e-9)
    ('0.1235', '12346', '0')
    """
    if not math.isfinite(value):
        return "–"
    return "0" if abs(value) <= rounding else _in_digits(value, 4)


def money(value: float, currency: str | None, digits: int = 6) -> str:
    """Return an amount with the name of its unit, if it has one.

    >>> money(1234567.0, "EUR"), money(0.25, None)
    ('1234567 EUR', '0.25')
    """
    return f"{_in_digits(value, digits)}{'' if currency is None else f' {currency}'}"


def _in_digits(value: float, digits: int) -> str:
    """Return the value in so many digits; in whole units where that would need an exponent and sixteen digits are enough."""
    return f"{value:.0f}" if 10.0**digits - 0.5 <= abs(value) < LARGEST_PLAIN else f"{value:.{digits}g}"


def in_currency(heading: str, currency: str | None, between: str = " ") -> str:
    """Return a heading with the unit of its amounts, if they are money and the unit has a name.

    >>> in_currency("spend", "EUR"), in_currency("samples", "EUR"), in_currency("spend", None)
    ('spend (EUR)', 'samples', 'spend')
    """
    known = currency is not None and (heading in MONEY or heading.endswith("of the spend"))
    return f"{heading}{between}({currency})" if known else heading


def bar(share: float) -> Html:
    """Return a share of 1 as a bar with its percentage, as HTML."""
    return Html(
        f'<span class="share"><span class="bar" style="width:{4.0 * share:.2f}em"></span>{share:.0%}</span>'
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0, currency: str | None = None
) -> str:
    """Return a table as HTML; cells are escaped unless they are :class:`Html`, and headings of money name its unit."""
    head = [in_currency(name, currency) for name in head]

    def cell(value: Any) -> str:
        if isinstance(value, Html):
            return value
        return escape(number(value) if isinstance(value, float) else str(value))

    body = "".join("<tr>" + "".join(f"<td>{cell(v)}</td>" for v in row) + "</tr>" for row in rows)
    if more > 0:
        body += f'<tr><td colspan="{len(head)}" class="quiet">and {more} more</td></tr>'
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head) if any(head) else ""
    return f"<table>{top and f'<thead><tr>{top}</tr></thead>'}<tbody>{body}</tbody></table>"


def card(title: str, *parts: str, note: str = "") -> str:
    """Return a heading, tables, and a quiet note below."""
    small = f'<div class="quiet">{escape(note)}</div>' if note else ""
    return f'<div class="stackfu">{_STYLE}<strong>{escape(title)}</strong>{"".join(parts)}{small}</div>'


def data_frame(columns: Any, index: Sequence[Any], name: str = "client", currency: str | None = None) -> Any:
    """Return a pandas DataFrame with the currency in its ``attrs``; without pandas the error names the package to install."""
    try:
        import pandas
    except ImportError:
        raise InputError("pandas", "is not installed; pip install pandas") from None
    frame = pandas.DataFrame(columns, index=pandas.Index(index, name=name))
    if currency is not None:
        frame.attrs["currency"] = currency
    return frame

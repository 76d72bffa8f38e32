"""Numbers as a person reads them."""

from __future__ import annotations

from html import escape

from spillway.errors import bytes_said, so_much

__all__ = ["bytes_said", "cells", "how_many", "loss_said", "rate_said", "share_said", "table"]


def rate_said(kbps: float) -> str:
    """
    >>> rate_said(0.0642), rate_said(26.63), rate_said(5_400)
    ('64.2 bps', '26.6 kbps', '5.4 Mbps')
    >>> rate_said(0.99951), rate_said(999.7)
    ('1 kbps', '1 Mbps')
    """
    for size, unit in ((1e3, "Mbps"), (1.0, "kbps")):
        # from here on, the number in the next smaller unit would be rounded to 1,000
        if abs(kbps) >= 0.9995 * size:
            return f"{kbps / size:.3g} {unit}"
    return f"{kbps * 1000:.3g} bps"


def share_said(pct: float) -> str:
    """Per cent, with as many digits as near 100 deserves.

    >>> share_said(99.987), share_said(99.5), share_said(33.33), share_said(100), share_said(6.7e-07)
    ('99.987 %', '99.5 %', '33.3 %', '100 %', '0.00000067 %')
    """
    return f"{so_much(pct, 5 if 99 < pct < 100 else 3)} %"


def how_many(count: int, one: str) -> str:
    """
    >>> how_many(1, "stream"), how_many(2, "stream")
    ('1 stream', '2 streams')
    """
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def cells(*values: object, bad: bool = False) -> str:
    """A row of a table; numbers stand right.

    >>> cells("a", 1)
    '<tr><td>a</td><td class="n">1</td></tr>'
    """
    said = "".join(
        f'<td class="n">{value:,}</td>'
        if isinstance(value, int) and not isinstance(value, bool)
        else f'<td class="n">{so_much(value)}</td>'
        if isinstance(value, float)
        else f"<td>{escape('' if value is None else str(value))}</td>"
        for value in values
    )
    mark = ' class="bad"' if bad else ""
    return f"<tr{mark}>{said}</tr>"


def table(heads: str, rows: list[str]) -> str:
    """A table; a head that starts with # stands over numbers."""
    if not rows:
        return '<p class="soft">None.</p>'
    head = "".join(
        f'<th class="n">{escape(name[1:])}</th>' if name.startswith("#") else f"<th>{escape(name)}</th>"
        for name in heads.split("|")
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def loss_said(pct: float) -> str:
    """A loss or an error in per cent; what is small is not shown as none.

    >>> loss_said(0), loss_said(0.00042), loss_said(0.0123), loss_said(47.31), loss_said(100.0), loss_said(float("inf"))
    ('0 %', '< 0.001 %', '0.012 %', '47 %', '100 %', 'any')
    """
    if pct == float("inf"):
        return "any"
    if 0 < pct < 0.001:
        return "< 0.001 %"
    return f"{pct:.2g} %" if pct < 10 else f"{pct:.0f} %"

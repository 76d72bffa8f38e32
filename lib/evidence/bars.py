"""Draw horizontal bars of shares in per cent, as inline SVG in the report's style.

>>> markup = percent_bars([("ours", 98.5, "c0"), ("theirs", 94.0, "c1")], low=90, label="hits in %")
>>> markup.count("<rect"), "98.5" in markup
(2, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spillway.report.page.svg import WIDTH, Scale, ticks

STEP, LEFT, RIGHT, BOTTOM = 26, 230, 60, 40


def percent_bars(rows: Sequence[tuple[str, float, str]], *, low: float = 0.0, label: str = "") -> str:
    """Draw one bar per row (name, value, style); the axis begins at `low`."""
    if not rows:
        return ""
    height = STEP * len(rows) + BOTTOM
    x = Scale(low, max(100.0, *(value for _, value, _ in rows)), LEFT, WIDTH - RIGHT)
    parts = []
    for tick in ticks(x.low, x.high):
        at = x(tick)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{height - BOTTOM}"/>')
        parts.append(
            f'<text class="tick" x="{at}" y="{height - BOTTOM + 18}" text-anchor="middle">{tick:g}</text>'
        )
    for place, (name, value, style) in enumerate(rows):
        top, end = place * STEP, x(max(value, low))
        parts.append(
            f'<text class="name" x="{LEFT - 10}" y="{top + 18}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{style}" style="fill: var(--tone)" x="{LEFT}" y="{top + 4}" '
            f'width="{max(end - LEFT, 0.6):g}" height="{STEP - 8}"/>'
            f'<text class="tick" x="{end + 6}" y="{top + 18}">{value:.1f}</text>'
        )
    parts.append(
        f'<text class="label" x="{WIDTH - RIGHT}" y="{height - 2}" text-anchor="end">{escape(label)}</text>'
    )
    body = "\n".join(parts)
    box = f'class="w{WIDTH}" viewBox="0 0 {WIDTH} {height}"'
    return f'<svg {box} role="img" aria-label="{escape(label)}">\n{body}\n</svg>'

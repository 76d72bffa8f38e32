"""Charts place their values where the axes say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.report.page.svg import Line, Plot, bars, line_chart, plots, region_map, ticks, timeline

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


@given(FINITE, st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    found = ticks(low, low + span)
    slack = 1e-6 * max(abs(low), span)

    assert len(found) <= 12
    assert found == sorted(found)
    assert all(low - slack <= tick <= low + span + slack for tick in found)


def test_a_line_breaks_where_a_value_is_missing() -> None:
    chart = line_chart([Line([(0, 1.0), (1, None), (2, 3.0)], "a", "a")], x_label="x", y_label="y")

    (path,) = re.findall(r'<path class="line a" d="([^"]+)"', chart)
    assert path.count("M") == 2


def test_a_chart_without_values_is_nothing() -> None:
    assert line_chart([Line([(0, None)], "a", "a")], x_label="x", y_label="y") == ""
    assert timeline([], x_label="x") == ""
    assert bars([("a", [(0.0, "raw", "raw")])]) == ""


def test_steps_hold_a_value_until_the_next() -> None:
    chart = line_chart([Line([(0, 0.0), (10, 10.0)], "a", "a", steps=True)], x_label="x", y_label="y")

    (path,) = re.findall(r'<path class="line a" d="M([^"]+)"', chart)
    start, corner, end = [[float(n) for n in part.split()] for part in path.split("L")]
    assert corner == [end[0], start[1]]


def test_larger_values_stand_higher() -> None:
    chart = line_chart([Line([(0, 1.0), (1, 2.0)], "a", "a", dots=True)], x_label="x", y_label="y")

    low, high = (float(y) for y in re.findall(r'cy="([\d.]+)"', chart))
    assert high < low


def test_bars_share_one_scale() -> None:
    chart = bars([("a", [(100.0, "raw", "raw")]), ("b", [(25.0, "wire", "w"), (25.0, "synopsis", "s")])])

    whole, first, second = (float(w) for w in re.findall(r'width="([\d.]+)" height="29"', chart))
    assert (first / whole, second / whole) == (0.25, 0.25)


def test_a_timeline_says_what_a_run_is_on_hovering() -> None:
    chart = timeline([("temp", [(0, 10, "shed", "temp: shed <why>")])], x_label="seq")

    assert "<title>temp: shed &lt;why&gt;</title>" in chart


def test_every_mark_lies_in_its_box() -> None:
    runs = timeline([("temp", [(0, 10, "keep", ""), (10, 40, "shed", "")])], x_label="seq")
    sums = bars([("a", [(100.0, "raw", "raw")])])

    for chart in (runs, sums):
        box = float(re.findall(r'viewBox="0 0 (\d+)', chart)[0])
        marks = re.findall(r'<rect class="\w+" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', chart)
        assert marks
        assert max(float(x) + float(width) for x, width in marks) <= box


def test_a_legend_tells_the_styles_that_are_drawn_in_the_order_it_was_given() -> None:
    rows = [("temp", [(0, 10, "shed", ""), (10, 20, "keep", ""), (20, 30, "other", "")])]
    chart = timeline(rows, x_label="seq", legend={"keep": "kept", "round": "rounded", "shed": "shed"})

    assert re.findall(r"</i>(\w+)</span>", chart) == ["kept", "shed", "other"]


def test_a_map_of_regions_is_drawn_in_proportion_and_the_darker_the_more_is_dropped() -> None:
    page = region_map(
        [(0.0, 0.5, 0.0, 1.0, 0.25, "left <1>"), (0.5, 1.0, 0.0, 1.0, 1.5, "right")],
        x_label="temp",
        y_label="wind",
        x_ticks=[(0.0, "0"), (1.0, "40")],
        y_ticks=[(0.0, "calm")],
    )
    rects = re.findall(
        r'<rect class="region" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*fill-opacity="([\d.]+)"', page
    )
    (left, width, faint), (right, other, dark) = rects
    assert float(left) + float(width) == pytest.approx(float(right), abs=0.02)
    assert width == other
    assert (faint, dark) == ("0.250", "1.000")
    assert "left &lt;1&gt;" in page
    assert region_map([], x_label="x", y_label="y") == ""


def test_plots_stand_one_above_the_other_over_one_axis() -> None:
    points = [(0.0, 1.0), (60.0, 2.0), (120.0, 1.5)]
    values = Plot(
        [Line(points, "recovered", "recovered")], "temp", band=[(x, y - 1, y + 1) for x, y in points]
    )
    errors = Plot([Line([(x, 0.1) for x, _ in points], "error", "error")], "error", height=120)
    chart = plots([values, errors], "", is_time=True)

    upper, lower = (
        [tuple(map(float, pair.split())) for pair in re.split("[ML]", path)[1:]]
        for path in re.findall(r'<path class="line \w+" d="([^"]+)"', chart)
    )
    assert [x for x, _ in upper] == [x for x, _ in lower]
    assert max(y for _, y in upper) < min(y for _, y in lower)
    assert chart.count('class="band"') == 1
    assert re.findall(r">(00:0\d):00<", chart) == ["00:00", "00:01", "00:02"]
    assert plots([Plot([Line([], "a", "a")], "y")], "x") == ""


def test_an_axis_of_whole_numbers_has_whole_ticks() -> None:
    chart = line_chart([Line([(1, 1.5), (2, 2.5)], "a", "a")], x_label="batch", y_label="y")

    assert re.findall(r'y="\d+" text-anchor="\w+">([^<]+)</text>', chart)[-3:-1] == ["1", "2"]


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_a_limit_stands_where_the_scale_says_and_crosses_no_words(value: float, limit: float) -> None:
    chart = bars(
        [("sent", [(value, "c0", "a")])], width=720, limit=(limit, "capacity"), show=lambda _: "12.3 kB"
    )

    (line,) = (float(x) for x in re.findall(r'<line class="mark" x1="([\d.]+)"', chart))
    ((start, wide),) = re.findall(r'<rect class="c0" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', chart)
    end = float(start) + float(wide)
    assert (line >= end - 0.1) == (limit >= value) or line == pytest.approx(end, abs=0.1)
    (words,) = (float(x) for x in re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="start">12.3 kB', chart))
    assert line <= words or line >= words + 78

"""Slow, obvious oracles and strategies for the synopsis tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor, Term

INT_EXTREMES = [-(2**63), 2**63 - 1, -(2**53) - 1, 2**53 + 1, 2**62, -1, 0, 1, 10, 11, 100, 109, 111]
AWKWARD = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 1e308, -1e308, 1.7e308, math.nan, math.inf, -math.inf]
PLAIN = [1.0, 1.05, 0.95, -1.0, 100.0, 104.0, 111.0, 29.91, 30.08, -5.0, -5.2]


def rounded(whole, up):
    """A whole number as float64; beyond 2^53 the multiple of 2048 below it, or above it."""
    if whole < 2**53:
        return float(whole)
    return float(-(-whole // 2048) * 2048 if up else whole // 2048 * 2048)


def within(mv, sv, error_pct, error=math.inf):
    """The store rule's complement on Python values, None for null; integers differ exactly, in doubt too much."""
    if mv is None or sv is None or isinstance(sv, str):
        return mv == sv
    if mv == sv:
        return True
    if mv == 0 or sv == 0:
        return False
    if isinstance(sv, int):
        gap, size = rounded(abs(mv - sv), up=True), rounded(abs(sv), up=False)
        return gap / size * 100.0 <= error_pct and gap <= error
    if math.isnan(sv) or math.isnan(mv):
        return math.isnan(sv) and math.isnan(mv)
    if math.isinf(sv) or math.isinf(mv):
        return False
    return abs(mv - sv) / abs(sv) * 100.0 <= error_pct and abs(mv - sv) <= error


def algorithm3(keys, is_shed, values, error_pct):
    """Algorithm 3 as corrected (A17-A21): stored rows and what recovery gives back."""
    stored, given, memory = [], [], {}
    for row, (key, shed, value) in enumerate(zip(keys, is_shed, values, strict=True)):
        if not shed:
            given.append(value)
            continue
        if key not in memory or not within(memory[key], value, error_pct):
            memory[key] = value
            stored.append(row)
        given.append(memory[key])
    return stored, given


def columns(kind, rows):
    """Adversarial columns of a kind."""
    if kind == "real":
        element = (
            st.sampled_from(AWKWARD + PLAIN)
            | st.floats(width=64)
            | st.floats(1.0, 120.0).map(lambda v: round(v, 2))
        )
        make = Column.real
    elif kind == "integer":
        element = st.sampled_from(INT_EXTREMES) | st.integers(-(2**63), 2**63 - 1) | st.integers(90, 120)
        make = Column.integer
    else:
        element = st.sampled_from(["", "NW", "N", "nul\x00", "ünï"])
        make = Column.text
    return st.lists(st.none() | element, min_size=rows, max_size=rows).map(make)


def predictor_lists():
    """Preference lists that exercise every predictor."""
    level = Predictor("regression", (Term(1.0, ("x",)),))
    ratio = Predictor("regression", (Term(2.0, ("x",), ("x@1",)), Term(-1.0)), persistence=0.5)
    change = Predictor("regression", (Term(0.5, ("x",)),), persistence=1.0, common=0.5)
    plain = Predictor("previous")
    alone = [
        plain,
        Predictor("trend", slope=0.7),
        Predictor("season", season=2),
        Predictor("season", season=3, persistence=1.0),
        Predictor("any", persistence=0.0),
        Predictor("any", persistence=0.5),
        Predictor("any", common=0.8),
        Predictor("level", smoothing=0.3, persistence=0.5),
    ]
    several = [(level, alone[1], alone[7]), (ratio, *alone[1:4])]
    return st.sampled_from(
        several
        + [(p,) for p in alone]
        + [
            (level, plain),
            (ratio, level, plain),
            (change, alone[5]),
            (level, alone[1], alone[7]),
            (ratio, *alone[1:4]),
        ]
    )


@st.composite
def precisions(draw, error_pct, shares=(1.0, 0.5)):
    """A precision within a bound."""
    return Precision(
        error_pct * draw(st.sampled_from(shares)),
        error_pct * draw(st.sampled_from([0.0, 0.5, 2.0])),
        draw(st.sampled_from([0.0, 0.0, 0.01, 10.0])),
    )


@st.composite
def cases(draw, kinds=("real", "integer"), predicted=True):
    """(model, frame with the truth, mask of shed rows)."""
    kind = draw(st.sampled_from(kinds))
    rows = draw(st.integers(0, 24))
    seq = np.cumsum(draw(st.lists(st.integers(1, 5), min_size=rows, max_size=rows))).astype(np.int64)
    key = np.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), np.int64)
    frame = Frame(seq, key, {"a": draw(columns(kind, rows)), "x": draw(columns("real", rows))})
    is_shed = np.array(draw(st.lists(st.booleans() | st.just(True), min_size=rows, max_size=rows)), bool)
    error = draw(st.sampled_from([0.0, 1e-9, 1.0, 4.7, 13.5, 100.0, 250.0]))
    if not predicted:
        return AttributeModel("a", kind, error), frame, is_shed
    model = AttributeModel(
        "a",
        kind,
        error,
        predictors=draw(predictor_lists()),
        precisions=(draw(precisions(error)),),
        decimals=draw(st.sampled_from([None, 2])),
        blend=draw(st.booleans()),
    )
    return model, frame, is_shed

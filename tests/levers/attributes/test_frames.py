"""Frames under schemes that change way and precision from run to run: both ends, and batches within a frame."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.frames import (
    frame_of,
    join_entries,
    recover_frame,
    shed_frame,
    transmitted_frame,
)
from spillway.levers.attributes.scheme import AttributeTreatment, Run, Runs
from spillway.levers.attributes.synopsis.bounds import relative_errors_pct
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor, Rounding, Term

ROWS = 240
AIMS = (0.0, 0.5, 2.0, 8.0)
MODELS = {
    "x": AttributeModel(
        "x",
        "real",
        8.0,
        predictors=(Predictor("previous"),),
        precisions=(Precision(0.0, 0.0, 0.01), *(Precision(aim, 2 * aim) for aim in AIMS[1:])),
        roundings=tuple(Rounding("hold", aim) for aim in AIMS),
        decimals=2,
    ),
    "a": AttributeModel(
        "a",
        "real",
        8.0,
        predictors=(Predictor("regression", (Term(2.0, ("x",)),)), Predictor("previous")),
        precisions=tuple(Precision(aim, aim) for aim in AIMS),
        roundings=tuple(Rounding("grid", aim) for aim in AIMS),
        decimals=2,
        rank=1,
    ),
    "last": AttributeModel("last", "integer", 8.0, precisions=tuple(Precision(aim) for aim in AIMS), rank=2),
}


def rows() -> pa.Table:
    rng = np.random.default_rng(11)
    x = np.round(50 + np.cumsum(rng.normal(0, 1, (ROWS // 3, 3)), 0).ravel(), 2)
    return pa.table(
        {
            "seq": np.arange(1000, 1000 + ROWS),
            "key": np.arange(ROWS) % 3,
            "x": x,
            "a": np.round(2 * x + rng.normal(0, 1, ROWS), 2),
            "last": np.rint(100 * x).astype(np.int64),
        }
    )


@st.composite
def schemes(draw):
    """Runs over the rows, of random length, ways and precisions."""
    edges = sorted(
        draw(st.sets(st.integers(1, ROWS - 1), max_size=6)) | {0, ROWS},
    )
    runs = []
    for start, end in pairwise(edges):
        ways = []
        for name in MODELS:
            way = draw(st.sampled_from(["keep", "round", "shed", "shed"]))
            sent = way == "shed" and draw(st.booleans())
            ways.append(AttributeTreatment(name, way, precision=draw(st.integers(0, 3)), sent=sent))
        runs.append(Run(1000 + start, 999 + end, tuple(ways)))
    return Runs(tuple(runs))


@settings(max_examples=60, deadline=None)
@given(schemes(), st.integers(1, ROWS - 1))
def test_every_value_keeps_to_its_rows_precision_whatever_the_schemes_and_batches(runs, cut):
    table = rows()
    truth = frame_of(table, ["key"], MODELS)
    early = runs.within(1000, 999 + cut)
    payloads = {}
    for sent in (False, True):
        whole = shed_frame(table, ["key"], runs, MODELS, 1000, sent)
        parts = [
            *shed_frame(table.slice(0, cut), ["key"], early, MODELS, 1000, sent),
            *shed_frame(table, ["key"], runs, MODELS, 1000 + cut, sent),
        ]
        for name in MODELS:
            payloads[name, sent] = [part.payload for part in parts if part.attribute == name]
            in_one = [block.payload for block in whole if block.attribute == name]
            found = join_entries(payloads[name, sent], MODELS[name].kind, truth)
            assert found.seq.tolist() == join_entries(in_one, MODELS[name].kind, truth).seq.tolist()
    seen = transmitted_frame(truth, runs, MODELS)
    received = pa.table(
        {
            "seq": table["seq"],
            "key": table["key"],
            **{name: column.to_arrow() for name, column in seen.columns.items()},
        }
    )
    back = recover_frame(received, ["key"], runs, MODELS, payloads)
    for name in MODELS:
        seq = truth.seq
        gone, rounded = runs.mask(name, "shed", seq), runs.mask(name, "round", seq)
        given_back = back[name].values if name in back else seen.columns[name]
        limit = np.zeros(ROWS)
        limit[gone] = np.array(AIMS)[runs.precision(name, "shed", seq)][gone]
        limit[rounded] = np.array(AIMS)[runs.precision(name, "round", seq)][rounded]
        errors = relative_errors_pct(truth.columns[name], given_back)
        assert (errors <= limit).all()
        if name in back:
            assert (back[name].bound_pct[gone] <= limit[gone]).all()
            assert (errors[gone] <= back[name].bound_pct[gone]).all()
    crossed = {place: found for place, found in payloads.items() if place[1]}
    alone = recover_frame(received, ["key"], runs, MODELS, crossed, held_too=False)
    for name, one in alone.items():
        here = runs.mask(name, "shed", truth.seq, sent=True)
        held = runs.mask(name, "shed", truth.seq, sent=False)
        # the destination gives back by itself, and to the bit, what it would with all that is held beside it
        assert one.values.take(here).to_list() == back[name].values.take(here).to_list()
        assert not one.values.valid[held].any()
        assert np.isnan(one.bound_pct[held]).all()


def test_a_scheme_of_finer_precision_gives_back_more_closely():
    table, errors = rows(), []
    truth = frame_of(table, ["key"], MODELS)
    for place in range(4):
        runs = Runs((Run(1000, 999 + ROWS, (AttributeTreatment("x", "shed", precision=place),)),))
        blocks = shed_frame(table, ["key"], runs, MODELS, 1000)
        hidden = transmitted_frame(truth, runs, MODELS).columns["x"]
        received = table.set_column(2, "x", hidden.to_arrow())
        back = recover_frame(
            received, ["key"], runs, MODELS, {("x", False): [block.payload for block in blocks]}
        )
        assert isinstance(back["x"].values, Column)
        errors.append(relative_errors_pct(truth.columns["x"], back["x"].values).mean())
    assert errors[0] == 0 < errors[1] < errors[2] < errors[3]

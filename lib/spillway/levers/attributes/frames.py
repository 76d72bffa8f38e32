"""Turn the rows of one frame into synopsis blocks, and recover the rows from them.

Tasks at the source and at the destination call this module. The source builds the frame *as transmitted*: shed values
are hidden, rounded values are rounded. So every prediction uses only what the destination will have. A block holds the
entries of one attribute at one stage. A frame that spans batches has one block per batch, and recovery joins them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import pack, unpack
from spillway.levers.attributes.scheme import Runs
from spillway.levers.attributes.synopsis.entries import Entries, Recovered, recover, shed
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.rounding import sent_frame


@dataclass(frozen=True)
class Block:
    """The packed entries of one attribute at one stage, for the rows of a frame that belong to one batch."""

    attribute: str
    stage: int
    first_seq: int
    last_seq: int
    entries: int
    shed_values: int
    payload: bytes


def key_codes(rows: pa.Table, attributes: Sequence[str]) -> np.ndarray:
    """Return one code per row, equal for equal keys; null is a key value like any other.

    >>> key_codes(pa.table({"a": ["x", "y", "x"], "b": [1, 1, 1]}), ["a", "b"]).tolist()
    [0, 1, 0]
    """
    codes = np.zeros(rows.num_rows, np.int64)
    for name in attributes:
        column = pc.fill_null(
            pc.dictionary_encode(rows[name].combine_chunks(), null_encoding="encode").indices, 0
        )
        part = np.asarray(column).astype(np.int64)
        if len(attributes) == 1:
            return part
        codes = codes * (int(part.max(initial=0)) + 1) + part
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def frame_of(rows: pa.Table, key: Sequence[str], columns: Iterable[str]) -> Frame:
    """Return the rows as a frame of the named columns."""
    return Frame(
        np.asarray(rows["seq"]),
        key_codes(rows, key),
        {name: Column.from_arrow(rows[name]) for name in columns},
    )


def with_regressors(models: Mapping[str, AttributeModel], attributes: Iterable[str]) -> tuple[str, ...]:
    """Return the attributes and all regressors of their predictors, in the order of recovery (the *cascade*).

    A shed attribute can be a regressor of attributes with higher rank, because both ends have its recovered values. It
    must then be recovered before them. So a request for one attribute may recover several.
    """
    found: set[str] = set()
    waiting = list(attributes)
    while waiting:
        name = waiting.pop()
        if name not in found and name in models:
            found.add(name)
            waiting += [other for p in models[name].predictors for other in p.regressors if other in models]
    return tuple(sorted(found, key=lambda name: (models[name].rank, name)))


def needed_columns(models: Mapping[str, AttributeModel], attributes: Iterable[str]) -> tuple[str, ...]:
    """Return the attributes and every column that their predictors read, directly or through other recovered
    attributes."""
    found: dict[str, None] = {}
    for name in with_regressors(models, attributes):
        found[name] = None
        for predictor in models[name].predictors:
            found.update(dict.fromkeys(sorted(predictor.regressors)))
    return tuple(found)


def transmitted_frame(frame: Frame, runs: Runs, models: Mapping[str, AttributeModel]) -> Frame:
    """Return the frame as the destination sees it under these runs: rounded values rounded, shed values hidden."""
    masks = {
        way: {name: rows for name in frame.columns if (rows := runs.mask(name, way, frame.seq)).any()}
        for way in ("shed", "round")
    }
    places = {name: runs.precision(name, "round", frame.seq) for name in masks["round"]}
    return sent_frame(frame, models, masks["shed"], masks["round"], precision=places)


def shed_frame(
    rows: pa.Table,
    key: Sequence[str],
    runs: Runs,
    models: Mapping[str, AttributeModel],
    first_new_seq: int,
    sent: bool = False,
) -> list[Block]:
    """Return the blocks of the values shed from `first_new_seq` on; earlier rows of the frame only build up the state.

    With `sent` these are the blocks that are sent with their batch, else those that stay at the source. A sent block
    never depends on one that stays, because the destination must recover it without a request. A block that stays may
    depend on all values recovered before.
    """
    attributes = with_regressors(models, runs.shed_attributes(sent))
    truth = frame_of(rows, key, needed_columns(models, attributes))
    seen = transmitted_frame(truth, runs, models)
    first_new_row = int(np.searchsorted(truth.seq, first_new_seq))
    blocks = []
    for name, crosses, here in _in_order(attributes, runs, truth.seq, (True,) if sent else (True, False)):
        mixed = _mask_truth(here, truth.columns[name], seen.columns[name])
        places = runs.precision(name, "shed", truth.seq)
        result = shed(models[name], seen.with_columns({name: mixed}), here, first_new_row, places)
        seen = seen.with_columns({name: result.reconstructed})
        if crosses != sent:
            continue
        for stage in sorted({way.stage for run in runs for way in run.ways if way.way == "shed"}):
            mine = runs.mask(name, "shed", truth.seq, stage, sent)
            mine[:first_new_row] = False
            if bool(mine.any()):
                blocks.append(_block(name, stage, truth, mine, result.entries.take(mine[result.positions])))
    return blocks


def recover_frame(
    rows: pa.Table,
    key: Sequence[str],
    runs: Runs,
    models: Mapping[str, AttributeModel],
    payloads: Mapping[tuple[str, bool], Sequence[bytes]],
    attributes: Sequence[str] | None = None,
    held_too: bool = True,
) -> dict[str, Recovered]:
    """Recover the shed attributes of a frame from its rows as transmitted and its payloads.

    `payloads` has the payloads by attribute and by whether they were sent. `attributes` names the attributes to recover
    (None: all that were shed). Their regressors are recovered too, so `payloads` must include these
    (`with_regressors`). Without `held_too`, values whose synopsis stayed at the source remain absent.
    """
    gone = runs.attributes("shed")
    wanted = [name for name in gone if attributes is None or name in attributes]
    seen = frame_of(rows, key, needed_columns(models, wanted))
    found: dict[str, Recovered] = {}
    passes = (True, False) if held_too else (True,)
    for name, crosses, here in _in_order(with_regressors(models, wanted), runs, seen.seq, passes):
        if seen.columns[name].kind != models[name].kind:  # a column of only nulls has no kind of its own
            seen = seen.with_columns({name: Column.nulls(models[name].kind, len(seen))})
        entries = join_entries(payloads.get((name, crosses), ()), models[name].kind, seen)
        # a block reaches to the end of its batch; the requested rows may end before
        entries = entries.take(entries.seq <= seen.seq[-1])
        one = recover(models[name], seen, here, entries, runs.precision(name, "shed", seen.seq))
        bound, error = one.bound_pct, one.error
        if name in found:
            bound = np.where(here, bound, found[name].bound_pct)
            error = np.where(here, error, found[name].error)
        found[name] = Recovered(one.values, bound, error)
        seen = seen.with_columns({name: one.values})
    for name in wanted:
        if name not in found and bool(runs.mask(name, "shed", seen.seq).any()):
            absent = (
                Column.nulls(models[name].kind, len(seen)) if name not in seen.columns else seen.columns[name]
            )
            found[name] = Recovered(absent, *np.full((2, len(seen)), np.nan))
    return {name: one for name, one in found.items() if name in wanted}


def _in_order(
    attributes: Sequence[str], runs: Runs, seq: np.ndarray, passes: Sequence[bool]
) -> Iterator[tuple[str, bool, np.ndarray]]:
    """Yield shed attributes in the order in which both ends process them: name, whether it is sent, mask of its
    rows."""
    for crosses in passes:
        for name in attributes:
            here = runs.mask(name, "shed", seq, sent=crosses)
            if bool(here.any()):
                yield name, crosses, here


def join_entries(payloads: Sequence[bytes], kind: str, frame: Frame) -> Entries:
    """Return the entries of all blocks of an attribute in `seq` order; `frame` has the keys."""
    parts = [unpack(payload, frame) for payload in payloads]
    parts = [part for part in parts if len(part)]
    if not parts:
        return Entries.none(kind)
    whole = reduce(add, sorted(parts, key=lambda part: int(part.seq[0])))
    order = np.argsort(whole.seq, kind="stable")
    return whole if bool((np.diff(whole.seq) > 0).all()) else whole.take(order)


def _mask_truth(is_shed: np.ndarray, truth: Column, sent: Column) -> Column:
    return Column(
        truth.kind,
        np.where(is_shed, truth.values, sent.values),
        np.where(is_shed, truth.valid, sent.valid),
        truth.dictionary,
    )


def _block(name: str, stage: int, frame: Frame, here: np.ndarray, entries: Any) -> Block:
    seq = frame.seq[here]
    return Block(name, stage, int(seq[0]), int(seq[-1]), len(entries), int(here.sum()), pack(entries, frame))

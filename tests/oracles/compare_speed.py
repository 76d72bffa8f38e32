"""Compare the speed of the split kernels with that of the unsplit ones: `python -m tests.oracles.compare_speed`.

Old and new kernels run in alternation on the demo streams and on the paper's join streams. A ratio is the median of the
ratios of the pairs of runs, new / old; the figures after it are the quartiles. An argument selects the runs whose names
begin with it. `python -m tests.oracles.compare_speed compile` prints the time of the first calls with an empty cache.
Not a test.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tests.levers.attributes.demo_streams import DEMO
from tests.levers.joins.test_probe import SECOND
from tests.oracles import unsplit_code_entries, unsplit_probe
from tests.oracles.unsplit_walk import walk_unsplit

from evidence.joins.workload import PaperStreams, steady
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing import entry_coder
from spillway.levers.attributes.packing.entry_coder import MIXERS, Coder, EntryArrays, contexts_needed
from spillway.levers.attributes.synopsis.model import Predictor, Term
from spillway.levers.attributes.synopsis.predictors import column_as_floats, predictor_arrays
from spillway.levers.attributes.synopsis.walking import (
    Corrections,
    Precisions,
    Rows,
    TargetColumn,
    step_tables,
    walk,
)
from spillway.levers.joins.matching import (
    PREDICATES,
    Looking,
    Probing,
    basic_windows,
    drawn_comparisons,
    index_for,
    probe,
    reach_of,
    slot_starts,
    slots_of,
)

ROUNDS = 41
KERNELS = ("walk", "code_entries", "probe")
Runs = Iterator[tuple[str, Callable[[], object], Callable[[], object]]]
COLUMNS = {"weather": ("temp", "dewp"), "stocks": ("close", "open"), "network": None}


def frame_of(name: str, rows: int = 20_000) -> Frame:
    """A numeric attribute `a` of a demo stream, one that regressions read (`x`), and the key."""
    read, _, (key, *_), _ = DEMO[name]
    stream = {column: values[:rows] for column, values in read().items()}
    names = COLUMNS[name] or tuple(c for c in stream if stream[c].dtype == float)[:2]
    codes = np.unique(stream[key].astype(str), return_inverse=True)[1].astype(np.int64)
    a, x = (stream[one].astype(float) for one in names)
    return Frame(np.arange(len(a)), codes, {"a": Column.real(a), "x": Column.real(x)})


REGRESSION = Predictor("regression", (Term(1.0, ("x",)),), 1.0)
LISTS = {
    "previous": ((Predictor("previous"),), False),
    "regression, trend, any": (
        (REGRESSION, Predictor("trend", slope=0.4), Predictor("any", persistence=0.0)), False,
    ),
    "season, level": (
        (Predictor("season", season=24), Predictor("level", persistence=0.5, smoothing=0.1)), False,
    ),
    "blend of six": (
        (
            REGRESSION, Predictor("season", season=24), Predictor("level", persistence=0.5, smoothing=0.1),
            Predictor("trend", slope=0.4), Predictor("any", persistence=0.5), Predictor("previous"),
        ), True,
    ),
}  # fmt: skip


def all_shed(frame: Frame) -> Rows:
    return Rows(frame.key, np.ones(len(frame), bool), np.zeros(len(frame), np.int64))


def target_of(frame: Frame) -> TargetColumn:
    column = frame.columns["a"]
    return TargetColumn(*column_as_floats(column), column.valid.copy(), False, 100.0)


def copied(target: TargetColumn) -> TargetColumn:
    return TargetColumn(*(one.copy() for one in target[:3]), *target[3:])


def no_corrections(rows: int) -> Corrections:
    return Corrections(np.zeros(rows, bool), np.zeros(rows, bool), np.zeros(rows, np.int64))


def precision(aim: float, step: float, unit: float) -> Precisions:
    tables, starts = step_tables(((step, unit),))
    is_ladder = np.array([min(step, unit) > 0])
    return Precisions(np.array([aim]), np.array([math.inf]), np.array([unit]), is_ladder, tables, starts)


def walks() -> Runs:
    """Encoding and decoding by `walk`."""
    grids = {"powers": (2.0, 4.0, 0.0), "even": (2.0, 0.0, 0.1), "ladder": (2.0, 4.0, 0.1)}
    for name in DEMO:
        frame = frame_of(name)
        for label, (predictors, blend) in LISTS.items():
            arrays = predictor_arrays(predictors, frame)
            for grid, one in grids.items():
                column, rows, precisions = target_of(frame), all_shed(frame), precision(*one)
                made = no_corrections(len(frame))
                assert walk(False, rows, column, made, arrays, blend, precisions) == -1
                for decode in (False, True):
                    given = column if decode else target_of(frame)

                    def ours(decode, given, *rest, rows=rows):
                        return walk(decode, rows, copied(given), *rest)

                    def theirs(decode, given, made, predictors, regressions, *rest, rows=rows):
                        return walk_unsplit(decode, rows, copied(given), made, predictors, regressions, *rest)

                    new = partial(ours, decode, given, made, arrays, blend, precisions)
                    old = partial(
                        theirs, decode, given, made, predictors, arrays.regressions, blend, precisions
                    )
                    yield f"walk {name}, {label}, {grid}, {'decode' if decode else 'encode'}", new, old


def codes() -> Runs:
    """Encoding and decoding by `code_entries`: the entries of the demo streams' synopses."""
    for name in DEMO:
        frame = frame_of(name)
        for label, unit in {"steps": 0.01, "whole values": 0.0}.items():
            target, made = target_of(frame), no_corrections(len(frame))
            arrays = predictor_arrays((Predictor("previous"),), frame)
            walk(False, all_shed(frame), target, made, arrays, False, precision(0.0, 0.0, unit))
            at = np.flatnonzero(made.is_entry)
            wholes = np.rint(np.nan_to_num(target.values[at]) * 100).astype(np.int64)
            marks, distinct = np.where(np.isfinite(target.values[at]), 0, 2), np.unique(wholes)
            for listed in (False, True)[: 1 + (len(distinct) <= 1024)]:
                bits = int(len(distinct) - 1).bit_length() if listed else 0
                places = np.searchsorted(distinct, wholes) if listed else wholes
                entries = EntryArrays(at, made.is_step[at], made.steps[at], marks, places)
                coder = Coder.writing(MIXERS, contexts_needed(bits), 1 << 20)
                assert entry_coder.code_entries(False, frame.key, entries, bits, coder) == len(at)
                block = entry_coder.finish(coder.state, coder.buffer)
                writing = partial(Coder.writing, MIXERS, contexts_needed(bits), 1 << 20)
                reading = partial(Coder.reading, block, MIXERS, contexts_needed(bits))
                for decode, fresh in ((False, writing), (True, reading)):

                    def ours(fresh, *args):
                        return entry_coder.code_entries(*args, fresh())

                    def theirs(fresh, decode, key, entries, bits):
                        return unsplit_code_entries.code_entries(decode, key, *entries, bits, *fresh())

                    args = (fresh, decode, frame.key, entries, bits)
                    form = f"{label}{', listed' if listed else ''}, {'decode' if decode else 'encode'}"
                    yield f"code {name}, {form}", partial(ours, *args), partial(theirs, *args)


def probes() -> Runs:
    """The paper's streams, with an index and without."""
    streams = {
        "sets": PaperStreams(rates=steady(100.0, 60.0)),
        "popular sets": PaperStreams(rates=steady(100.0, 60.0), kappa=1.2),
        "values": PaperStreams(rates=steady(400.0, 60.0), mean_items=1, items=500),
    }
    for name, made in streams.items():
        mine, other = made.both(3)
        n, micros = basic_windows(20.0, 1.0), SECOND
        low, high = reach_of(mine, other, 20 * SECOND, True)
        first, last = int(other.at.min() // micros), int(other.at.max() // micros)
        starts = slot_starts(other.at, micros, first, last - first + 1)
        order = np.random.default_rng(1).permutation(n).astype(np.int64)
        whole = Probing(low, high, slots_of(mine.at, micros), high - low, order, starts, first)
        looking = Looking(np.full(n, 0.1), np.ones(mine.rows, bool), True, 5)
        part = Probing(low, high, slots_of(mine.at, micros), (high - low) // 3, order, starts, first, looking)
        drawn = drawn_comparisons(low, high, mine.seq, 0.01, 7)
        index = index_for(mine.sets, other.sets)
        for predicate, threshold in {
            "equality": 0.0,
            "overlap": 2.0,
            "inner_product": 2.0,
            "subset": 0.0,
        }.items():
            for how, said, sample in ((whole, "all", None), (part, "a third", drawn)):
                for lists in (None, index):
                    args = (mine, other, how, PREDICATES[predicate], threshold, lists, True, False, sample)

                    def ours(args=args):
                        return probe(*args)

                    def theirs(args=args):
                        return unsplit_probe.probe(*args)

                    yield (
                        f"probe {name}, {predicate} {said}, {'index' if lists else 'no index'}",
                        ours,
                        theirs,
                    )


def seconds(run: Callable[[], object], times: int) -> float:
    """The processor time of some runs."""
    began = time.thread_time_ns()
    for _ in range(times):
        run()
    return (time.thread_time_ns() - began) / 1e9


def compile_once(side: str) -> None:
    """Print the processor time of the first call of each kernel, in this process."""
    frame = frame_of("weather", 500)
    arrays = predictor_arrays(LISTS["blend of six"][0], frame)
    column, made, rows = target_of(frame), no_corrections(len(frame)), all_shed(frame)
    at = np.arange(0, len(frame), 3)
    zeros = np.zeros(len(at), np.int64)
    entries, coder = (
        EntryArrays(at, zeros == 1, zeros, zeros, at),
        Coder.writing(MIXERS, contexts_needed(0), 1 << 16),
    )
    _, ours, theirs = next(run for run in probes() if run[0] == "probe values, equality a third, index")
    walk_arguments = (False, rows, column, made)
    run = {
        "old": (
            lambda: walk_unsplit(
                *walk_arguments, LISTS["blend of six"][0], arrays.regressions, True, precision(2.0, 4.0, 0.0)
            ),
            lambda: unsplit_code_entries.code_entries(False, frame.key, *entries, 0, *coder),
            theirs,
        ),
        "new": (
            lambda: walk(*walk_arguments, arrays, True, precision(2.0, 4.0, 0.0)),
            lambda: entry_coder.code_entries(False, frame.key, entries, 0, coder),
            ours,
        ),
    }[side]
    print(
        side, *(f"{name} {seconds(one, 1):.1f} s" for name, one in zip(KERNELS, run, strict=True)), sep="; "
    )


def compile_both() -> None:
    """Compile the old and the new kernels, each in a process and a cache folder of their own."""
    for side in ("old", "new"):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.oracles.compare_speed", "compile", side]
            subprocess.run(command, env=os.environ | {"NUMBA_CACHE_DIR": folder}, check=True)


def main(only: str = "") -> None:
    """Print a line for each pair of runs whose name begins with `only`, then the median for each kernel."""
    ratios: dict[str, list[float]] = {}
    for runs in (walks, codes, probes):
        for name, ours, theirs in runs():
            if not name.startswith(only):
                continue
            ours(), theirs()
            once = min(seconds(theirs, 1) for _ in range(3))
            times = max(1, round(0.004 / max(once, 1e-7)))
            found, rounds = [], max(7, min(ROUNDS, round(0.5 / (once * times))))
            for turn in range(rounds):
                first, second = (ours, theirs) if turn % 2 else (theirs, ours)
                a, b = seconds(first, times), seconds(second, times)
                found.append(a / b if turn % 2 else b / a)
            low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
            ratios.setdefault(name.split()[0], []).append(float(middle))
            print(f"{middle:5.2f} [{low:.2f}, {high:.2f}]  {once * 1e3:8.2f} ms  {name}", flush=True)
    for name, found in ratios.items():
        print(
            f"{name}: median of {len(found)} ratios {np.median(found):.2f}, from {min(found):.2f} to {max(found):.2f}"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["compile"]:
        compile_both()
    elif sys.argv[1:2] == ["compile"]:
        compile_once(sys.argv[2])
    else:
        main(*sys.argv[1:])

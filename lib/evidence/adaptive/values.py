"""Mechanisms of the attribute lever, measured in bytes on later rows: predictors, coder, class, sender's key.

Every contestant is trained on the same first rows and keeps the same bounds on the same later rows. Later rows are shed
as one frame. Synopses are packed in consecutive slices, which are the blocks of the intervals.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from evidence.adaptive.gains import Contest
from evidence.adaptive.streams import row_slices
from evidence.attributes.codecs.compressors import pcodec_bytes, zstd_bytes
from evidence.attributes.codecs.ours import Trained, bounds_of, model_bytes, place_within, train_within_bounds
from evidence.attributes.codecs.samples import Sample
from evidence.streams import perturb
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.cycle.identifier import CycleNotFound, find_cycle
from spillway.levers.attributes.cycle.trace import replicated_period
from spillway.levers.attributes.frames import key_codes
from spillway.levers.attributes.option import PREDICTORS
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.packing.whole_numbers import WholeForm
from spillway.levers.attributes.synopsis.entries import Entries, shed
from spillway.levers.attributes.threshold.category import CategoryMatcher
from spillway.levers.attributes.threshold.curve import curve, fixed_point, threshold
from spillway.levers.attributes.training.train import plain_values
from spillway.parquet import compressed_widths

ERROR_PCT = 4.5
"""The bound of every quantity, in contests that do not compare bounds."""
SMALL_SET = ("last", "trend")
"""The small fixed set: the last value, or the last value and its last change; steps of even size."""
NOISY_STREAMS = 5
NO_SENDER = "sender"
"""The constant key of samples that come from one sender (`codecs.samples`); no attribute of the stream."""
STATED_CLASS: Mapping[str, str] = {
    "weather": "moderately",
    "seattle_days": "moderately",
    "cities": "moderately",
    "sea_surface": "moderately",
    "stocks": "very",
    "network": "low",
    "population": "not",
}
"""The class that a contract would state by the thesis's table (3.2.4.3); of other streams the strictest."""


@dataclass(frozen=True)
class Residuals:
    """The residuals of one measure in one slice, and their rows."""

    entries: Entries
    frame: Frame


def predictor_contest(sample: Sample) -> tuple[Contest, Trained]:
    """Compare the search over all predictors with the last value alone and with a small fixed set.

    The bytes of the models are included, because recovery needs them.
    """
    parts = sample.parts
    bounds = bounds_of(parts["training"], sample.measures, ERROR_PCT)
    sets = {"lattice": PREDICTORS, "last_value": ("last",), "small_set": SMALL_SET}
    trained = {
        name: train_within_bounds(sample, parts["training"], bounds, predictors)
        for name, predictors in sets.items()
    }
    blocks = {name: bytes_by_slice(one, parts["later"]) for name, one in trained.items()}
    return Contest("predictors", sample.name, "bytes", "lattice", blocks), trained["lattice"]


def coder_contests(sample: Sample, trained: Trained) -> list[Contest]:
    """Compare our coder with zstd and with pcodec on the same residuals, by bytes and by CPU seconds.

    A rival gets the residuals in the smallest of four forms: a column of all rows or of the entries alone, in order of
    arrival or key by key. Its CPU time is that of the form it chose.
    """
    found: dict[str, list[float]] = {"coder": [], "zstd": [], "pcodec": []}
    seconds: dict[str, list[float]] = {"coder": [], "zstd": [], "pcodec": []}
    for block in residuals_by_slice(trained, sample.parts["later"]):
        sums = dict.fromkeys(found, 0.0)
        spent = dict.fromkeys(found, 0.0)
        for one in block:
            began = time.process_time()
            sums["coder"] += len(pack(one.entries, one.frame))
            spent["coder"] += time.process_time() - began
            for rival in ("zstd", "pcodec"):
                size, took = packed_by(rival, one)
                sums[rival] += size
                spent[rival] += took
        for name in found:
            found[name].append(sums[name])
            seconds[name].append(spent[name])
    return [
        Contest("coder", sample.name, "bytes", "coder", found),
        Contest("coder_cpu", sample.name, "CPU seconds", "coder", seconds),
    ]


def lossless_contests(sample: Sample, trained: Trained) -> list[Contest]:
    """Compare the synopsis, within the bounds and exact, with the measures as Parquet columns in their best encodings.

    The columns of all later rows are one file, as in a batch. Its bytes are divided evenly among the slices.
    """
    later = sample.rows.slice(len(sample.parts["training"])).select(sample.measures)
    exact = train_within_bounds(sample, sample.parts["training"], dict.fromkeys(sample.measures, 0.0))
    found = []
    for mechanism, one in (("synopsis", trained), ("synopsis_exact", exact)):
        ours = bytes_by_slice(one, sample.parts["later"])
        columns = sum(compressed_widths(later).values()) / len(ours)
        blocks = {"synopsis": ours, "columns": [columns] * len(ours)}
        found.append(Contest(mechanism, sample.name, "bytes", "synopsis", blocks))
    return found


def category_contest(sample: Sample) -> tuple[Contest, dict[str, float]]:
    """Compare the class that is recognised by names with the strictest class and with the one a contract states.

    A class looser than the stated one saves bytes at the cost of the bound; an additional figure counts such classes.
    """
    matcher, parts = CategoryMatcher.standard(), sample.parts
    recognised = matcher.classify([name for name in sample.rows.column_names if name != NO_SENDER])
    rates = {
        "recognised": recognised.rate_pct,
        "strictest_class": matcher.rate_pct("extremely"),
        "stated_class": matcher.rate_pct(STATED_CLASS.get(sample.name, "extremely")),
    }
    by_rate = {}
    for rate in set(rates.values()):
        bounds = bounds_by_class(sample, parts["training"], rate)
        by_rate[rate] = bytes_by_slice(
            train_within_bounds(sample, parts["training"], bounds, SMALL_SET), parts["later"]
        )
    blocks = {name: by_rate[rate] for name, rate in rates.items()}
    looser = float(rates["recognised"] > rates["stated_class"])
    return (
        Contest("category", sample.name, "bytes", "recognised", blocks),
        {f"adaptive.category.looser_than_stated.{sample.name}": looser},
    )


def bounds_by_class(sample: Sample, frame: Frame, rate_pct: float) -> dict[str, float]:
    """Return E of every measure: the smaller of its fixed point and the rate of the class (3.2.4.3)."""
    found = bounds_of(frame, sample.measures, rate_pct)
    for name, bound in found.items():
        if bound:
            column = frame.columns[name]
            values = np.where(column.valid, column.values.astype(np.float64), np.nan)
            found[name] = threshold(fixed_point(curve(values, frame.key)), rate_pct).error_pct
    return found


def cycle_contests(sample: Sample) -> tuple[list[Contest], dict[str, float]]:
    """Compare the search for the sender's key under noise with declared keys, and with one sender for all.

    The search sees the training rows with 5 % of them lost, 1 % repeated and 2 % swapped. `strict` is Algorithm 1: it
    accepts a period that never breaks, and a declared key otherwise, so its key is always the declared one.
    """
    rows = sample.rows.slice(0, len(sample.parts["training"]))
    names = rows.column_names
    columns = {name: plain_values(rows[name]) for name in names}
    began = time.process_time()
    found = {keys: found_key(sample, columns, keys) for keys in (sample.key, ())}
    searched = (time.process_time() - began) / 2
    began = time.process_time()
    period = replicated_period(key_codes(rows, sample.key))
    strict = time.process_time() - began
    by_key: dict[tuple[str, ...], list[float]] = {}
    contests = []
    for mechanism, keys, rival in (
        ("cycle_search", sample.key, sample.key),
        ("cycle_search_without_key", (), ()),
    ):
        for key in (found[keys], rival):
            if key not in by_key:
                by_key[key] = bytes_under_key(sample, key)
        name = "declared_key" if rival else "one_sender"
        contests.append(
            Contest(
                mechanism,
                sample.name,
                "bytes",
                "search",
                {"search": by_key[found[keys]], name: by_key[rival]},
            )
        )
    return contests, {
        f"adaptive.cycle_search.cpu_seconds.{sample.name}": searched / NOISY_STREAMS,
        f"adaptive.cycle_search.strict_cpu_seconds.{sample.name}": strict,
        f"adaptive.cycle_search.strict_finds_a_period.{sample.name}": float(period is not None),
    }


def found_key(sample: Sample, columns: Mapping[str, np.ndarray], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key that the search finds on most of some noisy copies of the rows; () where it finds none."""
    votes: Counter[tuple[str, ...]] = Counter()
    rows = len(next(iter(columns.values())))
    for seed in range(NOISY_STREAMS):
        kept = perturb(rows, np.random.default_rng(seed))
        noisy = {name: column[kept] for name, column in columns.items()}
        bits = {name: 96 if column.dtype == object else 64 for name, column in noisy.items()}
        try:
            cycle = find_cycle(noisy, np.arange(len(kept)), bits, order=sample.order, keys=keys)
        except CycleNotFound:
            votes[()] += 1
            continue
        votes[tuple(cycle.attributes)] += 1
    return votes.most_common(1)[0][0]


def bytes_under_key(sample: Sample, key: tuple[str, ...]) -> list[float]:
    """Return the bytes, slice by slice, of all measures where rows belong to these keys."""
    measures = tuple(name for name in sample.measures if name not in key)
    under = replace(sample, key=key, measures=measures)
    if not key:
        rows = sample.rows.append_column("one_sender", [np.zeros(sample.rows.num_rows, np.int64)])
        under = replace(under, key=("one_sender",), rows=rows)
    parts = under.parts
    bounds = bounds_of(parts["training"], measures, ERROR_PCT)
    return bytes_by_slice(train_within_bounds(under, parts["training"], bounds, SMALL_SET), parts["later"])


def bytes_by_slice(trained: Trained, later: Frame) -> list[float]:
    """Return the packed bytes of every slice of the later rows; each bears its share of the models' bytes."""
    sums = [
        float(sum(len(pack(one.entries, one.frame)) for one in block))
        for block in residuals_by_slice(trained, later)
    ]
    return [one + model_bytes(trained) / len(sums) for one in sums]


def residuals_by_slice(trained: Trained, later: Frame) -> list[list[Residuals]]:
    """Return the residuals of every measure, slice by slice; measures that are recovered first are read as recovered.

    The later rows are shed as one frame, as a batch is. Their entries are cut at the borders of the slices, so that no
    key begins again in every slice.
    """
    stored, frame = [], later
    for name in trained.order:
        one = trained.attributes[name]
        place = place_within(one, max(trained.error_pct.values(), default=0.0))
        result = shed(one.model, frame, np.ones(len(frame), np.bool_), 0, np.full(len(frame), place))
        stored.append(result.entries)
        frame = frame.with_columns({name: result.reconstructed})
    found = []
    for begin, end in row_slices(len(later)):
        part = later.rows(begin, end)
        mine = [np.flatnonzero((one.seq >= part.seq[0]) & (one.seq <= part.seq[-1])) for one in stored]
        found.append([Residuals(one.take(rows), part) for one, rows in zip(stored, mine, strict=True)])
    return found


def packed_by(rival: str, one: Residuals) -> tuple[int, float]:
    """Return the bytes of the residuals in the rival's smallest form, and the CPU seconds of that form."""
    rows = np.searchsorted(one.frame.seq, one.entries.seq)
    orders = (np.arange(len(one.frame)), np.argsort(one.frame.key, kind="stable"))
    tried = []
    for order in orders:
        for dense in (True, False):
            began = time.process_time()
            size = _form_bytes(rival, one.entries, rows, order, dense)
            tried.append((size, time.process_time() - began))
    return min(tried)


def _form_bytes(rival: str, entries: Entries, rows: np.ndarray, order: np.ndarray, dense: bool) -> int:
    """Pack three columns: which rows have an entry of which kind, the steps, and whole values."""
    number_of = np.full(len(order), -1, np.int64)
    number_of[rows] = np.arange(len(rows))
    number_of = number_of[order]
    places = np.flatnonzero(number_of >= 0)
    entries = entries.take(number_of[places])
    kinds = np.where(entries.is_step, 0, np.where(entries.values.valid, 1, 2)).astype(np.uint8)
    if dense:
        # a step of 0 is never stored, so it marks rows without an entry; whole values have flags of their own
        steps = np.zeros(len(order), np.int64)
        steps[places] = entries.steps
        flags = np.zeros(len(order), np.uint8)
        flags[places] = np.where(entries.is_step & (entries.steps != 0), 0, kinds + 1)
        size = _whole_numbers(rival, steps) + _flags(flags)
    else:
        gaps = np.diff(places, prepend=-1)
        size = (
            _whole_numbers(rival, gaps)
            + _flags(kinds)
            + _whole_numbers(rival, entries.steps[entries.is_step])
        )
    return size + _values(rival, entries.values.take(~entries.is_step & entries.values.valid))


def _flags(flags: np.ndarray) -> int:
    return len(zstd_bytes(flags.tobytes())) if len(np.unique(flags)) > 1 else 1


def _whole_numbers(rival: str, numbers: np.ndarray) -> int:
    if not len(numbers):
        return 0
    if rival == "pcodec":
        return pcodec_bytes(np.ascontiguousarray(numbers, np.int64))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= int(numbers.min()) and int(numbers.max()) <= np.iinfo(kind).max:
            return len(zstd_bytes(numbers.astype(kind).tobytes()))
    planes = np.ascontiguousarray(numbers, np.int64).view(np.uint8).reshape(-1, 8)
    return len(zstd_bytes(np.ascontiguousarray(planes.T).tobytes()))


def _values(rival: str, column: Column) -> int:
    values = column.values
    if column.kind == "real":
        finite = np.isfinite(values)
        size, values = 8 * int((~finite).sum()), values[finite]
    else:
        size = 0
    if not len(values):
        return size
    wholes = WholeForm.of(column.kind, values).wholes(values).astype(np.int64)
    as_they_are = _whole_numbers(rival, wholes)
    if rival == "pcodec":
        return size + as_they_are
    return size + min(as_they_are, _whole_numbers(rival, np.diff(wholes, prepend=0)))

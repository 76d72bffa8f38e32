"""Query stored sketches: load the rows of a stream's sketch over a range of dates, merge them, and answer queries.

The caller reads the rows from the table `sketches`. Days are merged at query time, so a backfilled day changes no other
day. Every answer states which batches it covers, and how many batches are missing.

>>> from spillway.sketches.specification import SketchSpec
>>> spec = SketchSpec("count_min", ("origin",), ("string",))
>>> wrap_sketch(spec.empty(), Coverage("weather", "origin")).frequency("JFK").estimate
0.0
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.answers import Coverage
from spillway.sketches.binary import CounterSketch, LibrarySketch, StoredSketch
from spillway.sketches.kinds import every_kind, kind_of
from spillway.sketches.kinds.base import LoadedSketch, Segment, SketchKind
from spillway.sketches.payload_checks import REBUILD


def read_sketch(
    payload: bytes,
    types: Sequence[str] = (),
    attributes: Sequence[str] = (),
    kinds: Iterable[SketchKind] | None = None,
) -> StoredSketch:
    """Read a sketch of any kind (or of `kinds`) from its bytes.

    `types` and `attributes` describe the keys of a DataSketches payload, which does not state them. Payloads in
    Spillway's own format do.
    """
    every = [form for kind in kinds or every_kind() for form in kind.forms()]
    if not payload.startswith(binary.MAGIC):
        native = {form.family: form for form in every if issubclass(form, LibrarySketch)}
        family = native.get(payload[2]) if len(payload) > 2 else None
        if family is None:
            raise InvalidValue(
                "payload", "begin as one of our sketches, or DataSketches', does", payload[:8], REBUILD
            )
        found = family.from_native(payload, types)
        if types:
            found.context = {"attributes": list(attributes), "types": list(types)}
        return found
    forms = {form.kind: form for form in every if issubclass(form, CounterSketch)}
    header = binary.read_header(payload)
    if header.kind not in forms:
        raise InvalidValue("kind", f"be one of {', '.join(forms)}", header.kind, "read it with its own class")
    return forms[header.kind].from_header(header)


def merge_sketches(sketches: Sequence[StoredSketch]) -> StoredSketch:
    """Merge sketches to one; raise `InvalidValue` if their kinds or parameters differ."""
    if not sketches:
        raise InvalidValue("sketches", "be at least one", 0, "sketch the batches of this range first")
    for sketch in sketches[1:]:
        if type(sketch) is not type(sketches[0]):
            raise InvalidValue("kind", "be one for all that is merged", sketch.kind, "ask for one kind")
    return reduce(lambda one, other: one.merge(other), sketches)


def wrap_sketch(
    sketch: StoredSketch, covers: Coverage | None = None, segments: Sequence[Segment] = ()
) -> LoadedSketch:
    """Return the sketch with the queries of its kind."""
    asking = next(kind.query_class() for kind in every_kind() if isinstance(sketch, kind.forms()))
    return asking(sketch, covers, segments)


def load_stored_sketch(
    rows: Iterable[Mapping[str, Any]],
    stream: str,
    name: str,
    kind: str = "count_min",
    from_date: datetime.date | None = None,
    to_date: datetime.date | None = None,
    batches: Sequence[int] | None = None,
    missing: int = 0,
) -> LoadedSketch:
    """Load the sketch `name` of `stream` over the dates from `from_date` to `to_date`, both included.

    A row is the sketch of a batch, or of a day; the latter has the number of its `batches`. Sketches with equal
    parameters are merged. `missing`: the number of batches that are known to have no sketch; rows that cannot be read
    are added to it.
    """
    merges = kind_of(kind).merges
    if not merges:
        check_no_dates(name, from_date, to_date)
    rows = [row for row in rows if row["stream"] == stream]
    of_name = [row for row in rows if row["name"] == name and row["kind"] == kind]
    if not of_name:
        raise no_such_sketch(rows, name, kind)
    chosen = [
        row
        for row in of_name
        if (from_date is None or row["batch_date"] >= from_date)
        and (to_date is None or row["batch_date"] <= to_date)
        and (batches is None or row["batch"] in batches)
    ]
    if not chosen:
        raise no_such_dates([row["batch_date"] for row in of_name], from_date, to_date)
    chosen.sort(key=lambda row: (row["batch_date"], row["batch"]))
    # a sketch that does not merge is a state: the newest one includes all earlier rows of any date
    needed = chosen if merges else [max(chosen, key=lambda row: int(row["batch"]))]
    held: list[tuple[Mapping[str, Any], StoredSketch]] = []
    unread: InvalidValue | None = None
    for row in needed:
        try:
            held.append((row, _read_row(row)))
        except InvalidValue as problem:
            missing, unread = missing + _batches(row), problem
    if unread is not None and not held:
        raise unread
    segments = _segments(kind, held)
    read = [row for row, _ in held]
    covers = Coverage(
        stream,
        name,
        str(min(row["batch_date"] for row in read)),
        str(max(row["batch_date"] for row in read)),
        sum(map(_batches, read)),
        sum(int(row["rows"]) for row in read),
        missing,
    )
    return wrap_sketch(segments[-1].sketch, covers, segments)


def no_such_sketch(rows: Iterable[Mapping[str, Any]], name: str, kind: str) -> InvalidValue:
    """Return the error for a sketch that the stream does not have; it lists those that it has."""
    have = sorted({f"{row['kind']} of {row['name']}" for row in rows})
    rule = f"be one that the stream has: {', '.join(have) or 'none yet'}"
    return InvalidValue(
        "sketch", rule, f"{kind} of {name}", "name one of them, or add it under `sketches` in its contract"
    )


def no_such_dates(
    dates: Sequence[datetime.date], from_date: datetime.date | None, to_date: datetime.date | None
) -> InvalidValue:
    """Return the error for dates without sketches; it states the dates that have sketches."""
    got = " to ".join(str(date or "...") for date in (from_date, to_date))
    return InvalidValue("dates", f"touch {min(dates)} to {max(dates)}", got, "ask for dates with sketches")


def check_no_dates(name: str, *dates: datetime.date | None) -> None:
    """Refuse dates for a sketch of the newest rows, which does not depend on dates."""
    if any(date is not None for date in dates):
        rule = "be omitted for a sketch of the newest rows"
        got = " to ".join(str(date or "") for date in dates)
        raise InvalidValue(
            "dates", rule, got, f"{name} covers the number of rows that the contract states", name
        )


def _batches(row: Mapping[str, Any]) -> int:
    return int(row.get("batches") or 1)


def _segments(kind: str, held: Sequence[tuple[Mapping[str, Any], StoredSketch]]) -> list[Segment]:
    """Merge the sketches with equal parameters to one segment each, in the order of their first rows."""
    groups: dict[str, list[tuple[Mapping[str, Any], StoredSketch]]] = {}
    for row, sketch in held:
        groups.setdefault(repr(kind_of(kind).merge_key(sketch)), []).append((row, sketch))
    found = []
    for group in groups.values():
        dates = [str(row["batch_date"]) for row, _ in group]
        found.append(Segment(merge_sketches([sketch for _, sketch in group]), min(dates), max(dates)))
    return found


def _read_row(row: Mapping[str, Any]) -> StoredSketch:
    types = json.loads(row["parameters"]).get("types", ())
    kind = kind_of(row["kind"])
    found = read_sketch(bytes(row["payload"]), types, row["attributes"], [kind])
    found.context = {**found.context, **kind.context_of(row)}
    return found

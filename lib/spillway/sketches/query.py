"""Asking stored sketches: load the rows of a stream's sketch over a range of dates, merge them, ask.

Rows come from the `sketches` table by whatever reads it (a store, a dictionary in a test); days merge into any range
here, at query time, so that a backfilled day needs no other. Every answer says what it covers.

>>> from spillway.sketches.specification import SketchSpec
>>> spec = SketchSpec("count_min", ("origin",), ("string",))
>>> loaded(spec.empty(), Covers("weather", "origin")).frequency("JFK").estimate
0.0
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from spillway.errors import Refused
from spillway.sketches import binary
from spillway.sketches.answers import Covers
from spillway.sketches.binary import CounterSketch, LibrarySketch, StoredSketch
from spillway.sketches.forms import REBUILD
from spillway.sketches.kinds import every_kind, kind_of
from spillway.sketches.kinds.base import Loaded


def read_sketch(payload: bytes, types: Sequence[str] = (), attributes: Sequence[str] = ()) -> StoredSketch:
    """A sketch of any kind from its bytes; those of the library do not tell what they are of, ours do."""
    every = [form for kind in every_kind() for form in kind.forms()]
    if not payload.startswith(binary.MAGIC):
        native = {form.family: form for form in every if issubclass(form, LibrarySketch)}
        family = native.get(payload[2]) if len(payload) > 2 else None
        if family is None:
            raise Refused(
                "payload", "begin as one of our sketches, or DataSketches', does", payload[:8], REBUILD
            )
        found = family.from_native(payload, types)
        found.context = {"attributes": list(attributes), "types": list(types)} if types else {}
        return found
    forms = {form.kind: form for form in every if issubclass(form, CounterSketch)}
    header = binary.read_header(payload)
    if header.kind not in forms:
        raise Refused("kind", f"be one of {', '.join(forms)}", header.kind, "read it with its own class")
    return forms[header.kind].from_header(header)


def merged(sketches: Sequence[StoredSketch]) -> StoredSketch:
    """One sketch of all; refused for kinds or parameters that do not merge."""
    if not sketches:
        raise Refused("sketches", "be at least one", 0, "sketch the batches of this range first")
    for sketch in sketches[1:]:
        if type(sketch) is not type(sketches[0]):
            raise Refused("kind", "be one for all that is merged", sketch.kind, "ask for one kind")
    return reduce(lambda one, other: one.merge(other), sketches)


def loaded(sketch: StoredSketch, covers: Covers | None = None) -> Loaded:
    """The sketch, ready to be asked what its kind can answer."""
    asking = next(kind.asking() for kind in every_kind() if isinstance(sketch, kind.forms()))
    return asking(sketch, covers)


def load(
    rows: Iterable[Mapping[str, Any]],
    stream: str,
    name: str,
    kind: str = "count_min",
    from_date: datetime.date | None = None,
    to_date: datetime.date | None = None,
    batches: Sequence[int] | None = None,
) -> Loaded:
    """The sketch `name` of `stream` over the dates from `from_date` to `to_date`, both included."""
    rows = [row for row in rows if row["stream"] == stream]
    of_name = [row for row in rows if row["name"] == name and row["kind"] == kind]
    if not of_name:
        have = sorted({f"{row['kind']} {row['name']}" for row in rows})
        raise Refused(
            "name", f"be one of {have}", f"{kind} {name}", "name a sketch of the contract, or build it"
        )
    chosen = [
        row
        for row in of_name
        if (from_date is None or row["batch_date"] >= from_date)
        and (to_date is None or row["batch_date"] <= to_date)
        and (batches is None or row["batch"] in batches)
    ]
    if not chosen:
        first, last = (end(row["batch_date"] for row in of_name) for end in (min, max))
        raise Refused(
            "dates", f"touch {first} to {last}", (from_date, to_date), "ask for dates with sketches"
        )
    chosen.sort(key=lambda row: row["batch"])
    # what does not merge is a state, which holds all that came before
    needed = chosen if kind_of(kind).merges else chosen[-1:]
    covers = Covers(
        stream,
        name,
        str(min(row["batch_date"] for row in chosen)),
        str(max(row["batch_date"] for row in chosen)),
        len(chosen),
        sum(int(row["rows"]) for row in chosen),
    )
    return loaded(merged([_of_row(row) for row in needed]), covers)


def _of_row(row: Mapping[str, Any]) -> StoredSketch:
    types = json.loads(row["parameters"]).get("types", ())
    return read_sketch(bytes(row["payload"]), types, row["attributes"])

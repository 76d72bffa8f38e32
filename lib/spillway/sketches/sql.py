"""The SQL functions on Arrow arrays: build sketches in any GROUP BY, merge them, and query them.

    SELECT site, spillway_sketch('count_min', origin, carrier) FROM flights GROUP BY site
    SELECT spillway_frequency(spillway_merge(payload), 'JFK').value
    FROM sketches WHERE stream = 'weather' AND name = 'origin' AND batch_date BETWEEN '2013-01-01' AND '2013-01-31'

There is one function for every query of every kind. Each returns value, low, high, rows and note. The functions take
payloads, so SQL selects the rows to cover and always sees the current table. Timestamps are instants, as in Arrow, so
the time zone of the session or worker does not matter. A null payload gives null.

To query many keys without a payload for each, use `spillway_frequencies(payload, keys)`. It takes an array of keys and
returns an array of answers in the same order.

    WITH day AS (SELECT spillway_merge(payload) AS payload FROM sketches WHERE name = 'origin'),
         asked AS (SELECT collect_set(origin) AS keys FROM flights GROUP BY pmod(hash(origin), 8))
    SELECT inline(arrays_zip(keys, spillway_frequencies(payload, keys))) FROM day CROSS JOIN asked

`spillway_frequency` and `spillway_frequencies` are for keys that are expected to be frequent. For a key that may be
rare, or for a sum over many keys, use the functions that end in `_for`: they take the purpose, `frequent`, `any` or
`sum`, after the payload.

    SELECT sum(spillway_frequency_for(payload, 'sum', origin).value) FROM day CROSS JOIN wanted

Any engine that passes Arrow arrays to functions can register `sql_functions()`, and `sketch_of` and `merge_payloads` as
aggregates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from inspect import Parameter, signature
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.errors import InvalidValue
from spillway.sketches.answers import Answer
from spillway.sketches.count_min import PURPOSES
from spillway.sketches.kinds import MOST_KIB, every_kind
from spillway.sketches.kinds.base import LoadedSketch, SketchKind
from spillway.sketches.kinds.frequencies import FREQUENT
from spillway.sketches.query import merge_sketches, read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Estimates
from spillway.sketches.values import coerce, json_values, round_to_double

ANSWER_TYPE = pa.struct(
    {
        "value": pa.float64(),
        "low": pa.float64(),
        "high": pa.float64(),
        "rows": pa.int64(),
        "note": pa.string(),
    }
)
HEAVY_TYPE = pa.list_(pa.struct({"key": pa.string(), "answer": ANSWER_TYPE}))
_ARROW = {
    "string": pa.string(), "boolean": pa.bool_(), "integer": pa.int64(), "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(),
}  # fmt: skip
_OPTIONS = {
    "memory_kib": int,
    "depth": int,
    "seed": int,
    "at_least": int,
    "min_hashes": int,
    "heavy_pct": float,
}
_ROWS_AT_A_TIME = 262_144
_BEYOND = "above 2^53 a double has not every digit: the interval holds it, and spillway ask tells all"
_KINDS = ("count_min", "quantiles", "distinct", "pair_count")


@lru_cache(maxsize=8)
def _load_payload(payload: bytes) -> LoadedSketch:
    # cached, because a function is called with many rows that usually have the same payload
    return wrap_sketch(read_sketch(payload))


def sql_functions() -> dict[str, tuple[Callable[..., pa.Array], str]]:
    """Return all scalar functions by their names in SQL, each with its return type.

    >>> sorted(name.removeprefix("spillway_") for name in sql_functions())[:4]
    ['between', 'distinct', 'frequencies', 'frequencies_for']
    """
    return {
        f"spillway_{method}": (partial(_answer_rows, kind, method), returns)
        for kind in every_kind()
        for method, returns in kind.answers.items()
    }


def sketch_of(parts: Iterable[Sequence[pa.Array]]) -> bytes | None:
    """Return the sketch of all rows, which come in parts: the aggregate spillway_sketch(kind, value, ...).

    `kind` may have options, for example `'count_min, memory_kib=256, heavy_pct=1'`.

    >>> parts = [[pa.array(["count_min"] * 2), pa.array(["JFK", "LGA"])], [pa.array(["count_min"]), pa.array(["JFK"])]]
    >>> wrap_sketch(read_sketch(sketch_of(parts))).frequency("JFK").estimate
    2.0
    """
    spec: SketchSpec | None = None
    sketch: Any = None
    rows = 0
    for asked, *columns in parts:
        if not len(asked):
            continue
        if spec is None:
            spec = _parse_specification(asked[0].as_py(), columns)
            sketch = spec.empty() if spec.heavy_share else spec.kind_object.empty_part(spec)
        table = pa.table(
            {name: _plain_column(one) for name, one in zip(spec.attributes, columns, strict=True)}
        )
        ordinals = pa.array(range(rows, rows + table.num_rows), pa.int64())
        keys = spec.kind_object.add_rows(sketch, spec, table.append_column("seq", ordinals))
        rows += table.num_rows
        if spec.heavy_share and keys is not None:
            _label(sketch, spec, keys, table)
    if spec is None:
        return None
    whole = sketch if spec.heavy_share else spec.kind_object.finish(spec, sketch, {})
    found: bytes = whole.to_bytes()
    return found


def _label(sketch: Any, spec: SketchSpec, keys: Any, table: pa.Table) -> None:
    """Store the values of the keys that are heavy up to now."""
    unknown = np.setdiff1d(sketch.candidates, np.fromiter(sketch.labels, np.uint64, len(sketch.labels)))
    firsts = np.flatnonzero(np.isin(keys, unknown))
    _, places = np.unique(keys[firsts], return_index=True)
    rows = table.select(list(spec.attributes)).take(pa.array(firsts[places]))
    columns = [json_values(rows[name], kind) for name, kind in zip(spec.attributes, spec.types, strict=True)]
    sketch.label(keys[firsts[places]], [list(one) for one in zip(*columns, strict=True)])


def split_group(columns: Sequence[pa.Array]) -> Iterator[Sequence[pa.Array]]:
    """Yield the rows of a group in slices, so that intermediate results stay small."""
    for start in range(0, len(columns[0]), _ROWS_AT_A_TIME):
        yield [column.slice(start, _ROWS_AT_A_TIME) for column in columns]


def merge_payloads(payloads: pa.Array) -> bytes | None:
    """Merge the payloads to one: the aggregate spillway_merge(payload)."""
    whole, payloads = None, _as_payloads("spillway_merge", payloads)
    for payload in payloads.drop_null():
        sketch = read_sketch(payload.as_py())
        whole = sketch if whole is None else merge_sketches([whole, sketch])
    return None if whole is None else whole.to_bytes()


def _parse_specification(text: str | None, columns: Sequence[pa.Array]) -> SketchSpec:
    """Return the specification for the text `kind, option=value, ...` and columns of these types."""
    kind, *told = [part.strip() for part in str(text or "").split(",")]
    if kind not in _KINDS:
        raise InvalidValue("kind", f"be one of {', '.join(_KINDS)}", kind, "name one of them")
    given: dict[str, Any] = {"heavy_pct": None}
    for one in told:
        name, _, value = one.partition("=")
        try:
            given[name.strip()] = _OPTIONS[name.strip()](value)
        except (KeyError, ValueError):
            wanted = f"be {', '.join(f'{option}=NUMBER' for option in _OPTIONS)}"
            raise InvalidValue("option", wanted, one, "write e.g. 'count_min, memory_kib=256'") from None
    if given.get("memory_kib", 0) > MOST_KIB:
        raise InvalidValue("memory_kib", f"be at most {MOST_KIB:,}", given["memory_kib"], "give it less")
    names = tuple(f"value {place + 1}" for place in range(len(columns)))
    return SketchSpec(kind, names, tuple(_kind_of(one.type) for one in columns), **given)


def _kind_of(type_: pa.DataType) -> str:
    """Return the attribute type for an Arrow type."""
    for kind, known in (
        ("string", pa.types.is_string),
        ("string", pa.types.is_large_string),
        ("boolean", pa.types.is_boolean),
        ("integer", pa.types.is_integer),
        ("double", pa.types.is_floating),
        ("timestamp", pa.types.is_timestamp),
        ("date", pa.types.is_date),
    ):
        if known(type_):
            return kind
    raise InvalidValue(
        "value", f"be of a type among {', '.join(_ARROW)}", str(type_), "CAST it to one of them"
    )


def _plain_column(column: pa.Array) -> pa.Array:
    return column.cast(_ARROW[_kind_of(column.type)], safe=False)


def _cast_column(column: pa.Array, kind: str) -> pa.Array:
    """Convert a column to an attribute's type. Texts are parsed. A conversion that loses information is refused."""
    wanted = _ARROW[kind]
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    try:
        if text and kind != "string":
            return pa.array([coerce(value, kind) for value in column.to_pylist()], wanted)
        if text or kind != "string" or pa.types.is_null(column.type):
            return column.cast(wanted, safe=kind != "timestamp")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass
    got = column.to_pylist()[:1]
    raise InvalidValue("key", f"be a {kind}", got, "give the key with the attribute's own type")


def _plain(value: object) -> object:
    return (int(value) if value == int(value) else float(value)) if isinstance(value, Decimal) else value


def _as_payloads(function: str, column: pa.Array) -> pa.Array:
    if any(known(column.type) for known in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_null)):
        return column.cast(pa.binary())
    rule = "be given sketches, which are BINARY"
    raise InvalidValue(
        function, rule, str(column.type), "give it `payload` of the table `sketches`, or spillway_sketch(...)"
    )


def _nullable_arguments(kind: SketchKind, method: str, values: Sequence[pa.Array]) -> Sequence[bool]:
    """Return which of the arguments may be null; raise `InvalidValue` if their number is wrong."""
    takes = [
        one
        for one in signature(getattr(kind.query_class(), method)).parameters.values()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL)
    ][1:]
    any_number = bool(takes) and takes[-1].kind is Parameter.VAR_POSITIONAL
    needed = sum(one.default is Parameter.empty for one in takes)
    if len(values) < needed or (len(values) > len(takes) and not any_number):
        named = [one.name if one.default is Parameter.empty else f"[{one.name}]" for one in takes]
        rule = f"be given {', '.join(['payload', *named]) + ', ...' * any_number}"
        got = ", ".join(["payload", *(str(column.type) for column in values)])
        raise InvalidValue(f"spillway_{method}", rule, got, "see spillway.sketches.sql")
    takes = takes[: len(values)] + takes[-1:] * (len(values) - len(takes))
    return [one.kind is Parameter.VAR_POSITIONAL or one.default is None for one in takes]


def _single_values(column: pa.Array) -> list[Any]:
    """Return the arguments of a query, one value per row."""
    if not (pa.types.is_null(column.type) or pa.types.is_decimal(column.type)):
        _kind_of(column.type)
    return [_plain(value) for value in column.to_pylist()]


def _answer_rows(kind: SketchKind, method: str, payloads: pa.Array, *values: pa.Array) -> pa.Array:
    """Return the answers of `method` for each row. The answer is null if the payload or a required argument is null."""
    may_be_null, of_two = _nullable_arguments(kind, method, values), method in kind.of_two
    distinct = _as_payloads(f"spillway_{method}", payloads).dictionary_encode()
    if method == "frequency":
        return _frequency_of_each(distinct, values)
    if method == "frequency_for":
        return _frequency_of_each(distinct, values[1:], _purpose(values[0]))
    if method == "frequencies":
        return _frequencies_of_each(distinct, *values)
    if method == "frequencies_for":
        return _frequencies_of_each(distinct, values[1], _purpose(values[0]))
    places, known = distinct.indices.to_pylist(), distinct.dictionary.to_pylist()
    others = [_as_payloads(f"spillway_{method}", values[0]).to_pylist()] if of_two else []
    others += [_single_values(column) for column in values[of_two:]]
    found: dict[tuple[object, ...], Any] = {}
    answers: list[Any] = []
    for place, *told in zip(places, *others, strict=True):
        if place is None or any(one is None and not may for one, may in zip(told, may_be_null, strict=True)):
            answers.append(None)
            continue
        asked = (place, *told)
        if asked not in found:
            given = [_load_payload(told[0]), *asked[2:]] if of_two else asked[1:]
            found[asked] = _as_struct(
                _load_payload(known[place]), getattr(_load_payload(known[place]), method)(*given)
            )
        answers.append(found[asked])
    return pa.array(answers, HEAVY_TYPE if method == "top" else ANSWER_TYPE)


def _purpose(column: pa.Array) -> str:
    """Return the purpose of the answers, the same for all rows."""
    given = column.unique().to_pylist()
    if len(given) != 1 or not isinstance(given[0], str):
        raise InvalidValue(
            "purpose", f"be one of {', '.join(PURPOSES)} for all rows", given[:3], "write 'sum'"
        )
    return str(given[0])


def _as_struct(sketch: LoadedSketch, found: Answer | Sequence[Any]) -> Any:
    if isinstance(found, Answer):
        low, high = round_to_double(found.low, upward=False), round_to_double(found.high, upward=True)
        told = [f"{found.method}, {100 * found.confidence:g} % confidence"]
        told += [found.note] * bool(found.note)
        told += [_BEYOND] * (
            (low, high) != (found.low, found.high) or float(found.estimate) != found.estimate
        )
        return {
            "value": float(found.estimate),
            "low": low,
            "high": high,
            "rows": sketch.rows,
            "note": "; ".join(told),
        }
    return [
        {
            "key": None if one.key is None else json.dumps(list(one.key)),
            "answer": _as_struct(sketch, one.answer),
        }
        for one in found
    ]


def _frequency_of_each(
    payloads: pa.DictionaryArray, columns: Sequence[pa.Array], purpose: str = FREQUENT
) -> pa.Array:
    """Answer one key per row; all rows with the same payload are answered together."""
    place = np.asarray(payloads.indices.fill_null(-1))
    numbers = np.zeros((3, place.size))
    rows = np.zeros(place.size, np.int64)
    note = ""
    for one, payload in enumerate(payloads.dictionary.to_pylist()):
        mine = np.flatnonzero(place == one)
        sketch: Any = _load_payload(payload)
        found = _estimates(sketch, [column.take(pa.array(mine)) for column in columns], purpose)
        numbers[:, mine] = found.estimate, found.low, found.high
        rows[mine], note = sketch.rows, _method_note(found)
    return _structs(numbers, rows, note, place < 0)


def _frequencies_of_each(payloads: pa.DictionaryArray, keys: pa.Array, purpose: str = FREQUENT) -> pa.Array:
    """Answer an array of keys per row."""
    if not (pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type) or pa.types.is_null(keys.type)):
        raise InvalidValue(
            "keys", "be an array of keys", str(keys.type), "write array(key, ...), or collect_set(key)"
        )
    known: list[bytes] = payloads.dictionary.to_pylist()
    answers: list[pa.Array | None] = []
    for place, asked in zip(payloads.indices.to_pylist(), keys, strict=True):
        if place is None or not asked.is_valid:
            answers.append(None)
            continue
        sketch: Any = _load_payload(known[place])
        inner = asked.values
        found = _estimates(sketch, inner.flatten() if pa.types.is_struct(inner.type) else [inner], purpose)
        numbers = np.array([found.estimate, found.low, found.high])
        none = np.zeros(len(inner), np.bool_)
        answers.append(_structs(numbers, np.full(len(inner), sketch.rows), _method_note(found), none))
    sizes = [0 if one is None else len(one) for one in answers]
    whole = [one for one in answers if one is not None]
    offsets: list[int | None] = np.cumsum([0, *sizes]).tolist()
    for place, one in enumerate(answers):
        offsets[place] = None if one is None else offsets[place]
    flat = pa.concat_arrays(whole) if whole else pa.array([], ANSWER_TYPE)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _estimates(sketch: Any, columns: Sequence[pa.Array], purpose: str) -> Estimates:
    ask = sketch.frequencies
    typed = [_cast_column(column, kind) for column, kind in zip(columns, sketch.types, strict=False)]
    typed += columns[len(typed) :]
    found: Estimates = ask(typed, purpose=purpose)
    return found


def _method_note(found: Estimates) -> str:
    return f"{found.method}, {100 * found.confidence:g} % confidence"


def _structs(numbers: Any, rows: Any, note: str, none: Any) -> pa.Array:
    fields = [pa.array(edge) for edge in numbers] + [
        pa.array(rows),
        pa.array([note] * rows.size, pa.string()),
    ]
    return pa.StructArray.from_arrays(fields, fields=list(ANSWER_TYPE), mask=pa.array(none))

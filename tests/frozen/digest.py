"""Digests of a lake's tables, which do not depend on the order of rows, and how two of them differ. Not a test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

LEFT_OUT = {
    "seconds": "measured time",
    "core_seconds": "measured time",
    "raw_leaving": "names of files, which are random",
}
"""Columns that no digest covers, and why. Times of runs and names of runs are covered, because the clock is fixed."""
LEFT_OUT_OF = {
    "daily_sketches": {"batch": "the last batch in the order of files, whose names are random"},
    "validations": {
        "where_": "examples of rows in the order of files, whose names are random",
        "sentence": "holds the same examples",
    },
}
"""The same for single tables."""
SENTENCES = {
    "batches": ("reason", "rate_note", "sent_whole", "files.reason"),
    "ledger": ("reason",),
    "rejected": ("rule", "remedy"),
    "validations": ("expectation", "expected", "observed"),
    "schemes": ("reason",),
    "sifters": ("reason",),
    "windows": ("failed", "failed_by"),
    "models": ("evidence",),
    "exemptions": ("reason",),
}
"""Columns with text for people. They have digests of their own, and the digests of rows leave them out."""
WORDS = (
    "scope", "stage", "unit", "dimension_kind", "status", "treatment", "kind", "lever", "fact", "table", "policy",
    "partition",
)  # fmt: skip
"""Columns with a fixed vocabulary: the values that occur are listed."""
BY = ("stream", "subject", "hook")
"""The column that says whose a row of a shared table is."""


def digest_tables(folder: Path) -> dict[str, Any]:
    """Return by table its format, a digest of each column, and by stream the number of rows and their digest."""
    found = {}
    for log in sorted(folder.rglob("_delta_log")):
        table = str(log.parent.relative_to(folder))
        found[table] = digest_table(log.parent, table.split("/")[1])
    return found


def digest_table(path: Path, name: str) -> dict[str, Any]:
    """Return the digest of one table."""
    table = DeltaTable(str(path))
    about = table.metadata()
    left_out = {*LEFT_OUT, *LEFT_OUT_OF.get(name, ())}
    rows = [_split(row) for row in table.to_pyarrow_table().to_pylist()]
    kinds = {one.name: str(one.type.type) for one in table.schema().fields}
    columns: dict[str, list[str]] = {column: [] for column in kinds if column not in left_out}
    words: dict[str, set[str]] = {}
    subjects: dict[str, list[str]] = {}
    by = next((column for column in BY if column in kinds), None)
    for row in rows:
        for column, value in row.items():
            if column not in left_out:
                columns.setdefault(column, []).append(canonical(value))
            if column in WORDS and isinstance(value, str):
                words.setdefault(column, set()).add(value)
        values = {k: v for k, v in row.items() if k not in left_out and k not in SENTENCES.get(name, ())}
        subjects.setdefault(str(row[by]) if by else path.name, []).append(canonical(values))
    found: dict[str, Any] = {
        "format": {"partitioned by": about.partition_columns, **dict(sorted(about.configuration.items()))},
        "columns": {k: f"{kinds.get(k, 'part')} {digest_of(texts)}" for k, texts in columns.items()},
        "rows": {k: f"{len(texts)} rows {digest_of(texts)}" for k, texts in sorted(subjects.items())},
    }
    if words:
        found["words"] = {column: sorted(values) for column, values in sorted(words.items())}
    return found


def _split(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the sentences of the files of a batch in a column of their own."""
    if isinstance(row.get("files"), list):
        row["files.reason"] = [file.pop("reason", None) for file in row["files"]]
    return row


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values only.

    >>> canonical({"b": 0.1, "a": [None, b"x", date(2026, 1, 2)]})
    '{"a": [null, "0x78", "2026-01-02"], "b": "0.1"}'
    """
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value


def digest_of(texts: Iterable[str]) -> str:
    """Return the digest of texts in any order."""
    whole = hashlib.sha256()
    for one in sorted(hashlib.sha256(text.encode()).digest() for text in texts):
        whole.update(one)
    return whole.hexdigest()[:12]


def schema_digests(folder: Path) -> dict[str, str]:
    """Return a digest of each JSON Schema without its explanations, which may change at any time."""
    found = {}
    for path in sorted(folder.glob("*.schema.json")):
        found[path.name] = digest_of([canonical(_unexplained(json.loads(path.read_text(encoding="utf-8"))))])
    return found


def _unexplained(node: Any) -> Any:
    if isinstance(node, list):
        return [_unexplained(one) for one in node]
    if isinstance(node, dict):
        texts = ("description", "markdownDescription", "title", "examples")
        return {k: _unexplained(v) for k, v in node.items() if not (k in texts and not isinstance(v, dict))}
    return node


def table_differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each table that differs: the streams and the columns with other values.

    >>> before = {"lake/raw/a": {"columns": {"seq": "long 1", "temp": "double 2"}, "rows": {"a": "9 rows 3"}}}
    >>> after = {"lake/raw/a": {"columns": {"seq": "long 1", "temp": "double 7"}, "rows": {"a": "9 rows 8"}}}
    >>> list(table_differences(before, after))
    ['lake/raw/a: rows of a differ; columns with other values: temp']
    """
    for table in sorted({*expected, *found}):
        before, after = expected.get(table), found.get(table)
        if before is None or after is None:
            yield f"{table}: {'is new' if before is None else 'is gone'}"
            continue
        parts = []
        for stream in sorted({*before["rows"], *after["rows"]}):
            was, now = (side["rows"].get(stream, "0 rows -").rsplit(" ", 1) for side in (before, after))
            if was != now:
                counts = f" ({was[0]} became {now[0]})" if was[0] != now[0] else ""
                parts.append(f"rows of {stream}{counts} differ")
        columns = _changed(before["columns"], after["columns"])
        if columns:
            parts.append(f"columns with other values: {', '.join(columns)}")
        for section in ("format", "words"):
            for key in _changed(before.get(section, {}), after.get(section, {})):
                was, now = (side.get(section, {}).get(key) for side in (before, after))
                parts.append(f"{section} {key}: {was} became {now}")
        if parts:
            yield f"{table}: {'; '.join(parts)}"


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        key if key in before and key in after else f"{key} ({'gone' if key in before else 'new'})"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]

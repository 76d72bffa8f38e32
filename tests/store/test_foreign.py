"""Tables that other programs wrote are read right, or refused by the name of what they ask for; never as nulls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.cli.contracts import read_query_log
from spillway.errors import InvalidExternalValue, InvalidValue
from spillway.store.delta_log import read_foreign

DAT = Path(__file__).with_name("dat")
CASES = sorted(path.name for path in DAT.iterdir() if path.is_dir())


def every(names: Sequence[str]) -> Sequence[str]:
    return names


def plain(value: Any) -> Any:
    """A value that can be counted: nested ones as text, floats by their bits."""
    if isinstance(value, float):
        return value.hex()
    return repr(value) if isinstance(value, list | dict | tuple) else value


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(value) for value in row.values()) for row in table.to_pylist())


def test_all_acceptance_tables_are_there() -> None:
    assert len(CASES) == 19


@pytest.mark.parametrize("case", CASES)
def test_an_acceptance_table_is_read_value_by_value(case: str) -> None:
    expected = pq.read_table(sorted((DAT / case / "expected" / "latest" / "table_content").glob("*.parquet")))
    found = read_foreign(str(DAT / case / "delta"), every)
    assert sorted(found.column_names) == sorted(expected.column_names)
    assert expected.num_rows > 0
    assert rows_of(found.select(expected.column_names)) == rows_of(expected)


def made(folder: Path, rows: pa.Table, readers: Sequence[str] = (), writers: Sequence[str] = ()) -> str:
    """A table whose protocol asks for features."""
    from deltalake import write_deltalake

    write_deltalake(str(folder), rows)
    asked = {"readerFeatures": list(readers), "writerFeatures": list(writers)}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **asked}
    (folder / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    return str(folder)


@pytest.mark.parametrize("feature", ["typeWidening", "variantType", "somethingNew"])
def test_a_table_that_asks_for_more_is_refused_by_name(tmp_path: Path, feature: str) -> None:
    rows = pa.table({"query": ["select 1"], "runs": [1]})
    path = made(tmp_path / "log", rows, [feature], [feature])
    with pytest.raises(
        InvalidValue, match=rf"`protocol` must ask for no feature .* to read, got '{feature}'; drop it"
    ):
        read_query_log(path)


def test_columns_of_any_name_are_read(tmp_path: Path) -> None:
    rows = pa.table({"Query": ["a", None], 'ru"ns': [1, 2], "a b": [None, 3]})
    assert read_foreign(made(tmp_path / "log", rows), every).to_pydict() == rows.to_pydict()


@pytest.mark.parametrize("content", [None, b"no Parquet"])
def test_a_table_whose_file_is_gone_or_damaged_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = made(tmp_path / "log", pa.table({"query": ["a"]}))
    (file,) = Path(path).glob("*.parquet")
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidExternalValue, match="`table` must be one that delta-rs reads"):
        read_query_log(path)

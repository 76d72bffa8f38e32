"""A lake that the Spillway of commit cb4bc496 made is migrated to the rows that the Spillway of today makes.

`tests/golden/old_lake.tar.xz` has the tables with other names now, of the frozen lake (`tests.frozen`) of that commit.
`tests/golden/migrated_lake.json` has the digests of the same tables, which the frozen lake had after the renames.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.frozen.digest import digest_tables, table_differences
from tests.pipeline.renamed_lake import settings_of

from spillway.streams.migrate import migrate

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.mark.long
def test_migrated_lake_of_an_old_spillway_has_the_rows_of_a_new_one(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "old_lake.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    settings = replace(settings_of(tmp_path), destination=str(tmp_path / "destination"))
    assert {one.name for one in migrate(settings)} == {
        "batches", "certificates", "coverage", "destination_metadata", "join_windows", "ledger", "schemes", "sifters",
    }  # fmt: skip
    expected = json.loads((GOLDEN / "migrated_lake.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(digest_tables(tmp_path)))
    assert list(table_differences(expected, found)) == []
    assert sorted(found) == sorted(expected)
    assert migrate(settings) == []

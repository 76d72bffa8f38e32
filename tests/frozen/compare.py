"""The reference of the frozen lake in `tests/golden`, and the comparison with it. Not a test.

`frozen_lake.json`: digests of tables, words that tables store, exit codes, digests of the JSON Schemas.
`frozen_texts.json`: the lines that commands print. A change of language changes this file alone, and the columns with
sentences (`digest.SENTENCES`).
"""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.frozen.digest import digest_tables, schema_digests, table_differences
from tests.frozen.lake import ROOT, FrozenLake, json_lines

REFERENCE = ROOT / "tests" / "golden" / "frozen_lake.json"
TEXTS = ROOT / "tests" / "golden" / "frozen_texts.json"
MOST_LINES = 40
"""Lines of a text's difference that are shown."""


def make_and_digest(folder: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the lake; return what its tables hold, and the texts."""
    with tempfile.TemporaryDirectory(prefix="frozen-lake-") as place:
        lake = FrozenLake(folder or Path(place, "frozen"))
        lake.make()
        found = {
            "tables": digest_tables(lake.folder),
            "exit codes": lake.exit_codes,
            "schemas": schema_digests(ROOT / "schemas"),
        }
        return json.loads(json.dumps(found)), lake.lines


def write_reference(folder: Path | None = None) -> None:
    """Make the lake, write the reference, and print what changed in it."""
    found, texts = make_and_digest(folder)
    if REFERENCE.is_file():
        for line in differences(found, texts):
            print(line)
    REFERENCE.write_text(json_lines(found), encoding="utf-8")
    TEXTS.write_text(json_lines(texts), encoding="utf-8")
    rows = [text for table in found["tables"].values() for text in table["rows"].values()]
    print(
        f"reference written: {len(found['tables'])} tables, {sum(int(one.split()[0]) for one in rows):,} rows"
    )


def compare_with_reference(folder: Path | None = None) -> list[str]:
    """Make the lake, and print and return how it differs from the reference."""
    lines = list(differences(*make_and_digest(folder)))
    for line in lines:
        print(line)
    print("the frozen lake differs from its reference" if lines else "the frozen lake is the same")
    return lines


def differences(found: Mapping[str, Any], texts: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a line for each difference from the reference."""
    expected = json.loads(REFERENCE.read_text(encoding="utf-8"))
    yield from table_differences(expected["tables"], found["tables"])
    for section in ("exit codes", "schemas"):
        for key in dict.fromkeys([*expected[section], *found[section]]):
            was, now = expected[section].get(key), found[section].get(key)
            if was != now:
                yield f"{section}: {key}: {was} became {now}"
    before = json.loads(TEXTS.read_text(encoding="utf-8"))
    for command in dict.fromkeys([*before, *texts]):
        was_lines, now_lines = before.get(command, []), texts.get(command, [])
        if was_lines != now_lines:
            yield f"text of {command} differs:"
            changed = list(difflib.unified_diff(was_lines, now_lines, n=0, lineterm=""))[2:]
            yield from (f"    {line}" for line in changed[:MOST_LINES] if not line.startswith("@@"))

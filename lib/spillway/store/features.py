"""What a Delta table's protocol asks of whoever reads or writes it, and which of it Spillway knows.

Files are read, and committed, by what the log says of them alone. A table may ask for more: rows that are struck out
beside their files (deletion vectors), columns under other names (column mapping), conditions that writers check. Read
or written without it the table would say something else, so that one that asks for what is not known is refused by
name. Protocols name what they ask for one by one from reader version 3 and writer version 7 on; before that a version
stands for all up to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from spillway.errors import RefusedElsewhere

READ_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck"})
WRITE_FEATURES = READ_FEATURES | {"appendOnly", "invariants"}
"""What is known, of readers and of writers: nothing of it changes what files mean."""
_LEGACY_READ = ((2, "columnMapping"),)
_LEGACY_WRITE = (
    (3, "checkConstraints"),
    (4, "changeDataFeed"),
    (4, "generatedColumns"),
    (5, "columnMapping"),
    (6, "identityColumns"),
)
_UNSUPPORTED = re.compile(r"Feature '(\w+)' is not supported")
_READERS_LISTED_FROM, _WRITERS_LISTED_FROM = 3, 7


def refuse_features(
    path: str, table: Any | None, to_write: bool, known: frozenset[str] = READ_FEATURES
) -> None:
    """Refuse a table (of delta-rs; None: it does not exist yet) that needs an unknown feature.

    `known`: the features that the caller's reader supports.
    """
    if table is None:
        return
    protocol = table.protocol()
    foreign = foreign_features(
        (protocol.min_reader_version, protocol.reader_features or ()),
        (protocol.min_writer_version, protocol.writer_features or ()),
        to_write,
        known,
    )
    if foreign:
        raise _refused(path, foreign, "write" if to_write else "read")


def refuse_unknown(path: str, problem: Exception) -> None:
    """Refuse, in the same words, a table that delta-rs itself would not open for a feature that it does not know."""
    found = _UNSUPPORTED.findall(str(problem))
    if found:
        raise _refused(path, found, "read") from problem


def _refused(path: str, features: Sequence[str], to_do: str) -> RefusedElsewhere:
    return RefusedElsewhere(
        "protocol",
        f"ask for no feature that Spillway does not know to {to_do}",
        ", ".join(features),
        "drop it by Spark (ALTER TABLE ... DROP FEATURE ...), or restore the table's version before it was added",
        path,
    )


def foreign_features(
    reader: tuple[int, Sequence[str]],
    writer: tuple[int, Sequence[str]],
    to_write: bool,
    known: frozenset[str] = READ_FEATURES,
) -> list[str]:
    """What a protocol (version and listed features, of readers and of writers) asks for that is not known.

    >>> foreign_features((3, ["deletionVectors", "timestampNtz"]), (7, ["deletionVectors", "rowTracking"]), False)
    ['deletionVectors']
    >>> foreign_features((1, []), (7, ["appendOnly", "rowTracking"]), True), foreign_features((1, []), (3, []), True)
    (['rowTracking'], ['checkConstraints'])
    >>> foreign_features((1, []), (2, []), True)
    []
    """
    asked = _asked(*reader, _READERS_LISTED_FROM, _LEGACY_READ) - known
    if to_write:
        asked |= _asked(*writer, _WRITERS_LISTED_FROM, _LEGACY_WRITE) - WRITE_FEATURES
    return sorted(asked)


def _asked(
    version: int, listed: Sequence[str], listed_from: int, legacy: Sequence[tuple[int, str]]
) -> frozenset[str]:
    if version >= listed_from:
        return frozenset(map(str, listed))
    return frozenset(name for at, name in legacy if version >= at)

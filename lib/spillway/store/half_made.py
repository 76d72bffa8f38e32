"""Tables that somebody died of making: a log whose only commit, the one that makes the table, is not whole.

Tables are made by a commit of their own, without a row: where it is broken and no other follows, nothing was ever in
the table. The broken file is put aside, under a name that no reader of Delta looks at, and whoever writes next makes
the table anew. What others have committed to is left as it is: only a person can know what it held.
"""

from __future__ import annotations

import json
import uuid

from spillway.store.blobs import list_files, move, read_bytes

_FIRST = "00000000000000000000.json"


def put_aside(table: str) -> bool:
    """Put the broken first commit of a table aside; False where there is none, or where others follow it."""
    log = f"{table}/_delta_log"
    names = {one.path.removeprefix(f"{log}/") for one in list_files(log)}
    commits = {
        name for name in names if name.split(".")[0].isdigit() and name.endswith((".json", ".parquet"))
    }
    if commits != {_FIRST} or _is_whole(read_bytes(f"{log}/{_FIRST}")):
        return False
    aside = f"{log}/_broken_{uuid.uuid4()}.tmp"
    move(f"{log}/{_FIRST}", aside)
    if _is_whole(read_bytes(aside)):
        # somebody else was quicker, and has made the table meanwhile
        move(aside, f"{log}/{_FIRST}")
    return True


def _is_whole(content: bytes) -> bool:
    """Whether it is a commit that makes a table."""
    try:
        actions = [json.loads(line) for line in content.decode().splitlines() if line]
    except ValueError:
        return False
    return {"protocol", "metaData"} <= {name for action in actions for name in action}

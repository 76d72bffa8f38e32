"""Compare the ledger's bytes with the bytes at the destination: files, and the logs of the commits that added them.

The disk is read without the product: the sizes of the files that the logs name, and the lines of the logs, except
those that created the table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from evidence.attributes.at_capacity import ledger_bytes
from evidence.attributes.lake import Lake
from spillway.contracts import Channel, StreamContract

MADE = ("metaData", "protocol")
"""Lines of a log that create a table."""


def bytes_at(destination: Path, stream: str) -> int:
    """Return the bytes of a stream's files and of the commits that added them, below a root."""
    total = 0
    for log in [*destination.rglob("_delta_log")]:
        table = log.parent
        if table.name not in (stream, "sent_synopsis", "destination_metadata"):
            continue
        for commit in sorted(log.glob("*.json")):
            lines = [
                line for line in commit.read_text(encoding="utf-8").splitlines(keepends=True) if line.strip()
            ]
            adds = [one["add"] for one in map(json.loads, lines) if "add" in one]
            mine = [
                one for one in adds if table.name == stream or one["partitionValues"].get("stream") == stream
            ]
            if not mine:
                continue
            total += sum((table / one["path"]).stat().st_size for one in mine)
            total += sum(len(line.encode()) for line in lines if not set(json.loads(line)) & set(MADE))
    return total


def counted_over_file_bytes(
    contracts: Mapping[str, StreamContract],
    files: Mapping[str, Mapping[str, bytes]],
    channels: Mapping[str, Channel],
) -> dict[str, float]:
    """Return `attributes.counted_over_file_bytes.<stream>` of streams that were sent to a disk."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.land("counted", contracts, files, channels, folder)
        lake.train()
        lake.send()
        found = {}
        for stream in contracts:
            lies = bytes_at(Path(lake.settings.destination), stream)
            found[f"attributes.counted_over_file_bytes.{stream}"] = sum(
                ledger_bytes(lake, stream).values()
            ) / max(1, lies)
        return found

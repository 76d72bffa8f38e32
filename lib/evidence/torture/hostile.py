"""Generate hostile inputs from a seed: landing files, contracts, channels, and arguments of `spillway recover`.

Every input is generated from its own number, so that each can be reproduced alone. A check passes it to the product,
which must accept it or reject it by name. Any other exception is a fault. Other faults are a file whose records differ
if it is read in slices, and an answer with control characters.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from spillway.cli import main
from spillway.contracts import StreamContract, check, read_stream
from spillway.records import (
    WholeFile,
    file_slices,
    lines,
    measure_file,
    parse_blocks,
    parse_records,
    split_file,
)

FIELDS = ("site", "at", "level", "count", "up", "day", "note")
TYPES = ("string", "timestamp", "double", "integer", "boolean", "date", "string")
ODD_VALUES = (
    "", "0", "-1", "1.5", "1e999", "nan", "NaN", "-Infinity", "9" * 30, "2026-01-01",
    "2026-01-01T00:00:00Z", "true", "null",
    '"', '""', ",", ";", "\n", "\r\n", "\r", "\t", " ", "\x00", "\x1b[2J", "\ufeff", "é", "\u202e", "{", "}", "[",
    "]", ":",
    "0x1F", "0001-01-01", "9999-12-31T23:59:59.999999+23:59", "../../etc/passwd", "[" * 300, "'", "\\",
    "\\ud800", "%00",
    "<script>", "s3://b/", "1 kbps", "5 GB/day", "-0", "1_000", ".", "..", "&a", "*a",
    "!!python/object:x", "- ", "? ", "|\n", "x" * 3000,
)  # fmt: skip
_CONTRACT: dict[str, Any] = {
    "stream": "rooms", "channel": "uplink", "source": {"kind": "files", "path": "rooms", "format": "json"},
    "rate": {"from": "declared", "tuples_per_second": 10},
    "attributes": [
        {"name": name, "type": kind} | ({"role": role} if role else {})
        for name, kind, role in zip(FIELDS, TYPES, ("key", "order", *[""] * 4, "protected"), strict=True)
    ],
    "duplicates": {"rows": "exact", "on": ["site", "at"]}, "retain_raw": {"days": 3},
    "sketches": [{"kind": "count_min", "attributes": ["site"]}, {"kind": "quantiles", "attributes": ["level"]}],
    "levers": [{"lever": "attributes", "rank_by": "relative", "treatments": ["keep", "round"]}],
}  # fmt: skip
_CHANNELS: dict[str, Any] = {
    "channels": {
        "uplink": {"capacity": "1 kbps"},
        "paid": {"capacity": {"quota": "2 GB", "per": "day", "carry_over_pct": 20, "burst": "5 Mbps"}},
        "air": {"capacity": {"bandwidth_khz": 4, "signal_to_noise_db": 20}, "into": "uplink"},
        "priced": {"capacity": "1 Mbps", "minimize": "bytes", "prices": {"sent_per_gb": 2, "kept_per_gb": 1}},
    }
}


class Fault(AssertionError):
    """An input that was neither accepted nor rejected by name."""


def contract_of(draw: random.Random, form: str) -> StreamContract:
    """Return one of the contracts, which reject different things."""
    options = {"delimiter": draw.choice(",;\t|¦ "), "header": draw.random() < 0.8} if form == "csv" else {}
    value = {**_CONTRACT, "source": {"format": form, **({"options": options} if options else {})}}
    value |= {"unknown_fields": draw.choice(["note", "refuse"]), "levers": [], "sketches": []}
    value |= {"non_finite": draw.choice(["keep", "null", "reject"])}
    return read_stream({**value, "timezone": draw.choice(["UTC", "Europe/Berlin"])})


def mutate(draw: random.Random, content: bytes) -> bytes:
    """Return the bytes, changed in a few places."""
    found = bytearray(content)
    for _ in range(draw.choice([0, 1, 1, 2, 3, 8, 40])):
        place = draw.randrange(len(found) + 1)
        match draw.randrange(7):
            case 0:
                found[place : place + 1] = bytes([draw.randrange(256)])
            case 1:
                del found[place : place + draw.choice([1, 2, 8, 100])]
            case 2:
                found[place:place] = draw.choice(ODD_VALUES).encode("utf-8", "surrogatepass")
            case 3:
                found[place:place] = found[place : place + draw.choice([1, 20, 200])] * draw.choice(
                    [1, 2, 30]
                )
            case 4:
                found = found[:place] if draw.random() < 0.3 else found
            case 5:
                found[place : place + 4] = draw.choice(
                    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0"]
                )
            case 6:
                found[place:place] = draw.randbytes(draw.choice([1, 4, 64]))
    return bytes(found)


def _value(draw: random.Random, kind: str) -> Any:
    if draw.random() < 0.15:
        return draw.choice(ODD_VALUES)
    day = f"20{draw.randrange(10, 40)}-{draw.randrange(1, 13):02}-{draw.randrange(1, 31):02}"
    plain = {
        "string": draw.choice(["a", "b", "two words", 'say "hi"', "x, y"]),
        "timestamp": f"{day}T{draw.randrange(25):02}:00:00Z",
        "double": draw.choice([0.0, -1.25, 1e300, 5e-324, draw.random()]), "integer": draw.randrange(-(2**63), 2**63),
        "boolean": draw.random() < 0.5, "date": day,
    }  # fmt: skip
    return plain[kind]


def json_file(draw: random.Random) -> bytes:
    rows = []
    for _ in range(draw.choice([0, 1, 3, 30, 200])):
        row = {
            name: _value(draw, kind) for name, kind in zip(FIELDS, TYPES, strict=True) if draw.random() < 0.95
        }
        if draw.random() < 0.1:
            row[draw.choice(ODD_VALUES)] = draw.choice([1, None, {"deep": [1]}, "x", [[]], True, 1.5])
        rows.append(json.dumps(row, ensure_ascii=draw.random() < 0.5))
    return draw.choice(["\n", "\n", "\r\n", "\n\n"]).join(rows).encode("utf-8", "surrogatepass")


def csv_file(draw: random.Random) -> bytes:
    mark = draw.choice(",,,,;\t|")
    quoted = draw.choice([0.0, 0.1, 1.0])

    def cell(value: Any) -> str:
        text = str(value)
        if draw.random() < quoted or mark in text or '"' in text:
            return '"' + (text.replace('"', '""') if draw.random() < 0.97 else text) + '"'
        return text

    names = [*FIELDS, *(["extra"] if draw.random() < 0.1 else [])]
    draw.shuffle(names)
    kinds = dict(zip(FIELDS, TYPES, strict=True))
    rows = [mark.join(map(cell, names))]
    for _ in range(draw.choice([0, 1, 3, 30, 200])):
        rows.append(mark.join(cell(_value(draw, kinds.get(name, "string"))) for name in names))
    return draw.choice(["\n", "\n", "\r\n"]).join(rows).encode("utf-8", "surrogatepass")


def parquet_file(draw: random.Random) -> bytes:
    count = draw.choice([0, 1, 5, 300])
    unit = draw.choice(["s", "ms", "us", "ns"])
    far = {"s": 2**45, "ms": 2**55}.get(unit, 2**62)
    columns: dict[str, pa.Array] = {
        "site": pa.array([draw.choice(["a", "b", None]) for _ in range(count)], pa.string()),
        "at": pa.array([draw.choice([0, draw.randrange(-far, far), None]) for _ in range(count)],
                       pa.timestamp(unit, draw.choice([None, "UTC", "Asia/Tokyo"]))),
        "level": pa.array([draw.choice([1.5, float("nan"), float("inf"), None]) for _ in range(count)],
                          draw.choice([pa.float64(), pa.float32()])),
        "count": pa.array([draw.choice([0, 255, None]) for _ in range(count)],
                          draw.choice([pa.uint8(), pa.uint64(), pa.int16()])),
        "up": pa.array([draw.choice([True, None]) for _ in range(count)], pa.bool_()),
        "day": pa.array([draw.choice([0, -(2**31), 2**31 - 1, None]) for _ in range(count)],
                        pa.int32()).cast(pa.date32()),
        "note": pa.array([draw.choice(["x", "long " * 50]) for _ in range(count)]).dictionary_encode(),
    }  # fmt: skip
    if draw.random() < 0.2:
        columns[draw.choice(["odd", "a.b", "site.x"])] = pa.array(
            [[{"deep": 1}]] * count, pa.list_(pa.struct({"deep": pa.int8()}))
        )
    if draw.random() < 0.2:
        del columns[draw.choice(list(columns))]
    if draw.random() < 0.1:
        columns["level"] = pa.array(["text"] * count)
    sink = io.BytesIO()
    options = {
        "compression": draw.choice(["none", "snappy", "zstd", "gzip"]),
        "row_group_size": draw.choice([1, 50, 1000]),
    }
    # mypy takes no union of options
    pq.write_table(pa.table(columns), sink, **options, allow_truncated_timestamps=True, version="2.6")
    return sink.getvalue()


FILES: Mapping[str, Callable[[random.Random], bytes]] = {
    "json": json_file,
    "csv": csv_file,
    "parquet": parquet_file,
}


def check_file(draw: random.Random, form: str, wrapped: bool = False) -> bool:
    """Read a file of this format; return whether some of it was accepted."""
    content = FILES[form](draw)
    content = mutate(draw, content) if draw.random() < 0.8 else content
    if wrapped:
        packed = (
            gzip.compress(content, mtime=0)
            if draw.random() < 0.5
            else bytes(pa.compress(content, "zstd", asbytes=True))
        )
        packed = draw.choice(
            [packed, packed, packed, packed + packed, gzip.compress(packed, mtime=0), packed + b"tail"]
        )
        content = mutate(draw, packed) if draw.random() < 0.4 else packed
    contract = contract_of(draw, form)
    with mock.patch.object(lines, "BLOCK_BYTES", draw.choice([64, 1000, 8 << 20])):
        whole = parse_records(contract, "landed\x1b", content)
    counted = measure_file(contract, pa.BufferReader(content)).records
    numbers = [*whole.table["line"].to_pylist(), *whole.rejected["line"].to_pylist()]
    if len(numbers) != len(set(numbers)) or max([0, *numbers]) > counted:
        raise Fault(f"lines {sorted(numbers)[-3:]} of {counted} counted")
    for word in ("field", "rule", "value", "remedy", "reason"):
        if not all(text.isprintable() for text in whole.rejected[word].to_pylist()):
            raise Fault(f"a {word} that moves the cursor")
    _same_in_pieces(contract, content, whole.table, draw.choice([200, 1000, 5000]))
    return bool(whole.table.num_rows)


def _same_in_pieces(contract: StreamContract, content: bytes, whole: pa.Table, size: int) -> None:
    source = pa.BufferReader(content)
    with mock.patch.object(file_slices, "BLOCK_BYTES", size):
        cuts = split_file(contract, source, size)
    try:
        parts = [part.table for piece in cuts for part in parse_blocks(contract, "landed", source, piece)]
    except WholeFile:
        parts = []
    found = pa.concat_tables(parts) if parts else whole.slice(0, 0)
    if str(found.to_pydict()) != str(whole.to_pydict()):  # NaN is not equal to itself
        raise Fault(f"{whole.num_rows} records whole, {found.num_rows} in {len(cuts)} pieces, or others")


def _mutate_document(draw: random.Random, value: Any, often: float) -> Any:
    """Return a document with some of its values, names and lists changed."""
    if draw.random() < often:
        return draw.choice(
            [
                None,
                True,
                -1,
                0,
                1e308,
                10**30,
                float("nan"),
                [],
                {},
                [[]],
                *ODD_VALUES,
                ["x"] * 50,
                {"a": {"b": 1}},
            ]
        )
    if isinstance(value, dict):
        pairs = [
            (
                name if draw.random() > often / 2 else draw.choice(ODD_VALUES),
                _mutate_document(draw, item, often),
            )
            for name, item in value.items()
        ]
        return dict(pairs if draw.random() > often else pairs[1:])
    if isinstance(value, list):
        return [_mutate_document(draw, item, often) for item in value] * (
            1 if draw.random() > often / 2 else 3
        )
    return value


def check_contract(draw: random.Random, what: str) -> bool:
    """Check a folder with one contract and the channels, one of them odd; return whether it was valid."""
    documents = {"streams/rooms.yaml": _CONTRACT, "channels.yaml": _CHANNELS}
    odd = "streams/rooms.yaml" if what == "contract" else "channels.yaml"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "streams").mkdir()
        for path, document in documents.items():
            shaken = (
                _mutate_document(draw, document, draw.choice([0.0, 0.005, 0.02, 0.06]))
                if path == odd
                else document
            )
            text = yaml.safe_dump(shaken, sort_keys=False, allow_unicode=draw.random() < 0.5)
            content = text.encode("utf-8", "surrogatepass")
            (folder / path).write_bytes(
                mutate(draw, content) if path == odd and draw.random() < 0.5 else content
            )
        found = [str(problem) for problem in check(folder)]
    for text in found:
        if not all(part.isprintable() for part in text.split("\n")) or len(text) > 5000:
            raise Fault(f"a problem that moves the cursor or fills the screen: {text[:200]!r}")
    return not found


_WORDS = (
    "--attributes",
    "--key",
    "--seq",
    "--from-seq",
    "--to-seq",
    "--from-time",
    "--to-time",
    "--limit",
    "--json",
)
_ANSWERS = ("rooms", "level", "site=a", "site=", "=a", "level=1", "level,level", "2026-01-01",
            "2026-01-01T00:00:00+02:00",
            "-1", "0", "5", str(2**63), str(10**30), "9999-12-31T23:59:59-23:59",
            "0001-01-01T00:00:00+23:59")  # fmt: skip


def check_arguments(draw: random.Random, what: str) -> bool:
    """Run `spillway recover` with these arguments; return whether they were valid."""
    words = ["recover", draw.choice(["rooms", "rooms", "rooms", draw.choice(ODD_VALUES)])]
    for _ in range(draw.randrange(6)):
        words.append(draw.choice(_WORDS))
        if draw.random() < 0.9:
            words.append(draw.choice(_ANSWERS if draw.random() < 0.7 else ODD_VALUES))
    out, problems = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(problems):
        try:
            code = main(words)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    if code not in (0, 1, 2):
        raise Fault(f"exit code {code}")
    said = problems.getvalue()
    if "Traceback" in said or not all(part.isprintable() for part in said.splitlines()):
        raise Fault(f"what it says is no sentence: {said[:300]!r}")
    return code == 0


JUDGES: Mapping[str, Callable[[random.Random], bool]] = {
    "json": lambda draw: check_file(draw, "json"),
    "csv": lambda draw: check_file(draw, "csv"),
    "parquet": lambda draw: check_file(draw, "parquet"),
    "wrapped": lambda draw: check_file(draw, draw.choice(["json", "csv", "csv", "parquet"]), wrapped=True),
    "contract": lambda draw: check_contract(draw, "contract"),
    "channels": lambda draw: check_contract(draw, "channels"),
    "recover": lambda draw: check_arguments(draw, "recover"),
}
"""Who judges which kind of input."""


def prepare_lake(folder: Path) -> None:
    """Create a lake with a few tuples of `rooms`, for queries by its environment variables."""
    from spillway.engine import ProcessEngine
    from spillway.intake.ingest import ingest
    from spillway.settings import Settings
    from spillway.store.tables import Tables

    (folder / "schemas" / "streams").mkdir(parents=True)
    (folder / "schemas" / "streams" / "rooms.yaml").write_text(yaml.safe_dump(_CONTRACT, sort_keys=False))
    (folder / "schemas" / "channels.yaml").write_text(yaml.safe_dump(_CHANNELS))
    landed = folder / "landing" / "rooms" / "2026-01-01" / "a.json"
    landed.parent.mkdir(parents=True)
    rows = [{"site": "a", "at": f"2026-01-01T{hour:02}:00:00Z", "level": hour / 2} for hour in range(24)]
    landed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(landed, (1, 1))
    os.environ |= {
        f"SPILLWAY_{name.upper()}": str(folder / name) for name in ("lake", "landing", "schemas", "build")
    }
    ingest(Tables(Settings.from_environment()), ProcessEngine(), read_stream(_CONTRACT), "fuzz")

"""`spillway recover STREAM`: a few keys without Spark, or a whole range through the job."""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli.output import UsageError, command, say, say_json, say_table
from spillway.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

FILE_KINDS = (".parquet", ".csv", ".json")


def add(commands: Any) -> None:
    made = command(
        commands,
        "recover",
        "Give shed values back, each with its bound. Reads the few files it needs; starts no Spark.",
        [
            "spillway recover weather --attributes temp --key origin=JFK --seq 4711",
            "spillway recover weather --key origin=JFK --from-time 2013-02-01 --to-time 2013-02-02",
            "spillway recover stocks --from-seq 1 --to-seq 500 --output stocks.parquet",
            "spillway recover network --spark --output recovered_network   # a long range: the Spark job",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--attributes", help="comma-separated (default: all that may be shed)")
    made.add_argument(
        "--key", action="append", default=[], metavar="NAME=VALUE", help="only this key; may repeat"
    )
    made.add_argument("--seq", type=int, help="one tuple")
    made.add_argument("--from-seq", type=int, help="first seq")
    made.add_argument("--to-seq", type=int, help="last seq")
    made.add_argument("--from-time", help="ISO date or time, UTC unless it says otherwise")
    made.add_argument("--to-time", help="ISO date or time, inclusive")
    made.add_argument("--output", help="write .parquet, .csv or .json (with --spark: a table's folder)")
    made.add_argument("--limit", type=int, default=50, help="rows printed (default: 50)")
    made.add_argument("--spark", action="store_true", help="run jobs/recover.py instead")
    made.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_contracts

    settings = Settings.from_environment()
    contract = load_contracts(settings.schemas).streams.get(asked.stream)
    if contract is None:
        raise UsageError(f"`stream` must have a contract, got {asked.stream!r}; see spillway status")
    keys = _keys(asked.key, contract.keys)
    attributes = tuple(asked.attributes.split(",")) if asked.attributes else contract.sheddable
    unknown = [name for name in attributes if name not in contract.names]
    if unknown:
        raise UsageError(
            f"`--attributes` must be {asked.stream}'s ({', '.join(contract.names)}), got {unknown[0]!r}"
        )
    if asked.seq is not None and (asked.from_seq is not None or asked.to_seq is not None):
        raise UsageError("`--seq` must stand without --from-seq and --to-seq; give one or the other")
    times = {name: _time(name, getattr(asked, name)) for name in ("from_time", "to_time")}
    if asked.spark:
        return _job(asked, settings)
    suffix = Path(asked.output).suffix if asked.output else None
    if suffix is not None and suffix not in FILE_KINDS:
        raise UsageError(
            f"`--output` must end in {', '.join(FILE_KINDS)}, got {asked.output!r}; or add --spark"
        )
    found = import_module("spillway.lake.lookup").lookup(
        settings,
        asked.stream,
        attributes,
        key=keys,
        from_seq=asked.seq if asked.seq is not None else asked.from_seq,
        to_seq=asked.seq if asked.seq is not None else asked.to_seq,
        **times,
    )
    if asked.output:
        write(found, Path(asked.output))
    _say(asked, found)
    return 0 if found.num_rows else 1


def _say(asked: argparse.Namespace, found: pa.Table) -> None:
    if asked.json:
        rows = [] if asked.output else found.to_pylist()
        say_json({"stream": asked.stream, "rows": found.num_rows, "output": asked.output, "tuples": rows})
    elif asked.output:
        say(f"Wrote {found.num_rows:,} tuples of {asked.stream} to {asked.output}")
    elif not found.num_rows:
        say(f"No tuple of {asked.stream} matches; see spillway status for what was taken in", "yellow")
    else:
        shown = found.slice(0, asked.limit)
        heads = [
            f"#{name}" if _is_number(field.type) else name
            for name, field in zip(shown.column_names, shown.schema, strict=True)
        ]
        say_table(
            "", heads, [[str(v) if k == "seq" else v for k, v in row.items()] for row in shown.to_pylist()]
        )
        if found.num_rows > asked.limit:
            say(f"{found.num_rows - asked.limit:,} more; raise --limit, or write them with --output", "dim")


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def write(found: pa.Table, path: Path) -> None:
    """Write the tuples in the format the name asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(found, path)
    elif path.suffix == ".csv":
        import pyarrow.csv as pacsv

        pacsv.write_csv(found, path)
    else:
        import json

        from spillway.cli.output import plain

        lines = [json.dumps(plain(row), ensure_ascii=False) for row in found.to_pylist()]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _keys(pairs: list[str], known: tuple[str, ...]) -> dict[str, str]:
    keys = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or name not in known:
            raise UsageError(
                f"`--key` must be NAME=VALUE with NAME one of {', '.join(known)}, got {pair!r}; e.g. {known[0]}=X"
            )
        keys[name] = value
    return keys


def _time(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as problem:
        option = "--" + name.replace("_", "-")
        raise UsageError(
            f"`{option}` must be an ISO date or time, got {text!r}; e.g. 2013-02-01T06:00"
        ) from problem
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _job(asked: argparse.Namespace, settings: Settings) -> int:
    job = [sys.executable, str(Path(settings.home, "jobs", "recover.py")), "--stream", asked.stream]
    seqs = {"--from-seq": asked.from_seq, "--to-seq": asked.to_seq}
    if asked.seq is not None:
        seqs = {"--from-seq": asked.seq, "--to-seq": asked.seq}
    given = {
        "--attributes": asked.attributes,
        **seqs,
        "--from-time": asked.from_time,
        "--to-time": asked.to_time,
    }
    for option, value in {**given, "--output": asked.output}.items():
        job += [option, str(value)] if value is not None else []
    for pair in asked.key:
        job += ["--key", pair]
    return 1 if subprocess.run(job, check=False).returncode else 0

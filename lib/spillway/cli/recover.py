"""`spillway recover STREAM`: shed values given back, each with its bound, without starting Spark."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli.output import UsageError, command, say, say_json, say_table
from spillway.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.pipeline.recover import Found

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
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--attributes", help="comma-separated (default: all)")
    made.add_argument(
        "--key", action="append", default=[], metavar="NAME=VALUE", help="only this key; may repeat"
    )
    made.add_argument("--seq", type=int, help="one tuple")
    made.add_argument("--from-seq", type=int, help="first seq")
    made.add_argument("--to-seq", type=int, help="last seq")
    made.add_argument("--from-time", help="ISO date or time, UTC unless it says otherwise")
    made.add_argument("--to-time", help="ISO date or time, inclusive")
    made.add_argument("--output", help="write .parquet, .csv or .json lines")
    made.add_argument("--limit", type=int, default=50, help="rows printed (default: 50)")
    made.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_contracts

    settings = Settings.from_environment()
    contract = load_contracts(settings.schemas).streams.get(asked.stream)
    if contract is None:
        raise UsageError(f"`stream` must have a contract, got {asked.stream!r}; see spillway status")
    keys = _keys(asked.key, contract.keys)
    attributes = asked.attributes.split(",") if asked.attributes else None
    unknown = [name for name in attributes or () if name not in contract.names]
    if unknown:
        raise UsageError(
            f"`--attributes` must be {asked.stream}'s ({', '.join(contract.names)}), got {unknown[0]!r}"
        )
    if asked.seq is not None and (asked.from_seq is not None or asked.to_seq is not None):
        raise UsageError("`--seq` must stand without --from-seq and --to-seq; give one or the other")
    if asked.output and Path(asked.output).suffix not in FILE_KINDS:
        raise UsageError(f"`--output` must end in {', '.join(FILE_KINDS)}, got {asked.output!r}; name it so")
    times = [_time(name, getattr(asked, name)) for name in ("from_time", "to_time")]

    from spillway.pipeline.recover import look_up, parse_range

    seqs = parse_range(
        asked.from_seq if asked.seq is None else asked.seq, asked.to_seq if asked.seq is None else asked.seq
    )
    found = look_up(settings, contract, attributes, keys, seqs, parse_range(*times))
    if asked.output:
        write(found.rows, Path(asked.output))
    _say(asked, found)
    return 0


def _say(asked: argparse.Namespace, found: Found) -> None:
    rows = found.rows
    read = {"synopsis_bytes_read": found.synopsis_bytes_read, "frames": found.frames}
    if asked.json:
        tuples = [] if asked.output else rows.to_pylist()
        say_json(
            {"stream": asked.stream, "rows": rows.num_rows, "output": asked.output, **read, "tuples": tuples}
        )
        return
    if asked.output:
        say(f"Wrote {rows.num_rows:,} tuples of {asked.stream} to {asked.output}")
    else:
        shown = rows.slice(0, asked.limit)
        heads = [f"#{field.name}" if _is_number(field.type) else field.name for field in shown.schema]
        say_table(
            "", heads, [[str(v) if k == "seq" else v for k, v in row.items()] for row in shown.to_pylist()]
        )
        if rows.num_rows > asked.limit:
            say(f"{rows.num_rows - asked.limit:,} more; raise --limit, or write them with --output", "dim")
    say(f"Read {found.synopsis_bytes_read:,} bytes of synopsis in {found.frames:,} frames.", "dim")


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


def _time(name: str, text: str | None) -> str | None:
    """The time in UTC, as the lake has it."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as problem:
        option = "--" + name.replace("_", "-")
        raise UsageError(
            f"`{option}` must be an ISO date or time, got {text!r}; e.g. 2013-02-01T06:00"
        ) from problem
    return (at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at).isoformat()

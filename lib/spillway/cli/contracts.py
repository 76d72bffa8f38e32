"""Implement `spillway contracts check | schema | new | mine` and `spillway parity add | check`.

`contracts mine` reads SQL statements from .sql files, from a dbt project, or from a table (file or Delta) of
statements with the number of their runs. `parity add FILE` appends parity to the lines of a file. `parity check
FILE` checks it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli.output import add_command, print_json, print_line, print_table
from spillway.cli.run import add_engine
from spillway.errors import ContractError, UsageError, format_count
from spillway.settings import Settings, refuse_uri

if TYPE_CHECKING:
    import pyarrow as pa


def add_contracts(commands: Any) -> None:
    made = commands.add_parser(
        "contracts", help="Check contracts, print their JSON Schema, or draft a new one."
    )
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    checking = add_command(
        actions,
        "check",
        "List all problems of the contracts: file, field, rule, value and remedy.",
        ["spillway contracts check", "spillway contracts check --schemas elsewhere/schemas --json"],
    )
    checking.add_argument("--schemas", help="folder of the contracts (default: SPILLWAY_SCHEMAS)")
    add_engine(checking)
    checking.set_defaults(run=_check)
    schema = add_command(
        actions,
        "schema",
        "Print the JSON Schema of contracts, for completion and checks in an editor.",
        ["spillway contracts schema > contract.schema.json", "spillway contracts schema --channels"],
    )
    schema.add_argument("--channels", action="store_true", help="print the schema of channels.yaml instead")
    schema.set_defaults(run=print_schema)
    draft = add_command(
        actions,
        "new",
        "Draft a contract from a delivered file. Types, keys and order are inferred; comments in the draft mark "
        "doubtful values.",
        [
            "spillway contracts new landing/weather/2013-01-31/weather-2013-01.jsonl",
            "spillway contracts new day.csv --stream sales --channel uplink --output schemas/streams/sales.yaml",
        ],
    )
    draft.add_argument("sample", help="a delivered file: JSON lines, CSV or Parquet")
    draft.add_argument("--stream", help="name of the stream (default: from the file)")
    draft.add_argument("--channel", default="uplink", help="channel of the stream (default: uplink)")
    draft.add_argument("--output", help="path of a new file for the draft (default: print the draft)")
    draft.set_defaults(run=create_contract)
    mining = add_command(
        actions,
        "mine",
        "Draft the entry of a lever, such as sifters, from SQL that reads a stream: a query log with run counts, "
        "or dbt models.",
        [
            "spillway contracts mine queries.csv --stream flights",
            "spillway contracts mine dbt_project/ --stream flights",
        ],
    )
    mining.add_argument(
        "log",
        help="a .sql file, a folder of .sql files or a dbt project; or a table (CSV, JSON lines, Parquet or Delta) "
        "with the columns query and runs",
    )
    mining.add_argument("--stream", required=True, help="the stream that the queries read")
    mining.set_defaults(run=mine_queries)


def _check(asked: argparse.Namespace) -> int:
    from spillway.contracts import check as problems_of
    from spillway.contracts import load_usable
    from spillway.workloads.windows import workload_problems

    if asked.schemas:
        refuse_uri("--schemas", asked.schemas)
    schemas = asked.schemas or Settings.from_environment().schemas
    problems = problems_of(schemas)
    with suppress(ContractError):  # without a channel there is nothing to check; that is reported above
        problems += workload_problems(load_usable(schemas), asked.engine)
    if asked.json:
        print_json({"ok": not problems, "schemas": schemas, "problems": problems})
    elif problems:
        rows = [(p.where, p.field, f"must {p.rule}", repr(p.value), p.remedy) for p in problems]
        print_table(
            f"{format_count(len(problems), 'problem')} in {schemas}",
            ["file", "field", "rule", "value", "remedy"],
            rows,
        )
    else:
        print_line(f"The contracts in {schemas} are valid.", "green")
    return 1 if problems else 0


def print_schema(asked: argparse.Namespace) -> int:
    from spillway.contracts import channels_json_schema, json_schema

    print_json(channels_json_schema() if asked.channels else json_schema())
    return 0


def create_contract(asked: argparse.Namespace) -> int:
    from spillway.intake.contract_draft import draft_contract

    if not Path(asked.sample).is_file():
        raise UsageError(f"`sample` must be a file, got {asked.sample!r}; name a delivered file")
    target = Path(asked.output) if asked.output else None
    if target is not None and target.exists():
        raise UsageError(
            f"`--output` must be a new file, got {asked.output!r}; choose another name or remove it"
        )
    text = draft_contract(asked.sample, stream=asked.stream, channel=asked.channel)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    if asked.json:
        print_json({"contract": text, "written": str(target) if target else None})
    elif target is not None:
        print_line(f"Wrote {target}. Read every line, then: spillway contracts check")
    else:
        print(text, end="")
    return 0


def mine_queries(asked: argparse.Namespace) -> int:
    import yaml

    from spillway.contracts import load_contracts
    from spillway.registry import LEVERS, lever

    contract = load_contracts(Settings.from_environment().schemas).stream(asked.stream)
    statements = read_query_log(asked.log)
    found = [
        one
        for name in LEVERS
        if hasattr(lever(name), "mine_entry")
        and (one := lever(name).mine_entry(contract, statements)) is not None
    ]
    if asked.json:
        print_json([{"entry": one.entry, "notes": list(one.notes)} for one in found])
        return 0
    for one in found:
        for note in one.notes:
            print(f"# {note}")
        print(yaml.safe_dump({"levers": [dict(one.entry)]}, sort_keys=False, allow_unicode=True), end="")
    return 0


DBT = "dbt_project.yml"
QUERY_COLUMNS = ("query", "sql", "statement", "query_text")
RUNS_COLUMNS = ("runs", "count", "executions", "times")


def read_query_log(path: str) -> list[tuple[str, float]]:
    """Return every statement with the number of its runs, or 1 if the number is not known."""
    place = Path(path)
    if (place / "_delta_log").is_dir():
        from spillway.store.delta_log import read_foreign

        return _statements(path, read_foreign(path, _of_use))
    if place.is_dir():
        above = place.resolve()
        project = next((one for one in (above, *above.parents) if (one / DBT).is_file()), None)
        files = _models(above) if project == above else sorted(place.rglob("*.sql"))
        if not files:
            raise UsageError(
                f"`log` must hold files of SQL, got {path!r} without one; name a folder of .sql files"
            )
        texts = [(file.stem, file.read_text(encoding="utf-8")) for file in files]
        # models refer to each other by file name
        return [(text if project is None else f"CREATE VIEW {name} AS {text}", 1.0) for name, text in texts]
    if not place.is_file():
        raise UsageError(f"`log` must be a file or a folder, got {path!r}; name a query log")
    if place.suffix == ".sql":
        return [(place.read_text(encoding="utf-8"), 1.0)]
    return _statements(path, _table(place))


def _models(project: Path) -> list[Path]:
    """Return the model files of a dbt project, without compiled files and macros."""
    import yaml

    try:
        stated = yaml.safe_load((project / DBT).read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as problem:
        raise UsageError(f"`{DBT}` must be YAML, got {project / DBT} ({problem}); correct it") from problem
    folders = stated.get("model-paths") or stated.get("source-paths") or ["models"]
    return sorted(file for folder in folders for file in (project / str(folder)).rglob("*.sql"))


def _of_use(columns: Sequence[str]) -> list[str]:
    """Return the columns to read; all columns if none has statements, so that the error message can name them."""
    found = [name for name in columns if name.lower() in (*QUERY_COLUMNS, *RUNS_COLUMNS)]
    return found or list(columns)


def _statements(path: str, rows: pa.Table) -> list[tuple[str, float]]:
    names = {name.lower(): name for name in rows.column_names}
    text = next((names[name] for name in QUERY_COLUMNS if name in names), None)
    if text is None:
        raise UsageError(
            f"`log` must have a column {' or '.join(QUERY_COLUMNS)}, got {', '.join(rows.column_names)} in {path}; "
            "rename it"
        )
    runs = next((names[name] for name in RUNS_COLUMNS if name in names), None)
    times = [1.0] * rows.num_rows if runs is None else rows[runs].to_pylist()
    return [
        (str(one), float(count))
        for one, count in zip(rows[text].to_pylist(), times, strict=True)
        if one and count
    ]


def _table(place: Path) -> Any:
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    try:
        if place.suffix == ".parquet":
            return pyarrow.parquet.read_table(place)
        if place.suffix in (".json", ".jsonl"):
            return pyarrow.json.read_json(place)
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return pyarrow.csv.read_csv(place, parse_options=options)
    except (pyarrow.ArrowInvalid, OSError) as problem:
        raise UsageError(
            f"`log` must be CSV, JSON lines, Parquet or SQL, got {str(place)!r} ({str(problem).splitlines()[0]}); "
            "convert it"
        ) from problem


_MOST_LINES_SHOWN = 20


def add_parity(commands: Any) -> None:
    purpose = (
        "Append parity to the lines of a file, or check it. Intake then corrects one flipped bit in a line."
    )
    made = commands.add_parser("parity", help=purpose, description=purpose)
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    adds = add_command(
        actions,
        "add",
        "Append the parity of its bytes to each line of a CSV or JSON file. The contract of the stream must state "
        "parity: secded under source.",
        [
            "spillway parity add readings.csv --output sent.csv",
            "spillway parity add readings.jsonl > sent.jsonl",
        ],
    )
    adds.add_argument("file", help="a file of CSV or JSON lines, plain or compressed with gzip or zstd")
    adds.add_argument("--output", help="where to write the lines; default: standard output")
    adds.set_defaults(run=_add)
    checks = add_command(
        actions,
        "check",
        "Count the lines of a file with one flipped bit, and list the lines that cannot be corrected.",
        ["spillway parity check sent.csv"],
    )
    checks.add_argument("file", help="a file that `spillway parity add` wrote")
    checks.set_defaults(run=_check_parity)


@contextmanager
def _opened(name: str) -> Iterator[pa.NativeFile]:
    import pyarrow as pa

    try:
        with pa.OSFile(name) as source:
            yield source
    except OSError as problem:
        reason = str(problem).partition(". Detail")[0]
        raise UsageError(
            f"`file` must be a file that can be read, got {name!r}: {reason}; correct the name"
        ) from None


def _add(asked: argparse.Namespace) -> int:
    from spillway.records.parity import file_with_parity
    from spillway.records.wrapper import open_decompressed

    if asked.json and asked.output is None:
        raise UsageError(
            "`--output` must be given with --json, got none; add --output FILE: standard output holds "
            "the JSON"
        )
    lines = 0
    with _opened(asked.file) as source:
        parts = file_with_parity(open_decompressed(source))
        if asked.output is None:
            for part in parts:
                sys.stdout.buffer.write(part)
            return 0
        whole = Path(asked.output)
        if whole.exists() and whole.samefile(asked.file):
            raise UsageError(
                f"`--output` must not be the input file, got {asked.output!r}; write another name"
            )
        # write under another name and rename, so that no reader sees half a file
        partial = whole.with_name(f".{whole.name}.partial")
        try:
            with partial.open("wb") as sink:
                for part in parts:
                    lines += part.count(b"\n") + (not part.endswith(b"\n"))
                    sink.write(part)
            partial.replace(whole)
        finally:
            partial.unlink(missing_ok=True)
    if asked.json:
        print_json({"lines": lines, "output": asked.output})
    else:
        print_line(f"Wrote {lines:,} lines with parity to {asked.output}.")
    return 0


def _check_parity(asked: argparse.Namespace) -> int:
    from spillway.records.parity import check_file
    from spillway.records.wrapper import open_decompressed

    with _opened(asked.file) as source:
        found = check_file(open_decompressed(source))
    if asked.json:
        print_json(found)
        return 1 if found.refused else 0
    print_line(
        f"{found.lines:,} lines: {found.lines - found.corrected - len(found.refused):,} intact, "
        f"{found.corrected:,} with one flipped bit that is corrected, {len(found.refused):,} that cannot be corrected"
    )
    if found.refused:
        shown = ", ".join(map(str, found.refused[:_MOST_LINES_SHOWN]))
        more = len(found.refused) - _MOST_LINES_SHOWN
        print_line(f"cannot be corrected: line {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return 1 if found.refused else 0

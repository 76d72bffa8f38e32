"""`spillway contracts check | schema | new | mine`."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

from spillway.cli.output import command, say_json, say_line, say_table
from spillway.cli.run import add_engine
from spillway.errors import ContractError, UsageError, so_many
from spillway.settings import Settings, refuse_uri


def add_contracts(commands: Any) -> None:
    made = commands.add_parser(
        "contracts", help="Check contracts, print their JSON Schema, or draft a new one."
    )
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    checking = command(
        actions,
        "check",
        "List everything that is wrong with the contracts, by file, field, rule, value and remedy.",
        ["spillway contracts check", "spillway contracts check --schemas elsewhere/schemas --json"],
    )
    checking.add_argument("--schemas", help="folder of the contracts (default: SPILLWAY_SCHEMAS)")
    add_engine(checking)
    checking.set_defaults(run=_check)
    schema = command(
        actions,
        "schema",
        "Print the JSON Schema that editors complete contracts from.",
        ["spillway contracts schema > contract.schema.json", "spillway contracts schema --channels"],
    )
    schema.add_argument("--channels", action="store_true", help="that of channels.yaml")
    schema.set_defaults(run=print_schema)
    draft = command(
        actions,
        "new",
        "Draft a contract from a delivered file: types, keys and order are guessed, and the draft says where.",
        [
            "spillway contracts new landing/weather/2013-01-01/part-1.json",
            "spillway contracts new day.csv --stream sales --channel uplink --output schemas/streams/sales.yaml",
        ],
    )
    draft.add_argument("sample", help="a delivered file: JSON lines, CSV or Parquet")
    draft.add_argument("--stream", help="name of the stream (default: from the file)")
    draft.add_argument("--channel", default="uplink", help="the channel it goes through (default: uplink)")
    draft.add_argument("--output", help="write there instead of printing; never overwrites")
    draft.set_defaults(run=new)
    mining = command(
        actions,
        "mine",
        "Draft a lever's entry from SQL that people ran: a query log, with how often each did, or dbt models.",
        [
            "spillway contracts mine queries.csv --stream flights",
            "spillway contracts mine dbt_project/ --stream flights",
        ],
    )
    mining.add_argument(
        "log",
        help="SQL: a .sql file, a folder of them, a project of dbt; or CSV, JSON lines, Parquet, Delta with columns "
        "query and runs",
    )
    mining.add_argument("--stream", required=True, help="the stream whose readers are looked for")
    mining.set_defaults(run=mine)


def _check(asked: argparse.Namespace) -> int:
    from spillway.contracts import check as problems_of
    from spillway.contracts import load_usable
    from spillway.workloads.windows import broken_workloads

    if asked.schemas:
        refuse_uri("--schemas", asked.schemas)
    schemas = asked.schemas or Settings.from_environment().schemas
    problems = problems_of(schemas)
    with suppress(ContractError):  # with no channel there is nothing to work on, which has been told
        problems += broken_workloads(load_usable(schemas), asked.engine)
    if asked.json:
        say_json({"ok": not problems, "schemas": schemas, "problems": problems})
    elif problems:
        rows = [(p.where, p.field, f"must {p.rule}", repr(p.value), p.remedy) for p in problems]
        say_table(
            f"{so_many(len(problems), 'problem')} in {schemas}",
            ["file", "field", "rule", "value", "remedy"],
            rows,
        )
    else:
        say_line(f"The contracts in {schemas} are in order.", "green")
    return 1 if problems else 0


def print_schema(asked: argparse.Namespace) -> int:
    from spillway.contracts import channels_json_schema, json_schema

    say_json(channels_json_schema() if asked.channels else json_schema())
    return 0


def new(asked: argparse.Namespace) -> int:
    from spillway.intake.draft import new_contract

    if not Path(asked.sample).is_file():
        raise UsageError(f"`sample` must be a file, got {asked.sample!r}; name a delivered file")
    target = Path(asked.output) if asked.output else None
    if target is not None and target.exists():
        raise UsageError(
            f"`--output` must be a new file, got {asked.output!r}; choose another name or remove it"
        )
    text = new_contract(asked.sample, stream=asked.stream, channel=asked.channel)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    if asked.json:
        say_json({"contract": text, "written": str(target) if target else None})
    elif target is not None:
        say_line(f"Wrote {target}. Read every line, then: spillway contracts check")
    else:
        print(text, end="")
    return 0


def mine(asked: argparse.Namespace) -> int:
    import yaml

    from spillway.cli.query_log import read_query_log
    from spillway.contracts import load_contracts
    from spillway.registry import LEVERS, lever

    contract = load_contracts(Settings.from_environment().schemas).stream(asked.stream)
    statements = read_query_log(asked.log)
    found = [
        one
        for name in LEVERS
        if hasattr(lever(name), "mined") and (one := lever(name).mined(contract, statements)) is not None
    ]
    if asked.json:
        say_json([{"entry": one.entry, "notes": list(one.notes)} for one in found])
        return 0
    for one in found:
        for note in one.notes:
            print(f"# {note}")
        print(yaml.safe_dump({"levers": [dict(one.entry)]}, sort_keys=False, allow_unicode=True), end="")
    return 0

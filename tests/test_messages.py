"""The mistakes of a newcomer, made by hand: each message names the field, and its remedy the right action.

The tests match the field and the words that say what to do, not the whole sentence. `docs/failures.md` lists the same
messages for users.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spillway.contracts import load_contracts, read_stream
from spillway.contracts.stream import TYPES
from spillway.errors import ContractError, Problem
from spillway.records import parse_records

CHANNELS = "channels: {street: {capacity: 2 MB/day}}\n"
CONTRACT = """\
stream: docks
source: {format: csv}
channel: street
timezone: Europe/Berlin
attributes:
  - {name: id, type: string, role: key}
  - {name: at, type: timestamp, role: order}
  - {name: level, type: string, role: protected}
  - {name: temp, type: double, role: measure, error: 0.2}
"""


def problems_of(folder: Path, contract: str = CONTRACT, channels: str = CHANNELS) -> tuple[Problem, ...]:
    (folder / "streams").mkdir()
    (folder / "channels.yaml").write_text(channels, encoding="utf-8")
    (folder / "streams" / "docks.yaml").write_text(contract, encoding="utf-8")
    try:
        load_contracts(folder)
    except ContractError as error:
        return error.problems
    return ()


def sifting(where: str) -> str:
    return f"{CONTRACT}levers:\n  - lever: sifters\n    queries:\n      - where: >-\n          {where}\n"


def with_change(old: str, new: str) -> str:
    assert CONTRACT.count(old) == 1, old
    return CONTRACT.replace(old, new)


def test_contract_without_a_mistake_has_no_problem(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == ()


@pytest.mark.parametrize(
    ("contract", "field", "remedy"),
    [
        pytest.param(with_change("double", "float"), "attributes[3].type", "double", id="type float"),
        pytest.param(
            with_change("type: double", "type: 'DECIMAL(10, 2)'"),
            "attributes[3].type",
            "double",
            id="type decimal",
        ),
        pytest.param(
            with_change("timestamp", "datetime"), "attributes[1].type", "timestamp", id="type datetime"
        ),
        pytest.param(
            with_change("channel: street", "channel: stret"), "channel", "street", id="channel misspelt"
        ),
        pytest.param(with_change("channel: street\n", ""), "channel", "add channel:", id="channel missing"),
        pytest.param(
            with_change("Europe/Berlin", "CEST"), "timezone", "e.g. Europe/Berlin", id="timezone CEST"
        ),
        pytest.param(with_change("role: key", "roll: key"), "attributes[0].roll", "role", id="key misspelt"),
        pytest.param(f"{CONTRACT}modee: shed\n", "modee", "mode", id="field misspelt"),
        pytest.param(with_change("attributes:", "atributes:"), "atributes", "attributes", id="atributes"),
        pytest.param(
            with_change("error: 0.2", "error: 0.2 degC"), "attributes[3].error", "write 0.2", id="error degC"
        ),
        pytest.param(
            with_change("error: 0.2", "error_pct: 5%"),
            "attributes[3].error_pct",
            "write 5",
            id="error_pct 5%",
        ),
        pytest.param(with_change("role: order", "role: measure"), "attributes", "role: order", id="no order"),
        pytest.param(f"{CONTRACT}channel: road\n", "channel", "remove one", id="field twice"),
        pytest.param(f"{CONTRACT}\tmode: shed\n", "the file", "spaces", id="tab"),
        pytest.param(
            with_change("format: csv", "kind: kafka"), "source.kind", "landing folder", id="kind kafka"
        ),
        pytest.param(
            with_change("name: level", "name: seq"), "attributes[2].name", "field: seq", id="reserved name"
        ),
        pytest.param(
            f"{CONTRACT}criticality: high\n", "criticality", "levers: [{lever: attributes", id="criticality"
        ),
        pytest.param(f"{CONTRACT}levers: [{{lever: sifter}}]\n", "levers[0].lever", "sifters", id="lever"),
    ],
)
def test_mistake_in_a_contract_gets_the_right_remedy(
    tmp_path: Path, contract: str, field: str, remedy: str
) -> None:
    found = {one.field: one.remedy for one in problems_of(tmp_path, contract)}
    assert remedy in found[field]


@pytest.mark.parametrize("name", ["float", "real", "numeric(9)", "int64", "bool", "text", "Datetime"])
def test_type_of_another_system_gets_one_type_as_its_remedy(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path, with_change("type: double", f"type: {name}"))
    named = re.fullmatch(r"did you mean (\w+)\?", problem.remedy)
    assert named
    assert named[1] in TYPES


def test_zone_abbreviation_never_gets_an_abbreviation_as_its_remedy(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, with_change("Europe/Berlin", "CEST"))
    assert not re.search(r"\bE[SD]T\b", problem.remedy)


@pytest.mark.parametrize(
    ("capacity", "remedy"),
    [
        ("5 MB", "5 MB/hour"),
        ("100k events/s", "120 kbps"),
        ("5000", "120 kbps"),
        ("fast", "120 kbps"),
    ],
)
def test_capacity_without_a_rate_gets_one_as_its_remedy(tmp_path: Path, capacity: str, remedy: str) -> None:
    (problem,) = problems_of(tmp_path, channels=f"channels: {{street: {{capacity: {capacity}}}}}\n")
    assert problem.field == "channels.street.capacity"
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        ("level = ERROR", "quote it: 'ERROR'"),
        ("level in ('INFO', ERROR)", "quote it: 'ERROR'"),
        ("level = 'ERROR' and Error != level", "quote it: 'Error'"),
        ("level like 'E%'", "list the values"),
        ("lower(level) = 'error'", "lower()"),
        ("at > now()", "write a constant"),
        ("temp > id", "with a constant"),
        ("tmp > 3", "did you mean temp?"),
        ("temp => 3", "correct it there"),
    ],
)
def test_condition_of_a_sifter_gets_the_right_remedy(tmp_path: Path, where: str, remedy: str) -> None:
    (problem,) = problems_of(tmp_path, sifting(where))
    assert problem.field == "levers[0].queries[0].where"
    assert remedy in problem.remedy


def rejection(content: bytes, form: str = "csv", **source: object) -> dict[str, object]:
    """Return the first rejection of a file with the four columns id, at, level and temp."""
    attributes = [
        {"name": "id", "type": "string", "role": "key"},
        {"name": "at", "type": "timestamp", "role": "order"},
        {"name": "level", "type": "string", "role": "protected"},
        {"name": "temp", "type": "double"},
    ]
    contract = read_stream(
        {
            "stream": "docks",
            "channel": "street",
            "timezone": "Europe/Berlin",
            "source": {"format": form, **source},
            "attributes": attributes,
        }
    )
    found = parse_records(contract, f"docks.{form}", content).rejected.to_pylist()
    assert found
    return dict(found[0])


HEADER = "id,at,level,temp\n"
ROW = '{"id": "a", "at": "2026-01-01T00:00:00", "temp": 1.5}'


@pytest.mark.parametrize(
    ("content", "form", "field", "remedy"),
    [
        pytest.param(
            "id;at;level;temp\na;2026-01-01;x;1,5\n", "csv", "id", 'delimiter: ";"', id="semicolons"
        ),
        pytest.param("at,level,temp\n2026-01-01,x,1\n", "csv", "id", "add the column", id="no key"),
        pytest.param(f"[\n{ROW},\n{ROW}\n]\n", "json", "the line", "is a JSON array", id="array of lines"),
        pytest.param(f"[{ROW}, {ROW}]", "json", "the line", "is a JSON array", id="array in a line"),
        pytest.param(
            f"{HEADER}a,2026-03-29 02:30,x,1\n", "csv", "at", "skip this hour", id="hour that does not exist"
        ),
        pytest.param(f"{HEADER}a,1767225600,x,1\n", "csv", "at", "integer, unit: s", id="epoch seconds"),
        pytest.param(
            f"{HEADER}a,1767225600123,x,1\n", "csv", "at", "integer, unit: ms", id="epoch milliseconds"
        ),
        pytest.param(
            ROW.replace('"2026-01-01T00:00:00"', "1767225600"), "json", "at", "unit: s", id="epoch in JSON"
        ),
        pytest.param(f"{HEADER}a,24.10.2025 02:00,x,1\n", "csv", "at", "year first", id="day first"),
        pytest.param(f'{HEADER}a,2026-01-01,x,"1,5"\n', "csv", "temp", 'decimal: ","', id="decimal comma"),
        pytest.param(
            f"{HEADER}a,2026-01-01,x,NA\n", "csv", "temp", 'null_values: ["", "NA"]', id="word for null"
        ),
        pytest.param(f"{HEADER},2026-01-01,x,1\n", "csv", "id", "it is a key", id="key is null"),
        pytest.param(
            f"{HEADER}a,2026-01-01,x,1,5\n", "csv", "the record", "quote fields", id="too many fields"
        ),
        pytest.param(ROW.replace("1.5", '"1.5"'), "json", "temp", "without quotes", id="number in quotes"),
    ],
)
def test_mistake_in_a_file_gets_the_right_remedy(content: str, form: str, field: str, remedy: str) -> None:
    found = rejection(content.encode(), form)
    assert found["field"] == field
    assert remedy in str(found["remedy"])


def test_text_that_is_not_utf_8_gets_a_conversion_as_its_remedy() -> None:
    header = rejection("id,at,level,temp [°C]\n".encode("latin1"))
    row = rejection(f"{HEADER}Zürich,2026-01-01,x,1\n".encode("latin1"))
    assert (header["line"], row["line"]) == (1, 2)
    assert all("iconv" in str(one["remedy"]) for one in (header, row))


@pytest.mark.parametrize(
    ("content", "source"),
    [
        (f"{HEADER}a,2026-01-01,x,NA\n{HEADER}", {"options": {"null_values": ["", "NA"]}}),
        ('id;at;level;temp\na;2026-01-01;x;"1,5"\nx\n', {"options": {"delimiter": ";", "decimal": ","}}),
    ],
)
def test_file_is_read_as_its_remedy_says(content: str, source: dict[str, object]) -> None:
    """The second record of each file is bad, and it is the only one."""
    assert rejection(content.encode(), **source)["line"] == 3

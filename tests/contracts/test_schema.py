"""The published JSON Schema is current, valid, and says what the reader says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.contracts.test_loader import WEATHER, changed, with_settings

from spillway.contracts import (
    channels_json_schema,
    json_schema,
    read_channel,
    read_stream,
    workload_json_schema,
    write_schemas,
)
from spillway.contracts.fields import Report
from spillway.contracts.yaml import read_yaml
from spillway.errors import ContractError

SCHEMAS = Path(__file__).parents[2] / "schemas"

BAD: list[dict[str, Any]] = [
    changed(moed="shed"),
    changed(mode="sched"),
    changed(attributes__2__type="float"),
    changed(attributes__2__unti="degF"),
    changed(attributes__3__name="seq"),
    changed(attributes__3__name="Batch_Date"),
    changed(attributes__3__name="scheme"),
    changed(attributes__3__name="weight"),
    changed(rank_by="relative"),
    changed(levers="attributes"),
    changed(levers=None),
    changed(levers=["attributes"]),
    changed(levers=[{}]),
    changed(levers=[{"lever": "atributes"}]),
    changed(levers=[{"lever": "attributes"}, {"lever": "attributes", "rank_by": "relative"}]),
    with_settings(colour=1),
    changed(attributes__3__name="dew point"),
    changed(attributes__3__name="dewp__bound_pct"),
    changed(attributes__1__role="measure"),
    changed(attributes__0__role="order", attributes__0__type="date"),
    changed(attributes__2__error_pct=-1),
    changed(attributes__2__error_pct=101),
    changed(attributes__2__bits=0),
    changed(attributes__2="temp"),
    changed(attributes=[]),
    changed(attributes=...),
    changed(channel=...),
    changed(channel="  "),
    changed(source="weather"),
    changed(source={"kind": "table"}),
    changed(source__table="raw.weather"),
    changed(source__kind="kafka"),
    changed(source={"format": "csv", "options": {"delimiter": ";;"}}),
    changed(rate={"from": "declared"}),
    changed(rate={"from": "arrival", "tuples_per_second": 3}),
    changed(rate__tuples_per_second=0),
    changed(rate__tuples_per_second="400"),
    with_settings(window={"tuples_at_least": 0}),
    with_settings(window={"tuples_at_least": 64.5}),
    with_settings(smoothing={"multiplier": 0}),
    with_settings(smoothing={"multiplier": 1.1}),
    with_settings(predictors=["trendy"]),
    with_settings(predictors=["last", "last"]),
    with_settings(predictors=[]),
    with_settings(predictors="last"),
    with_settings(fit="count"),
    with_settings(plan="least_loss", fit="count"),
    with_settings(plan="prefix", fit="size"),
    with_settings(plan="prefix", treatments=["keep", "round"]),
    with_settings(plan="cheapest"),
    with_settings(synopsis="stay"),
    with_settings(requested_pct=100.5),
    changed(priority=0),
    changed(share={"weight": 2.0}),
    changed(attributes__2__priority=-1),
    changed(retain_raw={"retire": "yes"}),
    changed(sketches=[{"kind": "count_min"}]),
    changed(stream="Weather-1"),
    changed(duplicates={"rows": "filter"}),
    changed(duplicates={"rows": "filter", "within": None}),
    changed(duplicates={"rows": "stable_bloom", "within": 9}),
]
GOOD: list[dict[str, Any]] = [
    WEATHER,
    changed(levers=[]),
    changed(levers=[{"lever": "attributes"}]),
    changed(frame={"tuples": None}),
    changed(source={"format": "csv", "options": {"delimiter": "\t", "null_values": ["", "NA"]}}),
    changed(rate={"from": "event_time"}),
    changed(rate={}),
    changed(rate=...),
    with_settings(
        criticality="very",
        error_pct=4.5,
        rank_by="relative",
        treatments=["keep", "shed"],
        predictors=["last"],
    ),
    with_settings(plan="prefix", fit="count", treatments=["keep", "shed"]),
    with_settings(fit="bits"),
    with_settings(synopsis="hold", requested_pct=0),
    changed(priority=3, attributes__2__priority=0.25, attributes__0__priority=1.0),
    with_settings(window={"tuples_at_least": 64.0}),
    with_settings(cycle={"attributes": ["origin"]}),
    changed(duplicates={"rows": "filter", "on": ["origin", "time_hour"], "within": 64}),
    changed(duplicates={"rows": "exact", "within": None}),
    changed(sketches=[{"kind": "count_min", "attributes": ["origin"]}]),
]


def read(contract: dict[str, Any]) -> bool:
    try:
        read_stream(contract)
    except ContractError:
        return False
    return True


def test_the_published_schemas_are_current(tmp_path: Path) -> None:
    for path in write_schemas(tmp_path):
        published = (SCHEMAS / path.name).read_text(encoding="utf-8")
        assert published == path.read_text(encoding="utf-8"), f"run write_schemas: {path.name} is stale"


def test_the_schemas_are_schemas() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.Draft202012Validator.check_schema(channels_json_schema())
    jsonschema.Draft202012Validator.check_schema(workload_json_schema())
    assert json.loads(json.dumps(json_schema())) == json_schema()


@pytest.mark.parametrize("contract", BAD)
def test_reader_and_schema_refuse_the_same(contract: dict[str, Any]) -> None:
    assert not read(contract)
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(contract)


@pytest.mark.parametrize("contract", GOOD)
def test_reader_and_schema_accept_the_same(contract: dict[str, Any]) -> None:
    assert read(contract)
    jsonschema.Draft202012Validator(json_schema()).validate(contract)


@pytest.mark.parametrize(
    "capacity",
    [
        "120 kbps", "5 Mbps", "2 GB/day", "2GB/day", "0.5 kbps", "1e3 bps", "3 MiB/hour", "4 kbit/s", "2 GB per day",
        {"bandwidth_khz": 4, "signal_to_noise_db": 20}, {"budget_per_day": 1.8, "price_per_gb": 0.9},
        "0 kbps", "-5 kbps", "120", "120 kbp", "kbps", "", None, 120, "1 GB/week", "0.0 GB/day",
        {"bandwidth_khz": 4}, {"bandwidth_khz": 0, "signal_to_noise_db": 3}, {"bandwidth_khz": "4", "x": 1},
        "60 GB/month", "60 GB per months", "1 GB/quarter", {"quota": "2 GB", "per": "day"}, {"quota": "2 GB"},
        {"quota": "2 GB", "per": "hour"}, {"quota": "2 GB", "per": "hour", "carry_over_pct": 0},
        {"quota": "2 GB", "per": "month", "carry_over_pct": 20, "burst": "5 Mbps"}, {"quota": "2 GB", "per": "week"},
        {"quota": "2 GB/day", "per": "day"}, {"quota": "0 GB", "per": "day"}, {"quota": 2, "per": "day"},
        {"quota": "2 GB", "per": "day", "carry_over_pct": 101}, {"quota": "2 GB", "per": "day", "burst": "9 GB/day"},
        {"quota": "2 GB", "per": "day", "burst": "9 Mbps"}, {"quota": "2 GB", "per": "day", "burst": 9},
    ],
)  # fmt: skip
def test_reader_and_schema_agree_on_capacities(capacity: object) -> None:
    agree_on({"capacity": capacity})


@pytest.mark.parametrize(
    "more",
    [
        {"divide_by": "proportional"}, {"divide_by": "share"}, {"share": "utility"}, {"minimize": "bytes"},
        {"minimize": "loss"}, {"prices": {}}, {"prices": {"sent_per_gb": 1.0, "kept_per_gb": 0}},
        {"prices": {"kept_per_gb": 1}}, {"minimize": "bytes", "prices": {"kept_per_gb": 1}},
        {"minimize": "error", "prices": {"sent_per_gb": 2}}, {"minimize": "bytes", "prices": {"sent_per_gb": 0}},
        {"minimize": "bytes", "prices": {"sent_per_gb": 0, "kept_per_gb": 1}}, {"minimize": "bytes", "prices": None},
        {"minimize": "bytes", "prices": {"sent_per_gb": 0, "kept_per_gb": 0.0}}, {"prices": {"sent": 1}},
    ],
)  # fmt: skip
def test_reader_and_schema_agree_on_channels(more: dict[str, Any]) -> None:
    agree_on({"capacity": "120 kbps", **more})


def agree_on(channel: dict[str, Any]) -> None:
    try:
        read_channel("uplink", channel)
        reads = True
    except ContractError:
        reads = False
    validator = jsonschema.Draft202012Validator(channels_json_schema())
    assert validator.is_valid({"channels": {"uplink": channel}}) == reads


def test_the_demo_files_keep_to_their_schemas_and_name_them() -> None:
    paths = [p for p in (SCHEMAS / "streams").glob("*.yaml") if not p.stem.endswith(".expected")]
    assert len(paths) >= 3
    for path in paths:
        text = path.read_text()
        jsonschema.Draft202012Validator(json_schema()).validate(read_yaml(text, Report(path.name)))
        assert text.startswith("# yaml-language-server: $schema=../contract.schema.json\n")
    text = (SCHEMAS / "channels.yaml").read_text()
    jsonschema.Draft202012Validator(channels_json_schema()).validate(yaml.safe_load(text))
    assert text.startswith("# yaml-language-server: $schema=./channels.schema.json\n")


def test_every_field_of_the_schema_has_a_meaning() -> None:
    def walk(schema: dict[str, Any]) -> None:
        for name, field in schema.get("properties", {}).items():
            if "const" not in field and schema.get("additionalProperties") is False:
                assert field.get("description"), name
            walk(field)
        for inside in ("items", "then", "else"):
            if isinstance(schema.get(inside), dict):
                walk(schema[inside])
        for one in schema.get("oneOf", []):
            walk(one)

    walk(json_schema())
    walk(workload_json_schema())

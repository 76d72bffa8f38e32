"""The one grammar of capacities: what people write, in kbps, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from spillway.contracts import read_channel, read_stream
from spillway.contracts.capacity import Quota, SizeShape, parse_capacity, shannon_kbps
from spillway.contracts.fields import Report
from spillway.errors import ContractError, InvalidValue

RIVER: dict[str, Any] = {
    "stream": "river",
    "channel": "uplink",
    "source": {"kind": "files"},
    "attributes": [
        {"name": "at", "type": "timestamp", "role": "order"},
        {"name": "level", "type": "double"},
    ],
}


@pytest.mark.parametrize(
    ("stated", "kbps"),
    [
        ("120 kbps", 120),
        ("120kbps", 120),
        ("5 Mbps", 5000),
        ("0.5 Gbps", 5e5),
        ("56000 bps", 56),
        ("2 GB/day", 2e9 * 8 / 86400 / 1000),
        ("1 kB/s", 8),
        ("1 KiB/s", 8.192),
        ("60 Mbit per minute", 1000),
        ("3.6 MB/hour", 8),
        ("1e3 kbps", 1000),
        ("1 MB per s", 8000),
        ("60 GB/month", 60e9 * 8 / 2_629_746 / 1000),
        ({"quota": "2 GB", "per": "day"}, 2e9 * 8 / 86400 / 1000),
        ({"quota": "3.6 MB", "per": "hour"}, 8),
        (
            {"quota": "2 GiB", "per": "month", "carry_over_pct": 50, "burst": "5 Mbps"},
            2**34 / 2_629_746 / 1000,
        ),
        ({"bandwidth_khz": 4, "signal_to_noise_db": 20}, 4 * math.log2(101)),
        ({"budget_per_day": 1, "price_per_gb": 0.5}, 2e9 * 8 / 86400 / 1000),
    ],
)
def test_a_capacity_is_understood_as_people_write_it(stated: object, kbps: float) -> None:
    found, _ = parse_capacity(stated)
    assert found == pytest.approx(kbps, rel=1e-15)
    assert read_channel("uplink", {"capacity": stated}).capacity_kbps == found


@pytest.mark.parametrize(
    ("stated", "quota"),
    [
        ("2 GB/day", Quota(2e9, "day")),
        ("2 GB per days", Quota(2e9, "day")),
        ("16 Gbit/month", Quota(2e9, "month")),
        ({"budget_per_day": 1.8, "price_per_gb": 0.9}, Quota(2e9, "day")),
        ({"quota": "2 GB", "per": "day"}, Quota(2e9, "day")),
        (
            {"quota": "2 GB", "per": "month", "carry_over_pct": 20, "burst": "5 Mbps"},
            Quota(2e9, "month", 20.0, 5000.0),
        ),
        ({"quota": "2 GB", "per": "hour"}, None),
        ("2 GB/hour", None),
        ("2 GB/min", None),
        ("5 Mbps", None),
        ({"bandwidth_khz": 4, "signal_to_noise_db": 20}, None),
    ],
)
def test_days_and_months_are_quotas_and_what_is_shorter_is_a_rate(
    stated: object, quota: Quota | None
) -> None:
    assert read_channel("uplink", {"capacity": stated}).capacity.quota == quota


def test_a_burst_below_the_mean_rate_says_what_to_write_instead() -> None:
    with pytest.raises(
        InvalidValue, match=r"at least the quota's own mean rate of 185\.2 kbps.*write capacity: 100 kbps"
    ):
        parse_capacity({"quota": "2 GB", "per": "day", "burst": "100 kbps"})
    burst = {"quota": "10.8 GB", "per": "day", "burst": "1 Mbps"}
    assert parse_capacity(burst)[0] == 1000


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        *((words, "capacity") for words in (
            None, "", "0 kbps", "-5 kbps", 120, "120", "fast", "5 Mb", "5 GB", "5 GB/fortnight", "nan kbps", "inf kbps",
            "1,5 Mbps", True, ["5 Mbps"], "1e400 kbps", "1e999999999 kbps", "1e-400 kbps", "1e308 TiB/s", {}, {"x": 1},
            {"bandwidth_khz": 4}, {"bandwidth_khz": 4, "signal_to_noise_db": 4000},
            {"bandwidth_khz": 4, "signal_to_noise_db": -4000}, {"budget_per_day": 1e308, "price_per_gb": 1e-308},
            "2 GB/quarter", {"quota": "2 GB"}, {"per": "day"}, {"quota": "2 GB", "per": "day", "carry_over": 5},
            {"quota": "1e308 TB", "per": "day"},
        )),
        *(({"quota": size, "per": "day"}, "quota") for size in ("2 GB/day", "5", 5, "0 GB", "-1 GB", None, "1e-999 B")),
        *(({"quota": "2 GB", "per": per}, "per") for per in ("week", "minute", "days", None, 1, ["day"])),
        *(
            ({"quota": "2 GB", "per": "day", "carry_over_pct": pct}, "carry_over_pct")
            for pct in (-1, 100.1, "20", True, None, math.nan)
        ),
        *(
            ({"quota": "2 GB", "per": "day", "burst": burst}, "burst")
            for burst in (5, None, "fast", "3 GB/day", "100 kbps", {"bandwidth_khz": 4, "signal_to_noise_db": 60})
        ),
        ({"quota": "2 GB", "per": "hour", "carry_over_pct": 5}, "carry_over_pct"),
        ({"quota": "2 GB", "per": "hour", "burst": "50 Mbps"}, "burst"),
        ({"bandwidth_khz": 0, "signal_to_noise_db": 20}, "bandwidth_khz"),
        ({"bandwidth_khz": "4", "signal_to_noise_db": 20}, "bandwidth_khz"),
        ({"bandwidth_khz": 4, "signal_to_noise_db": math.nan}, "signal_to_noise_db"),
        ({"budget_per_day": 1, "price_per_gb": 0}, "price_per_gb"),
        ({"budget_per_day": -1, "price_per_gb": 1}, "budget_per_day"),
        ({"budget_per_day": True, "price_per_gb": 1}, "budget_per_day"),
    ],
)  # fmt: skip
def test_a_capacity_that_makes_no_sense_is_refused_by_its_field(stated: Any, field: str) -> None:
    with pytest.raises(InvalidValue, match=r"must .*, got .*; ") as caught:
        parse_capacity(stated)
    problem = caught.value.problem
    assert problem.field == field
    # an editor shows the same problem at the field's own place
    with pytest.raises(ContractError) as refused:
        read_channel("uplink", {"capacity": stated})
    (shown,) = refused.value.problems
    at = "channels.uplink.capacity" + ("" if field == "capacity" else f".{field}")
    assert (shown.field, shown.rule, shown.remedy) == (at, problem.rule, problem.remedy)


@pytest.mark.parametrize("bandwidth", [0, -1, math.nan, math.inf])
def test_a_bandwidth_of_nothing_carries_nothing_and_is_refused(bandwidth: float) -> None:
    with pytest.raises(InvalidValue, match="`bandwidth_khz` must be above 0"):
        shannon_kbps(bandwidth, 20)


@pytest.mark.parametrize(
    ("stated", "size"),
    [("1 MB", 1_000_000), ("2 KiB", 2048), (5000, 5000), ("8 bits", 1), ("1.5 kB", 1500)],
)
def test_a_size_is_read_as_whole_bytes(stated: Any, size: int) -> None:
    report = Report("river.yaml")
    assert (SizeShape().read(stated, "until_bytes", report), report.problems) == (size, [])


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ("1", "`batching.until_bytes` must be a number with a unit of size, got '1'; write 1 MB"),
        ("-1 MB", "`batching.until_bytes` must be above 0, got '-1 MB'; write 1 MB"),
        ("0 MB", "`batching.until_bytes` must be above 0, got '0 MB'; write 1 MB"),
        (True, "`batching.until_bytes` must be a number with a unit of size, got True; write 1 MB"),
        (
            "1 MB/day",
            "`batching.until_bytes` must be a number with a unit of size, got '1 MB/day'; write 1 MB",
        ),
        (None, "`batching.until_bytes` must be a number with a unit of size, got None; write 1 MB"),
    ],
)
def test_bad_size_is_refused_with_its_value(stated: Any, sentence: str) -> None:
    with pytest.raises(ContractError) as refused:
        read_stream({**RIVER, "batching": {"until_bytes": stated}}, "river.yaml")
    assert sentence in str(refused.value)


def test_batching_has_defaults_and_refuses_bad_values() -> None:
    assert read_stream(RIVER).batching is None
    found = read_stream({**RIVER, "batching": {}}).batching
    assert found is not None
    assert (found.until_bytes, found.until_seconds) == (1_000_000, 3600.0)
    with pytest.raises(ContractError) as refused:
        read_stream({**RIVER, "batching": {"until_secs": 60, "until_seconds": 0}}, "river.yaml")
    assert "did you mean until_seconds?" in str(refused.value)
    assert "`batching.until_seconds` must be a number above 0" in str(refused.value)

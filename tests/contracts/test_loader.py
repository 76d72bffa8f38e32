"""Reading contracts: everything that is wrong, at once, where it stands, and what to do."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spillway.contracts import Prices, check, load_contracts, read_channel, read_stream, to_plain, zone_of
from spillway.errors import ContractError, InvalidValue, Problem

CHANNELS = "channels:\n  uplink: {capacity: 120 kbps}\n"
WEATHER: dict[str, Any] = {
    "stream": "weather",
    "source": {"kind": "files", "path": "weather", "format": "json"},
    "attributes": [
        {"name": "origin", "type": "string", "role": "key", "nullable": False},
        {"name": "time_hour", "type": "timestamp", "role": "order"},
        {"name": "temp", "type": "double", "role": "measure"},
        {"name": "dewp", "type": "double"},
    ],
    "channel": "uplink",
    "rate": {"from": "declared", "tuples_per_second": 400},
}


def changed(**changes: Any) -> dict[str, Any]:
    """The weather contract, changed at dotted paths; `...` takes the field away."""
    contract = copy.deepcopy(WEATHER)
    for path, value in changes.items():
        at: Any = contract
        *way, last = path.split("__")
        for step in way:
            at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
        if value is ...:
            del at[last]
        else:
            at[int(last) if last.isdigit() else last] = value
    return contract


def with_settings(**settings: Any) -> dict[str, Any]:
    """The weather contract, with these settings of the lever `attributes`."""
    return changed(levers=[{"lever": "attributes", **settings}])


def test_a_streams_clocks_are_known_whatever_else_is_to_mend_in_contracts(tmp_path: Path) -> None:
    texts = {"north": "timezone: Europe/Berlin\nsource: 7\n", "odd": "timezone: Mars/Base\n", "bad": "- 1\n"}
    folder = schemas(tmp_path, None, **texts, plain="stream: plain\n")
    zones = [zone_of(folder, name) for name in ("north", "odd", "bad", "plain", "gone", "../streams/north")]
    assert zones == ["Europe/Berlin", "UTC", "UTC", "UTC", "UTC", "UTC"]
    assert zone_of(tmp_path / "none", "north") == "UTC"


def problems_of(contract: Any) -> list[Problem]:
    with pytest.raises(ContractError) as caught:
        read_stream(contract)
    return list(caught.value.problems)


def schemas(folder: Path, channels: str | None = CHANNELS, **streams: str) -> Path:
    (folder / "streams").mkdir()
    if channels is not None:
        (folder / "channels.yaml").write_text(channels)
    for name, text in streams.items():
        (folder / "streams" / f"{name}.yaml").write_text(text)
    return folder


def test_a_contract_is_read_with_its_defaults() -> None:
    weather = read_stream(WEATHER)
    assert (weather.order, weather.keys, weather.sheddable) == ("time_hour", ("origin",), ("temp", "dewp"))
    assert (weather.subject, weather.mode, weather.width, weather.lever_names) == (
        "weather",
        "shed",
        "compressed",
        ("attributes",),
    )
    settings = weather.lever_settings("attributes")
    assert (settings.rank_by, settings.fit, settings.smoothing.multiplier) == ("recoverability", "bits", 0.18)
    assert (weather.frame.tuples, weather.retain_raw.retire) == (65536, False)
    assert weather.attribute("temp").declared_bits == 64
    assert not weather.arrow_schema.field("time_hour").nullable
    assert read_stream(to_plain(weather)) == weather


def test_a_frame_may_be_unbounded_and_a_cycle_stated_by_hand() -> None:
    by_hand = {**with_settings(cycle={"attributes": ["origin"]}), "frame": {"tuples": None}}
    weather = read_stream(by_hand)
    assert weather.frame.tuples is None
    assert weather.lever_settings("attributes").cycle.attributes == ("origin",)


@pytest.mark.parametrize(
    ("contract", "field", "rule", "remedy"),
    [
        (changed(moed="shed"), "moed", "be a known field", "did you mean mode?"),
        (changed(mode="sched"), "mode", "be one of observe, shed", "did you mean shed?"),
        (changed(attributes__2__type="float"), "attributes[2].type", "be one of string", "did you mean"),
        (changed(attributes__2__unti="degF"), "attributes[2].unti", "be a known field", "did you mean unit?"),
        (changed(attributes__3__name="TEMP"), "attributes[3].name", "differ from attributes[2].name", "rename"),
        (changed(attributes__3__field="temp"), "attributes[3].field", "be read by one attribute", "rename"),
        (changed(attributes__3__name="seq"), "attributes[3].name", "reserves for its own columns", "another name"),
        (changed(attributes__3__name="Scheme"), "attributes[3].name", "the lever attributes reserves", "field: Scheme"),
        (changed(attributes__3__name="weight"), "attributes[3].name", "the lever sifters reserves", "another name"),
        (changed(attributes__3__name="SIC"), "attributes[3].name", "future levers", "another name"),
        (changed(attributes__3__name="dewp__bound_pct"), "attributes[3].name", "be a name", "write e.g."),
        (changed(attributes__3__name="dew point"), "attributes[3].name", "be a name", "field"),
        (changed(attributes__1__role="measure"), "attributes", "hold exactly one of role order", "role: order"),
        (changed(attributes__0__role="order", attributes__0__type="date"), "attributes", "exactly one", "protected"),
        (changed(attributes__1__type="string"), "attributes[1].type", "timestamp, date or integer", "order by"),
        (changed(attributes__0__error_pct=2), "attributes[0].error_pct", "be absent for role key", "remove"),
        (changed(attributes__2__role="protected", attributes__2__error_pct=2), "attributes[2].error_pct", "absent", ""),
        (changed(attributes__2__role="key", attributes__3__role="key"), "levers[0].lever", "role measure", "observe"),
        (changed(attributes__2__error_pct=-1), "attributes[2].error_pct", "at least 0", "write 0 or more"),
        (changed(attributes__2__bits=0), "attributes[2].bits", "at least 1", "write 1 or more"),
        (changed(attributes__2="temp"), "attributes[2]", "be a mapping", "name: ..."),
        (changed(attributes=[]), "attributes", "hold at least 1", "add one"),
        (changed(attributes=...), "attributes", "be there", "add attributes"),
        (changed(channel=...), "channel", "be there", "add channel"),
        (changed(source="weather"), "source", "be a mapping", "kind: ..."),
        (changed(source={"kind": "table"}), "source.kind", "be one of files", "land its rows as files"),
        (changed(source__table="raw.weather"), "source.table", "be absent", "land its rows as files"),
        (changed(source__kind="kafka"), "source.kind", "be one of files", "landing folder"),
        (changed(source__options={"header": True, "delimiter": ";"}), "source.options", "unless", "remove it"),
        (changed(source={"format": "csv", "options": {"delimiter": ";;"}}), "source.options.delimiter", "one char", ""),
        (changed(rate={"from": "declared"}), "rate.tuples_per_second", "be there", "line rate"),
        (changed(rate={"from": "arrival", "tuples_per_second": 3}), "rate.tuples_per_second", "absent", "declared"),
        (changed(rate__tuples_per_second=0), "rate.tuples_per_second", "above 0", "more than 0"),
        (changed(rate__tuples_per_second=float("nan")), "rate.tuples_per_second", "be a number", "plain number"),
        (changed(rate__tuples_per_second="400"), "rate.tuples_per_second", "be a number", "plain number"),
        (with_settings(window={"tuples_at_least": 0}), "levers[0].window.tuples_at_least", "at least 1", "1 or more"),
        (with_settings(window={"tuples_at_least": 64.5}), "levers[0].window.tuples_at_least", "whole", "write 64"),
        (with_settings(window={"tuples_at_least": True}), "levers[0].window.tuples_at_least", "whole", "plain number"),
        (with_settings(smoothing={"multiplier": 1.1}), "levers[0].smoothing.multiplier", "at most 1", "1 or less"),
        (with_settings(reevaluate={"factor": 0.5}), "levers[0].reevaluate.factor", "at least 1", "1 or more"),
        (with_settings(predictors=["last", "trendy"]), "levers[0].predictors[1]", "be one of last", "mean trend?"),
        (with_settings(predictors=["last", "last"]), "levers[0].predictors[1]", "occur once", "remove the repeat"),
        (with_settings(predictors="last"), "levers[0].predictors", "be a list", "write [last]"),
        (with_settings(treatments=["shed"]), "levers[0].treatments", "hold keep", "add keep"),
        (with_settings(plan="prefix", treatments=["keep", "round"]), "levers[0].treatments", "hold shed", "add shed"),
        (with_settings(fit="count"), "levers[0].fit", "be absent if the plan is not prefix", "write plan: prefix"),
        (with_settings(fit="size"), "levers[0].fit", "be one of bits, count", "use one of"),
        (with_settings(plan="prefixes", fit="count"), "levers[0].plan", "be one of least_loss, prefix", "mean prefix?"),
        (with_settings(synopsis="stay"), "levers[0].synopsis", "be one of auto, send, hold", "use one of"),
        (with_settings(requested_pct=101), "levers[0].requested_pct", "at most 100", "write 100 or less"),
        (with_settings(requested_pct=-1), "levers[0].requested_pct", "at least 0", "write 0 or more"),
        (changed(priority=0), "priority", "be a number above 0", "write more than 0"),
        (changed(priority="high"), "priority", "be a number above 0", "plain number"),
        (changed(share={"weight": 2.0}), "share", "be written as priority", "write priority: 2.0"),
        (changed(attributes__2__priority=0), "attributes[2].priority", "be a number above 0", "write more than 0"),
        (changed(attributes__0__priority=2), "attributes[0].priority", "be absent for role key", "remove it"),
        (changed(attributes__1__priority=2), "attributes[1].priority", "be absent for role order", "remove it"),
        (changed(attributes__2__role="protected", attributes__2__priority=2), "attributes[2].priority", "absent", ""),
        (with_settings(training={"parity": "secded"}), "levers[0].training.parity", "be absent: it prot", "parity add"),
        (changed(source={"format": "parquet", "parity": "secded"}), "source.parity", "be none if", "send csv or"),
        (with_settings(error_pct=101), "levers[0].error_pct", "below 100", "write less than 100"),
        (changed(attributes__2__error_pct=100), "attributes[2].error_pct", "below 100", "write less than 100"),
        (changed(attributes__2__error=-0.5), "attributes[2].error", "at least 0", "write 0 or more"),
        (changed(attributes__0__error=2), "attributes[0].error", "be absent for role key", "remove"),
        (with_settings(bounds="none"), "levers[0].bounds", "be one of trained, stated", "use one of"),
        (with_settings(cycle={"attributes": ["orgin"]}), "levers[0].cycle.attributes[0]", "be an attr", "mean origin?"),
        (changed(duplicates={"rows": "exact", "on": ["tmp"]}), "duplicates.on[0]", "be an attribute", "temp"),
        (changed(sketches=[{"kind": "count_min", "attributes": ["x"]}]), "sketches[0].attributes[0]", "be an attr", ""),
        (changed(sketches=[{"kind": "count_mim", "attributes": ["temp"]}]), "sketches[0].kind", "be one of", "count_m"),
        (
            changed(sketches=[{"kind": "count_min", "attributes": ["temp"], "memory_kib": kib} for kib in (8, 9)]),
            "sketches[1]", "be the only count_min of these attributes", "keep one",
        ),
        (changed(retain_raw={"days": 3, "retire": "yes"}), "retain_raw.retire", "true or false", "write true"),
        (with_settings(criticality="high"), "levers[0].criticality", "be one of extremely", "use one of"),
        (changed(stream="Weather-1"), "stream", "be a lower-case name", "net_east"),
        (None, "the file", "be a mapping", "stream: ..."),
    ],
)  # fmt: skip
def test_every_rule_is_told_by_field_rule_and_remedy(
    contract: Any, field: str, rule: str, remedy: str
) -> None:
    found = problems_of(contract)
    assert [p.field for p in found] == [field]
    assert rule in found[0].rule
    assert remedy in found[0].remedy


def test_all_problems_of_a_contract_come_at_once() -> None:
    contract = changed(
        mode="drop",
        attributes__2__type="float",
        attributes__1__role="measure",
        rate={"from": "declared"},
        colour=1,
    )
    fields = {p.field for p in problems_of(contract)}
    assert fields == {"mode", "attributes[2].type", "attributes", "rate.tuples_per_second", "colour"}


def test_all_problems_of_all_files_come_at_once_with_file_and_line(tmp_path: Path) -> None:
    weather = yaml.safe_dump(changed(mode="drop", stream="weather"), sort_keys=False)
    stocks = yaml.safe_dump(changed(stream="stocks", channel="upink"), sort_keys=False)
    folder = schemas(tmp_path, "channels: {uplink: {capacity: 0 kbps}}", weather=weather, stocks=stocks)
    with pytest.raises(ContractError) as caught:
        load_contracts(folder)
    told = [str(problem) for problem in caught.value.problems]
    at = 1 + weather.splitlines().index("mode: drop")
    assert told[0].startswith(
        "channels.yaml:1: `channels.uplink.capacity` must be above 0, got '0 kbps'; write"
    )
    assert told[1].startswith("streams/stocks.yaml:")
    assert told[1].endswith("`channel` must be a channel of channels.yaml, got 'upink'; did you mean uplink?")
    assert told[2] == (
        f"streams/weather.yaml:{at}: `mode` must be one of observe, shed, got 'drop'; use one of observe, shed"
    )
    assert str(caught.value) == "\n".join(told)
    assert [str(p) for p in check(folder)] == told


def test_good_contracts_load_and_streams_find_their_channel(tmp_path: Path) -> None:
    folder = schemas(
        tmp_path,
        weather=yaml.safe_dump(WEATHER),
        rain=yaml.safe_dump(changed(stream="rain", source__path="rain")),
    )
    (folder / "streams" / "weather.expected.yaml").write_text("tuples: 3\n")
    contracts = load_contracts(folder)
    assert check(folder) == []
    assert [s.stream for s in contracts.streams_of("uplink")] == ["rain", "weather"]
    assert contracts.channels["uplink"].name == "uplink"
    assert contracts.channels["uplink"].capacity_kbps == 120
    assert contracts.streams["weather"].source.path == "weather"


@pytest.mark.parametrize(
    ("text", "field", "told"),
    [
        ("stream: [", "the file", "weather.yaml:1: `the file` must be YAML"),
        ("stream: weather\n\tmode: shed\n", "the file", "weather.yaml:2: `the file` must be YAML"),
        ("a: &x [*x]\n", "a[0]", "must not hold itself"),
        ("- weather\n", "the file", "must be a mapping"),
        ("# drafted in vain\n", "the file", "must hold a contract, got 'nothing'; draft one"),
        ("---\na: 1\n---\nb: 2\n", "the file", "must be YAML"),
    ],
)
def test_broken_yaml_is_told_with_its_line(tmp_path: Path, text: str, field: str, told: str) -> None:
    found = check(schemas(tmp_path, weather=text))
    assert field in [p.field for p in found]
    assert told in "\n".join(map(str, found))


def test_a_field_that_stands_twice_is_told_with_both_lines(tmp_path: Path) -> None:
    text = yaml.safe_dump(WEATHER, sort_keys=False) + "channel: market\n"
    problem = check(schemas(tmp_path, weather=text))[0]
    last = len(text.splitlines())
    assert str(problem).startswith(f"streams/weather.yaml:{last}: `channel` must occur once (first on line ")


def test_words_that_yaml_1_1_takes_for_booleans_stay_words(tmp_path: Path) -> None:
    text = (
        yaml.safe_dump(changed(stream="no")).replace("'no'", "no")
        + "duplicates: {rows: exact, on: [origin]}\n"
    )
    contracts = load_contracts(schemas(tmp_path, no=text))
    assert contracts.streams["no"].duplicates.on == ("origin",)


def test_a_file_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    folder = schemas(tmp_path, weather="")
    (folder / "streams" / "weather.yaml").write_bytes(b"stream: w\xe9ather\n")
    assert "streams/weather.yaml: `the file` must be UTF-8 text" in str(check(folder)[0])


def test_a_stream_is_named_like_its_file_and_once(tmp_path: Path) -> None:
    folder = schemas(tmp_path, weather=yaml.safe_dump(WEATHER), rain=yaml.safe_dump(WEATHER))
    (folder / "streams" / "weather.yml").write_text(yaml.safe_dump(WEATHER))
    told = [(p.where.split(":")[0], p.rule) for p in check(folder)]
    assert ("streams/rain.yaml", "be the name of its file") in told
    assert ("streams/weather.yml", "differ from that of streams/rain.yaml") in told


def test_missing_folders_and_files_are_told(tmp_path: Path) -> None:
    told = [str(problem) for problem in check(tmp_path)]
    assert told[0].startswith("channels.yaml: `the file` must be there")
    assert told[1].startswith("streams: `the folder` must be there")


def test_an_unknown_channel_is_not_told_when_channels_cannot_be_read(tmp_path: Path) -> None:
    folder = schemas(tmp_path, "channels: [", weather=yaml.safe_dump(WEATHER))
    assert [p.where.split(":")[0] for p in check(folder)] == ["channels.yaml"]


@pytest.mark.parametrize(
    ("channel", "field"),
    [
        ({}, "channels.uplink.capacity"),
        ({"capacity": "0 kbps"}, "channels.uplink.capacity"),
        ({"capacity": "-5 kbps"}, "channels.uplink.capacity"),
        ({"capacity": 120}, "channels.uplink.capacity"),
        ({"capacity": None}, "channels.uplink.capacity"),
        ({"capacity": "120 kbp"}, "channels.uplink.capacity"),
        (
            {"capacity": {"bandwidth_khz": 0, "signal_to_noise_db": 20}},
            "channels.uplink.capacity.bandwidth_khz",
        ),
        ({"capacity": {"bandwidth_khz": 4}}, "channels.uplink.capacity"),
        ({"capacity": "1 Mbps", "divide_by": "fair"}, "channels.uplink.divide_by"),
        ({"capacity": "1 Mbps", "share": "proportional"}, "channels.uplink.share"),
        ({"capacity": "1 Mbps", "minimize": "cost"}, "channels.uplink.minimize"),
        ({"capacity": "1 Mbps", "prices": {"sent_per_gb": 2}}, "channels.uplink.prices"),
        ({"capacity": "1 Mbps", "minimize": "error", "prices": {"kept_per_gb": 2}}, "channels.uplink.prices"),
        ({"capacity": "1 Mbps", "minimize": "bytes", "prices": 2}, "channels.uplink.prices"),
        (
            {"capacity": "1 Mbps", "minimize": "bytes", "prices": {"sent_per_gb": -1}},
            "channels.uplink.prices.sent_per_gb",
        ),
        (
            {"capacity": "1 Mbps", "minimize": "bytes", "prices": {"sent_per_gb": 0}},
            "channels.uplink.prices.sent_per_gb",
        ),
        (
            {"capacity": "1 Mbps", "minimize": "bytes", "prices": {"kept_per_gb": float("inf")}},
            "channels.uplink.prices.kept_per_gb",
        ),
        ({"capacity": "1 Mbps", "streams": []}, "channels.uplink.streams"),
    ],
)
def test_a_channel_that_makes_no_sense_is_refused_by_its_field(channel: dict[str, Any], field: str) -> None:
    with pytest.raises(ContractError) as caught:
        read_channel("uplink", channel)
    assert [p.field for p in caught.value.problems] == [field]


def test_a_channel_has_all_planned_together_to_lose_least_unless_it_says_otherwise() -> None:
    plain_one = read_channel("uplink", {"capacity": "1 Mbps"})
    assert (plain_one.divide_by, plain_one.minimize) == ("utility", "error")
    paid = {
        "divide_by": "proportional",
        "minimize": "bytes",
        "prices": {"sent_per_gb": 9, "kept_per_gb": 0.2},
    }
    metered = read_channel("uplink", {"capacity": "1 Mbps", **paid})
    assert (metered.divide_by, metered.minimize) == ("proportional", "bytes")
    assert to_plain(metered.prices) == paid["prices"]
    # without prices of its own a byte costs when it is sent, and keeping it costs nothing
    assert read_channel("uplink", {"capacity": "1 Mbps", "minimize": "bytes"}).prices == Prices()


def test_the_old_word_of_a_channel_is_refused_with_the_new_one() -> None:
    with pytest.raises(
        ContractError, match=r"`channels\.uplink\.share` must be written as divide_by"
    ) as caught:
        read_channel("uplink", {"capacity": "1 Mbps", "share": "utility"})
    assert caught.value.problems[0].remedy.startswith("write divide_by: utility, or divide_by: proportional")


@given(
    prices=st.builds(Prices, sent_per_gb=st.floats(0.01, 100), kept_per_gb=st.floats(0, 100)),
    sent=st.floats(0, 1e12), held=st.floats(0, 1e12), asked=st.floats(0, 100), factor=st.floats(0.01, 100),
)  # fmt: skip
def test_only_the_ratio_of_prices_decides_and_what_is_asked_back_is_sent_after_all(
    prices: Prices, sent: float, held: float, asked: float, factor: float
) -> None:
    dearer = Prices(sent_per_gb=prices.sent_per_gb * factor, kept_per_gb=prices.kept_per_gb * factor)
    cost = prices.cost(sent, held, asked)
    assert dearer.cost(sent, held, asked) == pytest.approx(cost * factor)
    kept = Prices(sent_per_gb=1.0).cost(0, held, 100)
    assert kept == pytest.approx(Prices(sent_per_gb=1.0).cost(held, 0, 0))
    assert prices.cost(sent, 0, asked) <= cost


def test_worth_is_stated_by_one_word_on_streams_and_measures() -> None:
    weather = read_stream(changed(priority=2.5, attributes__3__priority=0.5))
    assert (weather.priority, [a.priority for a in weather.attributes]) == (2.5, [1.0, 1.0, 1.0, 0.5])
    assert read_stream(to_plain(weather)) == weather


def test_the_rule_of_the_text_is_asked_for_by_its_plan() -> None:
    ours = read_stream(WEATHER).lever_settings("attributes")
    assert (ours.plan, ours.fit, ours.synopsis, ours.requested_pct) == ("least_loss", "bits", "auto", 1.0)
    text = read_stream(with_settings(plan="prefix", fit="count", synopsis="hold", requested_pct=0))
    settings = text.lever_settings("attributes")
    assert (settings.plan, settings.fit, settings.synopsis, settings.requested_pct) == (
        "prefix", "count", "hold", 0.0,
    )  # fmt: skip
    assert read_stream(to_plain(text)) == text


def test_an_unknown_attribute_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidValue, match="did you mean temp"):
        read_stream(WEATHER).attribute("tmp")


NONSENSE: list[Any] = [
    None,
    True,
    0,
    -1,
    2.5,
    float("inf"),
    "x",
    "",
    [],
    [1],
    ["x", "x"],
    [[]],
    {},
    {"x": 1},
    [{}],
    [None],
]


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(place for step, inside in steps for place in places(inside, (*way, step)))]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=repr)
def test_nonsense_anywhere_is_told_and_never_a_crash(tmp_path: Path, nonsense: Any) -> None:
    whole = to_plain(read_stream(with_settings(cycle={"attributes": ["origin"]})))
    whole["duplicates"] = {"on": ["origin"]}
    whole["sketches"] = [{"kind": "count_min", "attributes": ["origin"]}]
    folder = schemas(tmp_path)
    refused = 0
    for way in places(whole)[1:]:
        contract = copy.deepcopy(whole)
        at = contract
        for step in way[:-1]:
            at = at[step]
        at[way[-1]] = nonsense
        with suppress(ContractError):
            read_stream(contract)
            continue
        refused += 1
    assert refused > 20
    for field in ("stream", "channel", "attributes"):
        text = yaml.safe_dump(changed(**{field: nonsense}))
        (folder / "streams" / "weather.yaml").write_text(text)
        assert check(folder)
        (folder / "channels.yaml").write_text(yaml.safe_dump({"channels": {"uplink": nonsense}}))
        assert check(folder)
        (folder / "channels.yaml").write_text(yaml.safe_dump({"channels": nonsense}))
        assert check(folder)


def test_unchanged_contract_is_parsed_once_per_process_and_a_changed_one_again(tmp_path: Path) -> None:
    folder = schemas(tmp_path, weather=yaml.safe_dump(changed()))
    first = load_contracts(folder).streams["weather"]
    assert load_contracts(folder).streams["weather"] is first
    (folder / "streams" / "weather.yaml").write_text(yaml.safe_dump(changed(description="another")))
    assert load_contracts(folder).streams["weather"].description == "another"
    (folder / "streams" / "weather.yaml").write_text(yaml.safe_dump(changed(channel="elsewhere")))
    for _ in range(2):
        with pytest.raises(ContractError, match=r"be a channel of channels\.yaml"):
            load_contracts(folder)

"""A contract's sketches: built once a batch, rebuilt alone, asked from the command line with their interval."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillway.batch import INGESTED, RECORDED, RETIRED, Batch
from spillway.cli import main
from spillway.contracts import StreamContract, read_stream
from spillway.engine import ProcessEngine
from spillway.engine.protocol import run_alone
from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.store import files
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import FileTask, Tables
from spillway.streams.sketch_builder import sketch_stream
from spillway.streams.stored_sketches import load_sketch, sketches_digest

SKETCHES: list[dict[str, Any]] = [
    {"kind": "count_min", "attributes": ["site"]},
    {"kind": "quantiles", "attributes": ["pulses"]},
    {"kind": "distinct", "attributes": ["site", "level"]},
    {"kind": "pair_count", "attributes": ["site", "temp", "level"], "at_least": 2},
]
NAMES = {"site", "pulses", "site+level", "site+temp+level"}
TYPES = {"site": "string", "at": "timestamp", "temp": "double", "level": "double", "pulses": "integer"}
ARROW = {
    "string": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "double": pa.float64(), "integer": pa.int64(),
}  # fmt: skip
ROLES = {"site": "key", "at": "order"}


def day(number: int) -> date:
    return date(2020, 1, number)


def sites(first: int, count: int) -> list[dict[str, Any]]:
    """Six sites in turn, each tuple a function of its ordinal alone."""
    rows = []
    for i in range(first, first + count):
        turn, site = divmod(i, 6)
        temp = None if i % 41 == 40 else round(40 + 9 * site + 6 * math.sin(turn / 9 + site), 1)
        rows.append(
            {
                "site": f"site-{site}",
                "at": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=turn),
                "temp": temp,
                "level": None if temp is None else round(temp * 1.8 + 32),
                "pulses": None if i % 97 == 96 else 400 + 20 * (site % 3) + (i // 30) % 7,
            }
        )
    return rows


def contract(sketches: Sequence[Mapping[str, Any]] = SKETCHES) -> StreamContract:
    return read_stream(
        {
            "stream": "sites",
            "channel": "narrow",
            "source": {"kind": "files", "path": "sites", "format": "json"},
            "attributes": [
                {"name": name, "type": kind, "role": ROLES.get(name, "measure")}
                for name, kind in TYPES.items()
            ],
            "rate": {"from": "declared", "tuples_per_second": 10},
            "mode": "observe",
            "sketches": list(sketches),
        }
    )


@dataclass(frozen=True)
class World:
    settings: Settings

    @property
    def tables(self) -> Tables:
        """As they are now."""
        return Tables(self.settings)

    def take_in(
        self,
        number: int,
        first: int,
        rows: Sequence[Mapping[str, Any]],
        status: str = INGESTED,
        on: date | None = None,
    ) -> None:
        """Rows in `raw` and their batch, as intake leaves them: in two files."""
        of = on or day(number)
        raw = self.tables.at("raw", "sites").with_attributes(list(TYPES.items()))
        half = len(rows) // 2
        partition = {"batch_date": str(of)}
        pieces = [
            FileTask(partition, number, (number, first, rows[:half])),
            FileTask(partition, number, (number, first + half, rows[half:])),
        ]
        draft = raw.draft(ProcessEngine(), pieces, rows_of_a_piece)
        raw.publish(draft.written, batch=number, batch_date=of)
        now = datetime(2026, 1, 1, tzinfo=UTC)
        last = first + len(rows) - 1
        made = Batch("sites", number, of, status, (), first, last, "run", now, now, rows=len(rows))
        standing = load_batches(self.tables, "sites", batch=number)
        made = replace(made, revision=standing[0].revision if standing else made.revision)
        save_batches(self.tables, [made])

    def sketch(self, asked: StreamContract | None = None, *dates: date) -> int:
        said: list[str] = []
        wanted = (dates[0], dates[1]) if dates else None
        count = run_alone(
            ProcessEngine(), sketch_stream(self.tables.now(), asked or contract(), said.append, wanted)
        )
        assert bool(said) == bool(count)
        return count

    def stored(self) -> dict[tuple[int, str], str]:
        rows = self.tables.at("sketches").rows(["batch", "name", "digest"]).to_pylist()
        assert len({(row["batch"], row["name"]) for row in rows}) == len(rows)
        return {(row["batch"], row["name"]): row["digest"] for row in rows}


def rows_of_a_piece(piece: Any, _counts: dict[str, int]) -> list[pa.Table]:
    number, first, rows = piece.of if isinstance(piece, FileTask) else piece
    columns = {name: pa.array([row[name] for row in rows], ARROW[kind]) for name, kind in TYPES.items()}
    head = {"seq": pa.array(range(first, first + len(rows)), pa.int64())}
    head["batch"] = pa.array([number] * len(rows), pa.int64())
    return [pa.table({**head, **columns})]


@pytest.fixture
def world(tmp_path: Path) -> World:
    root = Path(__file__).resolve().parents[2]
    made = World(
        Settings.from_environment({"SPILLWAY_HOME": str(root), "SPILLWAY_LAKE": str(tmp_path / "lake")})
    )
    made.take_in(1, 0, sites(0, 300))
    made.take_in(2, 300, sites(300, 240))
    assert made.sketch() == 2 * len(SKETCHES)
    return made


def ask(world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str) -> Any:
    monkeypatch.setenv("SPILLWAY_HOME", world.settings.home)
    monkeypatch.setenv("SPILLWAY_LAKE", world.settings.lake)
    monkeypatch.delenv("SPILLWAY_DESTINATION", raising=False)
    code = main(["ask", "sites", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_batch_that_is_there_has_one_of_each(world: World) -> None:
    assert set(world.stored()) == {(batch, name) for batch in (1, 2) for name in NAMES}
    world.take_in(3, 540, sites(540, 10), status=RECORDED)
    world.take_in(4, 550, sites(550, 10), status=RETIRED)
    assert world.sketch() == 0
    assert world.sketch(contract([])) == 0


def test_a_second_run_builds_nothing_and_a_backfill_only_its_own_dates(world: World) -> None:
    before, version = world.stored(), world.tables.at("sketches").version
    assert world.sketch() == 0
    assert world.tables.at("sketches").version == version
    assert world.sketch(None, day(1), day(1)) == len(SKETCHES)
    assert world.stored() == before


def test_a_batch_taken_in_anew_replaces_its_own_sketches_and_no_other(world: World) -> None:
    before = world.stored()
    world.take_in(2, 300, sites(350, 241))
    assert world.sketch(None, day(2), day(2)) == len(SKETCHES)
    after = world.stored()
    assert {key for key in after if after[key] != before[key]} == {(2, name) for name in NAMES}


def test_a_sketch_that_the_contract_gains_is_made_of_what_is_there(world: World) -> None:
    gained = {"kind": "count_min", "attributes": ["level"], "memory_kib": 8, "heavy_pct": None}
    before = world.stored()
    assert world.sketch(contract([*SKETCHES, gained])) == 2
    after = world.stored()
    assert after == before | {key: digest for key, digest in after.items() if key[1] == "level"}
    assert {batch for batch, name in after if name == "level"} == {1, 2}


def test_answers_come_with_interval_method_and_what_they_cover(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, (answer,) = ask(world, monkeypatch, capsys, "site", "frequency", "site-3")
    assert code == 0
    assert (answer["estimate"], answer["covers"]["rows"], answer["covers"]["batches"]) == (90, 540, 2)
    assert answer["low"] <= 90 <= answer["high"]

    until = ("--to-date", "2020-01-01")
    code, (answer,) = ask(world, monkeypatch, capsys, "site", "frequency", "site-3", *until)
    assert (code, answer["estimate"], answer["covers"]["to_date"]) == (0, 50, "2020-01-01")

    code, found = ask(world, monkeypatch, capsys, "site", "top", "2")
    assert [one["estimate"] for one in found] == [90, 90]
    for question, truth in (("skew", 6), ("self-join", 6 * 90**2)):
        code, (answer,) = ask(world, monkeypatch, capsys, "site", question)
        assert (code, answer["low"] <= truth <= answer["high"]) == (0, True)

    truth = len(
        {(row["site"], row["level"]) for row in sites(0, 540) if None not in (row["site"], row["level"])}
    )
    code, (answer,) = ask(world, monkeypatch, capsys, "site+level", "distinct")
    assert (code, answer["low"] <= truth <= answer["high"]) == (0, True)

    values = sorted(row["pulses"] for row in sites(0, 540) if row["pulses"] is not None)
    code, (answer,) = ask(world, monkeypatch, capsys, "pulses", "quantile", "0.5")
    assert answer["low"] <= values[len(values) // 2] <= answer["high"]
    code, (answer,) = ask(world, monkeypatch, capsys, "pulses", "between", "400", "410")
    assert answer["low"] <= sum(value <= 410 for value in values) <= answer["high"]

    rows = [(r["site"], r["temp"], r["level"]) for r in sites(0, 540)]
    pairs = sum(
        sum(a == b for a, b in zip(rows[i], rows[j], strict=True)) >= 2
        for i in range(len(rows))
        for j in range(i)
    )
    name = "site+temp+level"
    code, (answer, a_row) = ask(world, monkeypatch, capsys, name, "near-duplicates")
    assert answer["low"] <= pairs <= answer["high"]
    assert a_row["estimate"] == pytest.approx(answer["estimate"] / 540)

    code, (joined,) = ask(world, monkeypatch, capsys, name, "similarity-join", "sites", name)
    assert joined["low"] <= 2 * pairs + 540 <= joined["high"]
    assert joined["note"] == f"similarity join of sites/{name} x sites/{name}"

    code, (answer,) = ask(world, monkeypatch, capsys, "site", "join", "sites", "site")
    assert code == 0
    assert answer["low"] <= 6 * 90**2 <= answer["high"]


def test_a_question_that_cannot_be_answered_says_what_can(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, told = ask(world, monkeypatch, capsys, "temp", "frequency", "1")
    assert code == 1
    assert "`sketch` must be one that the stream has: count_min of site" in told["error"]
    code, told = ask(world, monkeypatch, capsys, "pulses", "quantile", "half")
    assert (code, "`quantile` must be given some numbers, got half" in told["error"]) == (2, True)
    code, told = ask(world, monkeypatch, capsys, "site", "join", "sites")
    assert (code, "must be given 2 values" in told["error"]) == (2, True)


def test_a_closed_day_is_one_row_and_is_not_used_once_its_batches_have_other_sketches(world: World) -> None:
    def daily() -> list[dict[str, Any]]:
        return world.tables.now().at("daily_sketches").rows(["batch_date", "name", "batches"]).to_pylist()

    def counted(name: str, kind: str, *dates: date) -> Any:
        return load_sketch(world.tables, "sites", name, kind, *dates)

    world.take_in(3, 600, sites(600, 60), on=day(2))
    for number in (4, 5):
        world.take_in(number, 600 + 30 * number, sites(660, 30), on=day(3))
    assert world.sketch() == 3 * len(SKETCHES)
    # the first day has one batch, which is as small, and the last is not closed
    assert {(row["batch_date"], row["name"], row["batches"]) for row in daily()} == {
        (day(2), name, 2) for name in NAMES
    }
    site = counted("site", "count_min")
    assert (site.frequency("site-3").estimate, site.covers.batches, site.covers.missing) == (110.0, 5, 0)
    pulses = sorted(row["pulses"] for row in sites(300, 240) + sites(600, 60) if row["pulses"] is not None)
    assert counted("pulses", "quantiles", day(2), day(2)).sketch.n == len(pulses)
    assert (
        counted("pulses", "quantiles", day(2), day(2)).quantile(0.5).estimate
        == pulses[(len(pulses) - 1) // 2]
    )
    before = daily()
    assert (world.sketch(), daily()) == (0, before)

    world.take_in(3, 600, sites(600, 6), on=day(2))
    assert world.sketch(None, day(2), day(2)) == 2 * len(SKETCHES)
    assert counted("site", "count_min").frequency("site-3").estimate == 101.0
    assert len(daily()) == len(before)
    # a row that is of other sketches than there are now counts for nothing
    tables, where = world.tables.now(), {"stream": "sites", "kind": "count_min", "name": "site"}
    (stale,) = tables.at("daily_sketches").rows(**where).to_pylist()
    (other,) = tables.at("sketches").rows(["payload"], **where, batch=4)["payload"].to_pylist()
    tables.at("daily_sketches").replace([{**stale, "made_of": "others", "payload": other}], **where)
    assert counted("site", "count_min").frequency("site-3").estimate == 101.0


def test_the_sketches_of_a_day_are_named_by_their_seeds_too_where_these_are_several() -> None:
    """What was once summed up of sketches that hash apart is not read; what was of one seed is, under its old name."""
    one, *others = (
        [{"batch": at, "digest": f"d{at}", "parameters": "{}", "seed": seed} for at, seed in enumerate(seeds)]
        for seeds in ((1, 1), (7, 7), (1, 7), (1, 2))
    )
    assert [sketches_digest(rows) == sketches_digest(one) for rows in others] == [True, False, False]


def test_of_a_day_that_is_open_no_file_is_opened_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = files.open_for_reading
    monkeypatch.setattr(files, "open_for_reading", lambda path: (opened.append(path), real(path))[1])
    found = load_sketch(world.tables, "sites", "site", "count_min", day(1), day(2))
    assert found.rows == 540
    mine = [path for path in opened if "/sketches/" in path]
    assert len(mine) == len(set(mine)) > 0


def test_batches_without_a_sketch_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    world.take_in(3, 540, sites(540, 10))
    code, (answer,) = ask(world, monkeypatch, capsys, "site", "frequency", "site-3")
    assert (code, answer["covers"]["batches"], answer["covers"]["missing"]) == (0, 2, 1)


def test_a_range_over_a_change_of_the_contract_is_answered_by_its_parts(world: World) -> None:
    changed = contract([{"kind": "count_min", "attributes": ["site"], "memory_kib": 8, "heavy_pct": 5}])
    world.take_in(3, 540, sites(540, 60))
    tables = world.tables
    first = load_batches(tables, "sites", batch=[1, 2])
    save_batches(tables, [batch.with_changes(batch.updated_at, status=RETIRED) for batch in first])
    assert world.sketch(changed) == 1
    site = load_sketch(world.tables, "sites", "site", "count_min")
    assert [(one.from_date, one.to_date) for one in site.segments] == [
        ("2020-01-01", "2020-01-02"), ("2020-01-03", "2020-01-03"),
    ]  # fmt: skip
    answer = site.frequency("site-3")
    assert (answer.low <= 100 <= answer.high, answer.note) == (
        True, "added up over 2 ranges, each with a sketch of its own shape",
    )  # fmt: skip
    assert [(one.key, one.answer.estimate) for one in site.top(1)] == [(("site-0",), 100.0)]
    with pytest.raises(InvalidValue, match=r"2020-01-01 to 2020-01-02: .*; start at 2020-01-03"):
        site.self_join_size()


def test_what_may_be_asked_is_listed(world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, found = ask(world, monkeypatch, capsys)
    assert code == 0
    assert {one["sketch"] for one in found} == NAMES
    site = next(one for one in found if one["sketch"] == "site")
    assert (site["from"], site["batches"], site["rows"]) == ("2020-01-01", 2, 540)
    assert site["questions"] == "frequency, top, skew, self-join, join"
    code, told = ask(world, monkeypatch, capsys, "nothing")
    assert (code, "got none named nothing" in told["error"]) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("site", "frequency"), "`frequency` must be given 1 values, got none; it takes VALUE"),
        (("site", "frequency", "a", "b"), "must be given 1 values, got a b"),
        (("site+level", "distinct", "JFK", "7"), "`distinct` must be given 0 values, got JFK 7"),
        (("pulses", "between", "1", "2", "3"), "`between` must be given 2 values"),
        (("site", "top", "-1"), "`count` must be a whole number of at least 1, got -1"),
        (("site", "top", "2.5"), "`count` must be a whole number of at least 1, got 2.5"),
        (("site+temp+level", "near-duplicates", "nan"), "`at_least` must be a whole number of at least 1"),
        (
            ("site+temp+level", "similarity-join", "sites"),
            "`similarity-join` must be given 2 to 3 values, got sites",
        ),
        (("pulses", "quantile", "half"), "`quantile` must be given some numbers, got half"),
        (
            ("pulses", "between", "1", "many"),
            "`value` must be of type integer, or null, got 'many'; write e.g. 4711",
        ),
    ],
)
def test_words_that_are_too_many_too_few_or_of_another_type_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: tuple[str, ...], told: str
) -> None:
    code, answer = ask(world, monkeypatch, capsys, *words)
    assert (code in (1, 2), told in answer["error"]) == (True, True), answer


def test_a_similarity_join_is_asked_for_so_many_attributes(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    name = "site+temp+level"
    found = []
    for words in ((), ("2",), ("3",)):
        code, (answer,) = ask(world, monkeypatch, capsys, name, "similarity-join", "sites", name, *words)
        assert code == 0
        found.append(answer)
    assert (
        found[0]["question"]
        == found[1]["question"]
        == "pairs of rows of both that agree in at least 2 attributes"
    )
    assert found[0]["estimate"] == found[1]["estimate"] > found[2]["estimate"] > 0
    code, told = ask(world, monkeypatch, capsys, name, "similarity-join", "sites", name, "1")
    assert (code, "`at_least` must lie from 2 to 3" in told["error"]) == (1, True)


def test_times_are_asked_and_answered_on_the_contracts_clocks(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert world.sketch(contract([{"kind": "quantiles", "attributes": ["at"]}])) == 2
    monkeypatch.setattr("spillway.contracts.zone_of", lambda *_: "Europe/Berlin")
    code, (answer,) = ask(world, monkeypatch, capsys, "at", "quantile", "0")
    assert (code, answer["estimate"]) == (0, "2020-01-01T01:00:00+01:00")
    code, (answer,) = ask(
        world, monkeypatch, capsys, "at", "between", "2020-01-01T01:00", "2020-01-01T00:09:59Z"
    )
    assert (code, answer["estimate"]) == (0, 60.0)

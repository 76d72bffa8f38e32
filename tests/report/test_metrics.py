"""The metrics file, read by a parser as strict as the format's specification."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.pipeline.streams import World, brought_through
from tests.small_lake import batch_row, small_settings, write_table

from spillway.batch import DONE, PLANNED
from spillway.cli import main
from spillway.engine import ProcessEngine
from spillway.errors import InvalidValue
from spillway.report.metrics import Metric, exposition, metrics_of, write_metrics
from spillway.store.tables import Tables
from spillway.streams.exemptions import exempt

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:{{(.*)}})? (NaN|[+-]Inf|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """Every sample, or an error: help and type stand once, before the samples, which stand together and once each."""
    assert text.endswith("\n")
    helped: set[str] = set()
    typed: set[str] = set()
    found: Samples = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, meaning = line.removeprefix("# HELP ").split(" ", 1)
            assert re.fullmatch(NAME, name)
            assert name not in helped, "told once"
            assert re.fullmatch(r"(?:[^\\]|\\[\\n])+", meaning)
            helped.add(name)
            current = name
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {current} gauge"
            assert current not in typed
            typed.add(current)
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == current, "samples of a metric stand together"
            assert current in helped & typed
            labels: list[tuple[str, str]] = []
            rest = match[2] or ""
            while rest:
                label = LABEL.match(rest)
                assert label, rest
                labels.append((label[1], label[2]))
                rest = rest[label.end() :]
                assert rest == "" or rest.startswith(",")
                rest = rest.removeprefix(",")
            assert len({name for name, _ in labels}) == len(labels)
            place = (match[1], frozenset(labels))
            assert place not in found, line
            found[place] = float(match[3].replace("Inf", "inf"))
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return brought_through(ProcessEngine(), tmp_path_factory.mktemp("metrics"))


def of(samples: Samples, name: str, stream: str) -> float:
    return samples[f"spillway_{name}", frozenset({("stream", stream)})]


def test_kept_shed_rejected_violations_headroom_and_lag_are_what_the_tables_say(world: World) -> None:
    found = parsed(exposition(metrics_of(world.tables, NOW)))
    certificates = world.rows("certificates")
    for stream in ("sites", "meters"):
        raw = world.rows("raw", stream)
        assert of(found, "tuples_ingested", stream) == len(raw)
        ledger = [
            r for r in world.rows("ledger") if r["subject"] == stream and r["dimension_kind"] == "total"
        ]
        shed = sum(r["shed"] for r in ledger if r["unit"] == "values" and r["ordinal"] > 0)
        assert of(found, "values_shed", stream) == shed > 0
        attributes = len(world.contracts.stream(stream).attributes)
        assert of(found, "values_kept", stream) == len(raw) * attributes - shed
        assert of(found, "violations", stream) == sum(
            r["violations"] for r in certificates if r["stream"] == stream
        )
        sent, part = of(found, "sent_kbps", stream), of(found, "capacity_kbps", stream)
        assert of(found, "headroom_ratio", stream) == pytest.approx(1 - sent / part)
        assert of(found, "lag_seconds", stream) == of(found, "exempt", stream) == 0
        assert of(found, "last_done_timestamp_seconds", stream) > 1.7e9
    assert found["spillway_expectations_failed", frozenset()] == 0


def test_what_waits_lags_and_an_exempt_stream_is_marked(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, {"river": "uplink", "lake": "uplink"})
    begun = NOW - timedelta(hours=2)
    rows = [batch_row("river", 1, DONE), batch_row("river", 2, PLANNED, created_at=begun)]
    write_table(settings, "batches", rows)
    exempt(Tables(settings), "lake", NOW + timedelta(days=1), "audit", NOW)
    found = parsed(exposition(metrics_of(Tables(settings), NOW)))
    assert (of(found, "lag_seconds", "river"), of(found, "lag_seconds", "lake")) == (7200, 0)
    assert (of(found, "waiting_batches", "river"), of(found, "exempt", "lake")) == (1, 1)
    assert math.isnan(of(found, "headroom_ratio", "lake"))


def test_whatever_a_name_holds_the_text_is_well_formed() -> None:
    odd = Metric("spillway_x", 'back\\slash, "quote",\nline', ((("stream", 'a\\b"c\nd'),), math.inf))
    (sample,) = parsed(exposition([odd])).items()
    assert sample == (("spillway_x", frozenset({("stream", 'a\\\\b\\"c\\nd')})), math.inf)


def test_the_file_is_replaced_as_a_whole(world: World, tmp_path: Path) -> None:
    target = tmp_path / "collector" / "spillway.prom"
    write_metrics(world.tables, NOW, target)
    first = target.stat().st_ino
    with target.open(encoding="utf-8") as reader:
        write_metrics(world.tables, NOW, target)
        assert parsed(reader.read()), "whoever has it open reads the one it opened to its end"
    assert target.stat().st_ino != first
    assert [path.name for path in target.parent.iterdir()] == ["spillway.prom"]


def test_a_file_that_no_collector_reads_is_refused(world: World) -> None:
    with pytest.raises(InvalidValue, match=r"`--metrics` must be a file that ends in .prom"):
        write_metrics(world.tables, NOW, "metrics.txt")


def test_status_writes_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("home", "lake", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(world.settings, name))
    assert main(["status", "--metrics"]) == 0
    path = Path(world.settings.build) / "metrics" / "spillway.prom"
    assert capsys.readouterr().out.split("Wrote ")[1].replace("\n", "") == str(path)
    assert parsed(path.read_text(encoding="utf-8"))

"""What steps read, counted at the store's doors: a file once per step, and no more for each of many streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.pipeline.streams import SITES, World, attribute, json_lines, sites
from tests.store.rows_of_tables import batch

from evidence.bench.bench_reads import Reads, counted_reads
from spillway.batch import DONE
from spillway.engine import ProcessEngine
from spillway.intake.ingest import ingest
from spillway.pipeline.run import run_streams
from spillway.store.batches import load_batches, save_batches
from spillway.streams.shed import shed_channel


def test_a_shed_and_a_validation_read_each_file_once(world: World, tmp_path: Path) -> None:
    world = world.copy(tmp_path)
    world.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 300)))
    ingest(world.tables, world.engine, world.contracts.streams["sites"], "run")
    with counted_reads(world.settings) as shed:
        (done,) = shed_channel(world.tables, world.engine, world.contracts, "narrow")
    (file,) = world.at("raw", "sites").files(batch=done.batch)
    # the threads of a plan read it at the same time
    assert shed.paths[file.path] <= 2
    assert max(shed.paths[path] for path in shed.paths if path != file.path) == 1
    assert shed.decoded == 1
    with counted_reads(world.settings) as validated:
        world.validate()
    assert validated.paths[file.path] == 1
    shared = [name for name, one in world.tables.contracts.items() if one.scope == "shared"]
    assert max(count for path, count in validated.paths.items() if validated.table_of(path) in shared) == 1
    assert validated.decoded == 1
    assert world.batches("sites")[-1].is_validated


def idle(folder: Path, streams: int) -> tuple[Reads, int]:
    """What a run reads that finds nothing to do for some streams, and the number of their small files."""
    contracts = [
        {
            **SITES,
            "stream": f"s{number}",
            "source": {**SITES["source"], "path": f"s{number}"},
            "attributes": [attribute("site", "string", "key"), attribute("at", "timestamp", "order")],
            "levers": [],
        }
        for number in range(streams)
    ]
    world = World.begin(ProcessEngine(), folder, *contracts)
    for number in range(streams):
        done = batch(1, f"s{number}", status=DONE, rows=3, files=(), models={}, validated_revision=0)
        save_batches(world.tables, [done])
        Path(world.settings.landing, f"s{number}").mkdir(parents=True)
    said: list[str] = []
    with counted_reads(world.settings) as reads:
        run_streams(
            world.tables.now(),
            world.engine,
            world.contracts,
            list(world.contracts.streams),
            "run",
            said.append,
        )
    assert said == ["nothing was shed since the last validation"]
    revisions = [replace(one, stream="") for one in load_batches(world.tables.now())]
    assert len({str(one) for one in revisions}) == 1
    return reads, len(world.tables.now().at("batches").paths)


def test_a_run_with_nothing_to_do_reads_as_much_for_each_stream(tmp_path: Path) -> None:
    few, files = idle(tmp_path / "few", 6)
    many, more_files = idle(tmp_path / "many", 24)
    assert (files, more_files) == (6, 24)
    assert many.logs == few.logs
    assert few.opened["batches"] == files
    assert many.opened["batches"] == more_files
    assert many.compared <= 4 * few.compared
    assert many.questions.total() <= 4 * few.questions.total()
    assert many.parsed == few.parsed == 0

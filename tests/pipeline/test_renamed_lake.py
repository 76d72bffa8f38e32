"""A lake with the names of an earlier version is refused by name until `spillway migrate` has given it the new ones."""

from __future__ import annotations

import multiprocessing
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.pipeline.renamed_lake import as_it_was, rows_of, settings_of, write_lake
from tests.pipeline.test_across import at_the_destination, brought_across, values
from tests.store.s3_server import s3_server

from spillway.cli import main
from spillway.errors import ConcurrentRun, InvalidValue
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.delta_log import FORMAT_PROPERTY
from spillway.store.renames import RENAMES
from spillway.store.tables import Table, Tables
from spillway.streams.migrate import migrate


def stored_rows(settings: Settings) -> dict[str, list[str]]:
    """The rows of every renamed table, as texts in an order of their own."""
    tables = Tables(settings)
    return {name: sorted(map(repr, tables.at(name).rows().to_pylist())) for name in RENAMES}


@pytest.fixture(scope="module")
def old_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    write_lake(settings_of(folder), old=True)
    return folder


@pytest.fixture
def old(old_lake: Path, tmp_path: Path) -> Settings:
    shutil.copytree(old_lake, tmp_path / "old")
    return settings_of(tmp_path / "old")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_lake(settings_of(tmp_path_factory.mktemp("new")), old=False)


@pytest.fixture(scope="module")
def expected(new: Settings) -> dict[str, list[str]]:
    return stored_rows(new)


@pytest.mark.parametrize("name", RENAMES)
def test_table_with_earlier_names_is_refused_with_the_remedy(old: Settings, name: str) -> None:
    with pytest.raises(InvalidValue, match="spillway migrate") as refused:
        Tables(old).at(name)
    named = "be called destination_metadata" if name == "destination_metadata" else "format version"
    assert named in str(refused.value)


def test_commands_refuse_a_lake_with_earlier_names(
    old: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Path(__file__).resolve().parents[2]
    for name in ("lake", "landing", "destination"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", str(getattr(old, name)))
    monkeypatch.setenv("SPILLWAY_HOME", str(home))
    assert main(["status"]) != 0
    assert "spillway migrate" in capsys.readouterr().err
    assert main(["migrate"]) == 0
    assert "be at least" not in capsys.readouterr().err
    assert main(["migrate"]) == 0
    assert "every table is as it should be" in capsys.readouterr().out


def test_migrated_lake_has_the_rows_and_columns_of_a_new_one(
    old: Settings, new: Settings, expected: dict[str, list[str]]
) -> None:
    names = [one.name for one in migrate(old)]
    assert sorted(names) == sorted(RENAMES)
    assert stored_rows(old) == expected
    for name, contract in ((name, Tables(new).contract(name)) for name in RENAMES):
        mine, other = (DeltaTable(Tables(one).path(name)) for one in (old, new))
        assert [one.name for one in mine.schema().fields] == list(contract.names)
        assert mine.metadata().configuration[FORMAT_PROPERTY] == str(contract.version)
        assert mine.metadata().partition_columns == other.metadata().partition_columns
        assert [str(one.type) for one in mine.schema().fields] == [
            str(one.type) for one in other.schema().fields
        ]
        assert mine.to_pyarrow_table().num_rows == 6, "delta-rs reads it without Spillway"
    assert not (Path(old.destination) / "told").exists()


def test_second_migration_does_nothing(old: Settings) -> None:
    migrate(old)
    before = {name: Tables(old).at(name).version for name in RENAMES}
    assert migrate(old) == []
    assert {name: Tables(old).at(name).version for name in RENAMES} == before


def test_dry_run_says_what_would_change_and_writes_nothing(old: Settings) -> None:
    def files() -> dict[str, bytes]:
        return {str(one): one.read_bytes() for one in sorted(Path(old.home).rglob("*")) if one.is_file()}

    before, said = files(), list[str]()
    migrate(old, said.append, dry_run=True)
    assert files() == before
    assert "alerts: version 1 to 2: `told_at` is called `tried_at`; `status` told is called delivered" in said
    assert any(one.startswith("destination_metadata: version 1 to 2") and "`told`" in one for one in said)


class Killed(BaseException):
    """The process ends here."""


def dying_at(patch: pytest.MonkeyPatch, last: int) -> None:
    """Let the process end before (even) or after (odd) a step of the migration."""
    count = 0

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            nonlocal count
            for place in (0, 1):
                if count == last:
                    raise Killed
                count += 1
                if not place:
                    found = step(*given, **more)
            return found

        return call

    patch.setattr(DeltaTable, "create_write_transaction", counted(DeltaTable.create_write_transaction))
    patch.setattr(DeltaTable, "create", counted(DeltaTable.create))
    patch.setattr(Table, "evolve_schema", counted(Table.evolve_schema))
    patch.setattr(blobs, "remove_folder", counted(blobs.remove_folder))


def migrates_until(settings: Settings, last: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Migrate in a process that ends at a step; return whether it ended by itself."""
    with monkeypatch.context() as patch:
        dying_at(patch, last)
        try:
            migrate(settings)
        except Killed:
            return False
    return True


def test_migration_that_is_killed_at_any_step_ends_well_when_it_is_run_again(
    tmp_path: Path, expected: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with new values, one with new fields of structs, one with a new name.

    The second run dies as well, in half as many steps. The third one ends.
    """
    names = ("alerts", "destination_metadata", "schemes")
    write_lake(settings_of(tmp_path / "before"), old=True, names=names)
    for last in range(100):
        settings = settings_of(tmp_path / f"killed-{last}")
        shutil.copytree(tmp_path / "before", settings.home)
        alive = migrates_until(settings, last, monkeypatch)
        migrates_until(settings, last // 2, monkeypatch)
        migrate(settings)
        assert {name: stored_rows(settings)[name] for name in names} == {
            name: expected[name] for name in names
        }
        assert migrate(settings) == []
        assert not (Path(settings.destination) / "told").exists()
        if alive:
            break
    assert alive, "the migration has more steps than were tried"
    assert last > 10, "each step was tried"


def test_folder_of_the_earlier_name_that_was_half_removed_is_removed(
    old: Settings, expected: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are copied by then; its log may be gone or broken."""

    def half(path: str) -> None:
        for one in list(Path(path).rglob("*"))[::2]:
            if one.is_file():
                one.unlink()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(blobs, "remove_folder", half)
        with pytest.raises(Killed):
            migrate(old)
    assert next(one.name for one in migrate(old)) == "destination_metadata"
    assert stored_rows(old) == expected
    assert not (Path(old.destination) / "told").exists()


def test_another_run_that_writes_meanwhile_loses_nothing(
    old: Settings, expected: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration is refused, and what the other run wrote is migrated by the next one."""
    tables = Tables(old)
    contract = as_it_was(tables.contract("ledger"))
    overwrite, done = Table.overwrite, list[str]()

    def disturbed(self: Table, *given: Any) -> None:
        if self.path.endswith("/ledger") and not done:
            done.append(self.path)
            tables.own(self.path, contract).append(rows_of(contract, old=True)[:1])
        overwrite(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "overwrite", disturbed)
        with pytest.raises(ConcurrentRun, match="migrate it again"):
            migrate(old)
    migrate(old)
    assert len(stored_rows(old)["ledger"]) == len(expected["ledger"]) + 1


def serve(pipe: Any) -> None:
    with s3_server("lake") as server:
        pipe.send(server.environment)
        pipe.recv()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of an S3 server in a process of its own: delta-rs keeps the interpreter while it sets a property."""
    processes = multiprocessing.get_context("spawn")
    mine, other = processes.Pipe()
    server = processes.Process(target=serve, args=(other,))
    server.start()
    for name, value in mine.recv().items():
        monkeypatch.setenv(name, value)
    yield "s3://lake"
    mine.send("end")
    server.join()


@pytest.mark.long
def test_lake_on_an_object_store_is_migrated(
    tmp_path: Path, expected: dict[str, list[str]], bucket: str
) -> None:
    names = ("alerts", "destination_metadata", "schemes")
    roots = {"lake": f"{bucket}/lake", "destination": f"{bucket}/there"}
    settings = write_lake(settings_of(tmp_path).with_roots(roots), old=True, names=names)
    with pytest.raises(InvalidValue, match="be called destination_metadata"):
        Tables(settings).at("destination_metadata")
    assert sorted(one.name for one in migrate(settings)) == sorted(names)
    assert {name: stored_rows(settings)[name] for name in names} == {name: expected[name] for name in names}
    assert migrate(settings) == []
    assert not [one.path for one in blobs.list_files(bucket) if "/told" in one.path]


def test_old_destination_elsewhere_is_refused_then_migrated_and_gives_the_same_values(tmp_path: Path) -> None:
    """Somebody at the destination has no lake: only the metadata and the rows that were sent."""
    world = brought_across(tmp_path, synopsis="send", treatments=["keep", "shed"])
    there = values(at_the_destination(world), world)
    tables = world.tables.now()
    contract = as_it_was(tables.contract("destination_metadata"))
    new = tables.path("destination_metadata")
    rows = [
        row
        | {
            "payload": zlib.compress(
                zlib.decompress(row["payload"]).replace(b"overhead_bytes", b"beside_bytes")
            )
        }
        for row in world.rows("destination_metadata")
    ]
    assert any(b"beside_bytes" in zlib.decompress(row["payload"]) for row in rows)
    tables.own(new.replace("destination_metadata", "told"), contract).append(rows)
    shutil.rmtree(new)
    with pytest.raises(InvalidValue, match=r"be called destination_metadata.*got 'told'.*spillway migrate"):
        at_the_destination(world)
    alone = replace(world.settings, lake=str(world.folder / "nothing"))
    assert [one.name for one in migrate(alone)] == ["destination_metadata"]
    assert migrate(alone) == []
    assert values(at_the_destination(world), world) == there

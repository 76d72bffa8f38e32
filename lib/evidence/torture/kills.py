"""Kill runs by SIGKILL at random moments, run again, and compare the tables with those of an undisturbed run.

Half of the runs are killed at a random moment of a run, half before, within or after a random write to the store; every
fifth run also validates and retires. Every fourth run begins with an empty lake and spends most of its time on
training. The others continue a lake that has everything except the last deliveries of each stream; there nearly all
moments are between two writes. Tables are compared row by row, read without the product, except for values in which a
rerun may differ: the run, its times, and the revisions of rows. Twenty more runs are killed with Spark (`with_spark`).
"""

from __future__ import annotations

import pickle
import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.book import Say
from evidence.torture.deaths import PHASES, Writes
from evidence.torture.processes import Child, ProcessEnd, run_forked
from evidence.torture.reader import Row, table_rows, tables_below
from evidence.torture.steps import bring_all
from evidence.torture.with_spark import kill_group, spark_seconds
from evidence.torture.world import TortureWorld, create_world

KILLS, SPARK_KILLS, VALIDATED_EVERY, EMPTY_EVERY = 200, 20, 5, 4
VOLATILE = frozenset(
    ("run_id", "created_at", "updated_at", "seconds", "revision", "validated_revision", "attempts", "reason")
)
JUDGED = "validations"
"""Of it every run leaves its own rows."""

Tables = Mapping[str, list[tuple[str, ...]]]


def torture_by_killing(
    say: Say, seed: int, kills: int = KILLS, spark_kills: int = SPARK_KILLS
) -> dict[str, float]:
    """Return the number of kills, and how often the tables differed after the next run."""
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        folder = Path(place)
        worlds = {"empty": create_world(folder / "fresh")}
        worlds["going"] = _prepare_world(worlds["empty"], folder)
        straight = {
            (name, validated): _run_undisturbed(world, folder, f"{name}-{validated}", validated)
            for name, world in worlds.items()
            for validated in (False, True)
        }
        for (name, validated), (seconds, writes, tables) in straight.items():
            done = "taken in, trained, shed" if name == "empty" else "the last deliveries taken in, shed"
            what = done + ", validated, retired" * validated
            say(
                f"undisturbed, {what}: {seconds:.2f} s, {writes} writes, {sum(map(len, tables.values()))} rows"
            )

        def kill(number: int) -> list[str]:
            chance = random.Random(f"kill {number} of {seed}")
            name = "empty" if number % EMPTY_EVERY == 0 else "going"
            validated, found = number % VALIDATED_EVERY == VALIDATED_EVERY - 1, None
            while found is None:  # None: it had ended before its time came
                mine, by_time = folder / f"killed-{number}", chance.random() < 0.5
                found = _kill_once(worlds[name], mine, chance, by_time, validated, *straight[name, validated])
            if found or number % 20 == 19:
                say(f"kill {number + 1} of {kills}: {found or 'the same'}")
            return [found] if found else []

        different = run_forked(kill, range(kills), folder)
        fresh, expected = worlds["empty"], straight["empty", False][2]
        seconds = spark_seconds(fresh, folder / "with-spark") if spark_kills else 0.0

        def kill_spark(number: int) -> list[str]:
            chance = random.Random(f"kill {number} of {seed} with Spark")
            mine, died = folder / f"spark-{number}", False
            while not died:
                shutil.rmtree(mine, ignore_errors=True)
                how, died = kill_group(fresh, mine, chance, seconds)
            found = rerun(TortureWorld(mine), how, False, expected)
            shutil.rmtree(mine)
            say(f"kill {number + 1} of {spark_kills} with Spark: {found or 'the same'}")
            return [found] if found else []

        with_spark = run_forked(kill_spark, range(spark_kills), folder)
    return {"torture.kills": kills + spark_kills, "torture.kills_different": len(different) + len(with_spark)}


def _prepare_world(fresh: TortureWorld, folder: Path) -> TortureWorld:
    """Return a world with all but the last day taken in, trained and shed; the last day has been delivered."""
    world, aside = fresh.copy(folder / "going"), folder / "later"
    landing = world.folder / "landing"
    last = [max(day for day in stream.iterdir() if day.is_dir()) for stream in sorted(landing.iterdir())]
    for day in last:
        (aside / day.parent.name).mkdir(parents=True)
        day.rename(aside / day.parent.name / day.name)
    ended = Child(lambda: bring_all(world), folder / "said").wait()
    if ended.code:
        raise RuntimeError(f"what came before must end well, got {ended.code}: {ended.said}")
    for day in last:
        (aside / day.parent.name / day.name).rename(day)
    return world


def _run_undisturbed(
    start: TortureWorld, folder: Path, name: str, validated: bool
) -> tuple[float, int, Tables]:
    """Return the seconds of a run, its number of writes, and the resulting tables."""
    world = start.copy(folder / f"straight-{name}")
    held = folder / "held"

    def run() -> None:
        writes = Writes()
        writes.watch()
        bring_all(world, validated=validated)
        held.write_bytes(pickle.dumps((writes.count, contents(world.lake))))

    ended = Child(run, folder / "said").wait()
    if ended.code:
        raise RuntimeError(f"an undisturbed run must end well, got {ended.code}: {ended.said}")
    count, tables = pickle.loads(held.read_bytes())
    return ended.seconds, count, tables


def _kill_once(
    start: TortureWorld,
    folder: Path,
    chance: random.Random,
    by_time: bool,
    validated: bool,
    seconds: float,
    writes: int,
    expected: Tables,
) -> str | None:
    """Return the differences after a kill and a rerun; "" if there are none, None if the run was not killed."""
    world = start.copy(folder)
    try:
        if by_time:
            at = chance.uniform(0.0, seconds)
            how = f"after {at:.3f} s"
            ended = Child(lambda: bring_all(world, validated=validated), folder / "said").wait(at)
        else:
            number, phase = chance.randint(1, writes), chance.choice(PHASES)
            how = f"{phase} write {number}"

            def run() -> None:
                Writes(number, phase).watch()
                bring_all(world, validated=validated)

            ended = Child(run, folder / "said").wait()
        if not ended.was_killed:
            return None if not ended.code else f"it broke before it was killed {how}: {ended.said}"
        return rerun(world, how, validated, expected)
    finally:
        shutil.rmtree(folder)


def rerun(world: TortureWorld, how: str, validated: bool, expected: Tables) -> str:
    """Return the differences between the next run and an undisturbed one; "" if there are none."""
    held = world.folder / "differs"

    def run() -> None:
        bring_all(world, validated=validated)
        held.write_text(first_difference(contents(world.lake), expected), encoding="utf-8")

    ended: ProcessEnd = Child(run, world.folder / "said").wait()
    if ended.code:
        return f"killed {how}, the next run did not end well: {ended.said}"
    found = held.read_text(encoding="utf-8")
    return f"killed {how}: {found}" if found else ""


def contents(lake: Path) -> Tables:
    """Return the rows of every table as text, in order."""
    found = {name: sorted(map(_row_key, table_rows(path))) for name, path in tables_below(lake).items()}
    return {name: rows for name, rows in found.items() if rows and name != JUDGED}


def first_difference(found: Tables, expected: Tables) -> str:
    """Return the first difference from the expected tables in a sentence; "" if there is none."""
    for name in sorted(found.keys() | expected.keys()):
        mine, theirs = found.get(name, []), expected.get(name, [])
        if mine != theirs:
            odd = next((row for row in mine if row not in theirs), ())
            gone = next((row for row in theirs if row not in mine), ())
            strange, missing = (
                [part for part in one if part not in other] for one, other in ((odd, gone), (gone, odd))
            )
            return f"{name}: {len(mine)} rows for {len(theirs)}; first {strange} for {missing}"[:1200]
    return ""


def _row_key(row: Row) -> tuple[str, ...]:
    return tuple(sorted(f"{name}={_plain(value)}" for name, value in row.items() if name not in VOLATILE))


def _plain(value: Any) -> Any:
    return value if not isinstance(value, float) else repr(value)

"""Run the join in the pipeline on a separate lake: any number of slices, and kills, must give the same tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml

from evidence.book import Book
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.levers.joins import decision
from spillway.levers.windows import DONE
from spillway.pipeline.run import run_channel
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.workloads import run
from spillway.workloads.run import run_workloads

_ROWS = 400
_LATE = 40
"""Rows of either stream that arrive when their windows are computed, or partly computed."""
JOIN: dict[str, Any] = {
    "name": "alike",
    "inputs": ["east", "west"],
    "window": {"seconds": 10},
    "levers": [
        {
            "lever": "joins",
            "left": {"attribute": "tags", "lasts_seconds": 20},
            "right": {"attribute": "tags", "lasts_seconds": 15},
            "predicate": "overlap",
            "threshold": 2,
            "sets": {},
            "basic_window_seconds": 2,
            "most_rows": 160,  # a window or two at a time, so that a death finds some done and some not
            "budget": {"comparisons_per_second": 60},
        }
    ],
}
STAGES = ("_drafted", "write_ledger", "save_windows")


class _Death(BaseException):
    """An exception that no step catches."""


def same_tables(book: Book, kills: int) -> dict[str, float]:
    """Count rows of results and records that differ from those of one undisturbed run."""
    with TemporaryDirectory() as folder:
        plain, _ = _join_tables(Path(folder, "plain"))
        parts = 0
        for steps in (200, 2_000):
            with patch.object(decision, "STEPS_A_PART", steps):
                parts += _differ(plain, _join_tables(Path(folder, f"parts{steps}"))[0])
        deaths = 0
        undisturbed = {}
        for number in range(kills):
            killed, first = _join_tables(Path(folder, f"kill{number}"), seed=number + 1)
            if first not in undisturbed:
                undisturbed[first], _ = _join_tables(Path(folder, f"undisturbed{first}"), first=first)
            deaths += _differ(undisturbed[first], killed)
    book.table(
        "In the lake",
        ("figure", "rows that differ"),
        [
            ("2 and 7 parts against one", parts),
            (f"{kills} runs that die at random stages, four times, rows coming late in between", deaths),
        ],
    )
    return {"joins.partitions_differ": parts, "joins.kills_differ": deaths}


def _join_tables(
    folder: Path, cores: int = 1, seed: int = 0, first: int | None = None
) -> tuple[list[Any], int]:
    """Return the rows of the join's tables after all windows are computed, and again after some rows arrived late.

    With a seed, the run is killed several times: late rows then find windows that are done, drafted, or untouched. A
    window that is done when they arrive keeps its result unless they belong to it; one that is not done includes them.
    So a run with kills is compared with a run without kills in which as many windows were done by then: `first` of them
    (None: all). The number of done windows is returned too.
    """
    schemas = folder / "schemas"
    (schemas / "streams").mkdir(parents=True)
    (schemas / "joins").mkdir()
    (schemas / "channels.yaml").write_text(yaml.safe_dump({"channels": {"wide": {"capacity": "9 Mbps"}}}))
    for name in ("east", "west"):
        (schemas / "streams" / f"{name}.yaml").write_text(yaml.safe_dump(_stream(name)))
    (schemas / "joins" / "alike.yaml").write_text(yaml.safe_dump(JOIN))
    roots = {
        f"SPILLWAY_{root.upper()}": str(folder / root) for root in ("lake", "landing", "schemas", "build")
    }
    settings = Settings.from_environment({"SPILLWAY_HOME": Settings.from_environment().home, **roots})
    tables, contracts = Tables(settings), load_contracts(schemas)
    chance = np.random.default_rng(seed)
    engine, done = ProcessEngine(cores), 0
    for number, some in enumerate((slice(_LATE, None), slice(None, _LATE))):
        for which, name in enumerate(("east", "west")):
            path = Path(settings.landing, name, f"2026-01-0{number + 1}", f"{number}.json")
            path.parent.mkdir(parents=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in list(_rows(which))[some]))
        run_channel(tables, ProcessEngine(), contracts, "wide", "evidence")
        for _ in range(2 if seed else 0):
            with _die_at_random(chance):
                run_workloads(tables, engine, contracts)
        if not number:
            if not seed:
                with _limit_windows(first):
                    run_workloads(tables, engine, contracts)
            status = tables.now().at("windows").rows(["status"], subject="alike")["status"].to_pylist()
            done = status.count(DONE)
        else:
            run_workloads(tables, engine, contracts)
    now = tables.now()
    skipped = {"updated_at", "core_seconds"}
    found = now.at("joined", "alike").rows().to_pylist() + now.at("join_windows").rows().to_pylist()
    return sorted(repr({k: v for k, v in row.items() if k not in skipped}) for row in found), done


@contextmanager
def _limit_windows(first: int | None) -> Iterator[None]:
    """Compute only the first pinned windows."""
    pinned = getattr(run, "pinned_windows")  # noqa: B009

    def some(*arguments: Any) -> Any:
        return pinned(*arguments)[:first]

    with patch.object(run, "pinned_windows", some):
        yield


@contextmanager
def _die_at_random(chance: np.random.Generator) -> Iterator[None]:
    """Die at a random call of a random stage."""
    stage, left = STAGES[chance.integers(0, len(STAGES))], [int(chance.integers(0, 4))]
    real = getattr(run, stage)

    def perhaps(*arguments: Any, **named: Any) -> Any:
        if left[0] == 0:
            raise _Death
        left[0] -= 1
        return real(*arguments, **named)

    with patch.object(run, stage, perhaps):
        try:
            yield
        except _Death:
            return


def _stream(name: str) -> dict[str, Any]:
    return {
        "stream": name,
        "channel": "wide",
        "source": {"path": name, "format": "json", "settle_seconds": 0},
        "attributes": [
            {"name": "site", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            {"name": "tags", "type": "string"},
        ],
        "rate": {"from": "declared", "tuples_per_second": 5},
        "levers": [],
    }


def _rows(which: int) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(which)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(_ROWS):
        tags = sorted({f"t{chance.integers(0, 9)}" for _ in range(chance.integers(0, 5))})
        at = begin + timedelta(seconds=number / 5)
        yield {"site": f"s{number % 3}", "at": at.isoformat(), "tags": " ".join(tags) or None}


def _differ(one: list[Any], other: list[Any]) -> int:
    return len(set(one) ^ set(other))

"""What the DAGs' forms ask, and the schedule of those that follow shedding: said once for all of them."""

from __future__ import annotations

from airflow.sdk import Asset, AssetOrTimeSchedule, CronTriggerTimetable, Param

from spillway.scheduling import SHED_ASSET


def names_asked(what: str, doing: str) -> Param:
    """A field for some of the streams, or of the joins and queries, by name; nothing: all."""
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        title=what,
        description=f"{what} to {doing}, one a line; empty: all.",
    )


def after_shedding(cron: str) -> AssetOrTimeSchedule:
    """Whenever `spillway_shed` announces new data, and by the clock (UTC) for what came while nobody looked."""
    return AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=[Asset(SHED_ASSET)]
    )

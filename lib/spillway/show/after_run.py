"""When a run is over: hooks hear what went wrong, Prometheus reads how things stand.

Guarantee: nothing is raised, and one of the two keeps the other from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.errors import SpillwayError
from spillway.levers.protocol import Say
from spillway.show.alerts import FindAddress, address_in_environment, run_failures, tell_hooks
from spillway.show.metrics import write_metrics
from spillway.store.tables import Tables


def after_run(
    tables: Tables,
    contracts: Contracts,
    say: Say,
    failed: Sequence[str] = (),
    run_id: str = "",
    address: FindAddress = address_in_environment,
) -> Path | None:
    """Tell hooks, also the sentences that the run failed with, and write the metrics; where these are."""
    red = list(run_failures(failed, run_id, contracts))
    _tried(
        "hooks could not be told", say, lambda: tell_hooks(tables, contracts, utc_now(), say, red, address)
    )
    written: list[Path] = []
    _tried("metrics could not be written", say, lambda: written.append(write_metrics(tables, utc_now())))
    return written[0] if written else None


def _tried(what: str, say: Say, act: Callable[[], object]) -> None:
    try:
        act()
    except (SpillwayError, OSError) as problem:
        say(f"{what}: {problem}")
    except Exception as problem:  # of what nobody foresaw only the kind: its words may hold an address
        say(f"{what}: {type(problem).__name__}; report it")

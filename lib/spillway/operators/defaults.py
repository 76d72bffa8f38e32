"""How every task of a DAG behaves: whose it is, how often it is tried, how long it takes, who hears of a failure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from spillway.operators.tell import tell_of_failure

TASK_DEFAULTS: dict[str, Any] = {
    "owner": "spillway",
    # Three tries over some minutes outlast a restarting master; a wrong contract fails the same way each time.
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=2),
    "on_failure_callback": tell_of_failure,
}

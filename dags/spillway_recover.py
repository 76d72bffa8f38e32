"""
### Recover shed values

On demand: fill in the form. Every shed value is recovered with its bound, from the `transmitted` rows of the
destination and from the data that was kept at the source.

- **With an output** the requested rows and attributes are written below the folder `SPILLWAY_OUTPUT`. A name that
  ends in `.parquet`, `.csv` or `.json` is a file. A name without a suffix is a Delta table, which then holds only
  these rows. The log has the number of bytes read.
- **Without one** every batch that the range touches is recovered as a whole and replaces its rows in
  `recovered/<stream>`. A second run leaves the same rows.

One key at one moment needs no Spark and no DAG: `spillway recover STREAM --key name=value` answers at once.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from spillway.airflow import TASK_DEFAULTS, SubmitJob, Tell
from spillway.scheduling import spark_step

with DAG(
    dag_id="spillway_recover",
    doc_md=__doc__,
    description="Give shed values back for a stream, attributes, keys and a range",
    schedule=None,
    catchup=False,
    max_active_runs=4,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "recover"],
    params={
        "stream": Param(
            "weather", type="string", minLength=1, title="Stream", description="As its contract names it."
        ),
        "attributes": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Attributes",
            description="Attributes in the output, one a line; empty: all.",
        ),
        "keys": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Keys",
            description="Only tuples of these keys in the output, one name=value a line, e.g. origin=JFK; "
            "empty: all.",
        ),
        "from_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="From time",
            description="First moment of the order attribute, included; without an offset, on the clocks of the "
            "contract's timezone.",
        ),
        "to_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="To time",
            description="Last moment of the order attribute, included.",
        ),
        "from_seq": Param(
            None, type=["null", "integer"], minimum=0, title="From seq", description="First seq, included."
        ),
        "to_seq": Param(
            None, type=["null", "integer"], minimum=0, title="To seq", description="Last seq, included."
        ),
        "output": Param(
            None,
            type=["null", "string"],
            title="Output",
            description="What to write below SPILLWAY_OUTPUT: a file that ends in .parquet, .csv or .json, or a Delta "
            "table; empty: whole batches go to recovered/<stream> of the destination.",
        ),
    },
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def read_form() -> list[str]:
        """Return the job's arguments; refuse an invalid form by name, without a retry."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import recover_arguments
        from spillway.settings import Settings

        try:
            return recover_arguments(Settings.from_environment(), get_current_context()["params"])
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    recover = SubmitJob(task_id="recover", application_args=read_form(), **spark_step("recover"))
    recover >> Tell(task_id="tell").as_teardown()

"""
### Recover shed values

This DAG runs on request: fill in the form. It recovers every shed value with its bound, from the `transmitted` rows at
the destination and from the data kept at the source.

- **With an output** the requested rows and attributes are written below the folder `SPILLWAY_OUTPUT`. A name that
  ends in `.parquet`, `.csv` or `.json` is a file. A name without a suffix is a Delta table. Its rows are
  replaced by the requested rows. The log has the number of bytes read.
- **Without an output** every batch with a row in the range is recovered as a whole and replaces its rows in
  `recovered/<stream>`. A second run writes the same rows.

For one key, `spillway recover STREAM --key name=value` is faster: it does not start Spark or a DAG.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from spillway.airflow import TASK_DEFAULTS, SubmitJob, Tell, name_field
from spillway.scheduling import spark_step, stream_names

with DAG(
    dag_id="spillway_recover",
    doc_md=__doc__,
    description="Recover shed values of a stream, by attributes, keys and range",
    schedule=None,
    catchup=False,
    max_active_runs=4,
    dagrun_timeout=timedelta(hours=6),
    default_args=TASK_DEFAULTS,
    tags=["spillway", "recover"],
    params={
        "stream": name_field("Stream", stream_names()),
        "attributes": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Attributes",
            description="Attributes in the output, one per line. Empty: all.",
        ),
        "keys": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Keys",
            description="Only tuples with these keys, one name=value per line, e.g. origin=JFK. Empty: all.",
        ),
        "from_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="From time",
            description="First value of the order attribute, inclusive. Without an offset: in the timezone of the "
            "contract.",
        ),
        "to_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="To time",
            description="Last value of the order attribute, inclusive.",
        ),
        "from_seq": Param(
            None, type=["null", "integer"], minimum=0, title="From seq", description="First seq, inclusive."
        ),
        "to_seq": Param(
            None, type=["null", "integer"], minimum=0, title="To seq", description="Last seq, inclusive."
        ),
        "output": Param(
            None,
            type=["null", "string"],
            title="Output",
            description="File (.parquet, .csv or .json) or Delta table to write in SPILLWAY_OUTPUT. Empty: whole "
            "batches are written to recovered/<stream> of the destination.",
        ),
    },
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def read_form() -> list[str]:
        """Return the job's arguments; reject an invalid form without a retry."""
        from spillway.errors import SpillwayError
        from spillway.scheduling import recover_arguments
        from spillway.settings import Settings

        try:
            return recover_arguments(Settings.from_environment(), get_current_context()["params"])
        except SpillwayError as problem:
            raise AirflowFailException(str(problem)) from None

    recover = SubmitJob(task_id="recover", application_args=read_form(), **spark_step("recover"))
    recover >> Tell(task_id="tell").as_teardown()

"""What the DAGs are made of: how tasks behave, the step that Spark runs, and who hears when a run is over."""

from spillway.operators.defaults import TASK_DEFAULTS
from spillway.operators.rooms import each_room, follow, in_sentences, read_contracts, shed_and_sketch
from spillway.operators.submit import SubmitJob
from spillway.operators.tell import Tell

__all__ = [
    "TASK_DEFAULTS",
    "SubmitJob",
    "Tell",
    "each_room",
    "follow",
    "in_sentences",
    "read_contracts",
    "shed_and_sketch",
]

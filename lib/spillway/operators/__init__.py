"""What the DAGs are made of: how tasks behave, the step that Spark runs, and who hears when a run is over."""

from spillway.operators.defaults import TASK_DEFAULTS
from spillway.operators.forms import after_shedding, names_asked
from spillway.operators.rooms import contracts_are_usable, each_room, follow, in_sentences, shed_and_sketch
from spillway.operators.submit import SubmitJob
from spillway.operators.tell import Tell

__all__ = [
    "TASK_DEFAULTS",
    "SubmitJob",
    "Tell",
    "after_shedding",
    "contracts_are_usable",
    "each_room",
    "follow",
    "in_sentences",
    "names_asked",
    "shed_and_sketch",
]

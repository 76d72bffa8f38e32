"""Contracts of streams, joins, queries and channels, with the levers that the owner of each allows.

`load_contracts` reads and validates `schemas/` once. `check` lists all problems. `json_schema` returns the JSON Schema
for editors.
"""

from spillway.contracts.capacity import Capacity
from spillway.contracts.channel import Channel, Prices
from spillway.contracts.fields import to_plain
from spillway.contracts.levers import LeverEntry, Subject
from spillway.contracts.loader import (
    check,
    find_channel_groups,
    find_names,
    load_contracts,
    load_usable,
    read_channel,
    read_stream,
    read_workload,
    zone_of,
)
from spillway.contracts.schema import channels_json_schema, json_schema, workload_json_schema, write_schemas
from spillway.contracts.stream import (
    ARROW_TYPES,
    ROLES,
    TYPES,
    Attribute,
    BrokenContract,
    Contracts,
    StreamContract,
)
from spillway.contracts.workload import Workload

__all__ = [
    "ARROW_TYPES",
    "ROLES",
    "TYPES",
    "Attribute",
    "BrokenContract",
    "Capacity",
    "Channel",
    "Contracts",
    "LeverEntry",
    "Prices",
    "StreamContract",
    "Subject",
    "Workload",
    "channels_json_schema",
    "check",
    "find_channel_groups",
    "find_names",
    "json_schema",
    "load_contracts",
    "load_usable",
    "read_channel",
    "read_stream",
    "read_workload",
    "to_plain",
    "workload_json_schema",
    "write_schemas",
    "zone_of",
]

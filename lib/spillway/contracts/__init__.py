"""Contracts: what a stream is, what its owner allows, and the channel it goes through.

`load_contracts` reads and validates `schemas/` once; `check` lists what is wrong; `json_schema` is for
editors; `new_contract` drafts a contract from a landing file.
"""

from spillway.contracts.capacity import Capacity
from spillway.contracts.loader import check, load_contracts, read_channel, read_stream
from spillway.contracts.model import (
    ARROW_TYPES,
    CRITICALITIES,
    ROLES,
    TYPES,
    Attribute,
    Channel,
    Contracts,
    StreamContract,
)
from spillway.contracts.scaffold import new_contract
from spillway.contracts.schema import channels_json_schema, json_schema, write_schemas
from spillway.contracts.shapes import plain

__all__ = [
    "ARROW_TYPES",
    "CRITICALITIES",
    "ROLES",
    "TYPES",
    "Attribute",
    "Capacity",
    "Channel",
    "Contracts",
    "StreamContract",
    "channels_json_schema",
    "check",
    "json_schema",
    "load_contracts",
    "new_contract",
    "plain",
    "read_channel",
    "read_stream",
    "write_schemas",
]

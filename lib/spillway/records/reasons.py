"""Kinds of refusal, for counting: a fixed vocabulary, whatever the data says.

A kind is a field of the contract, or a word for what is none, and a rule without the figures in it. So there are no
more of them than the contract has fields, times some ten rules; and no more than `MOST_REASONS` in a ledger.

>>> bounded_reasons({f"r{i:03}": 1 for i in range(300)} | {"temp must be there": 9}, most=3)
{'temp must be there': 9, 'r000': 1, 'r001': 1, 'other reasons': 298}
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spillway.contracts.model import StreamContract
from spillway.errors import safely

MOST_REASONS = 200
OTHER_REASONS = "other reasons"
_WHOLE = ("the line", "the record", "the header", "the file")
_FIGURE = re.compile(r"[0-9][0-9,]*")


def reason_of(contract: StreamContract, field: str, rule: str) -> str:
    """The kind of a refusal."""
    known = {safely(attribute.source_name) for attribute in contract.attributes}
    name = field if field in known or field in _WHOLE else "an unknown field"
    counted = rule.startswith(("have ", "hold ", "be at most "))
    return f"{name} must {_FIGURE.sub('n', rule) if counted else rule}"


def bounded_reasons(reasons: Mapping[str, int], most: int = MOST_REASONS) -> dict[str, int]:
    """The most frequent kinds, and one for the rest; they add up to the same."""
    ordered = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    rest = sum(reasons[reason] for reason in ordered[most:])
    return {reason: reasons[reason] for reason in ordered[:most]} | ({OTHER_REASONS: rest} if rest else {})

"""Whom a stream's or a channel's owner wants told: the name of an address, and of what.

The address itself, which is as good as a password, never stands in a contract: it is the environment variable
`SPILLWAY_HOOK_NAME`, or the password of the Airflow connection NAME.

>>> AlertHook(hook="oncall").on
('violation', 'shortfall', 'refusal', 'failure')
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.contracts.shapes import Choice, Listing, Text, rule

EVENTS = ("violation", "shortfall", "refusal", "failure")
_REMEDY = (
    "write a name, and put the address into SPILLWAY_HOOK_NAME or the password of the Airflow connection"
)


@dataclass(frozen=True, kw_only=True)
class AlertHook:
    """One address, by name."""

    hook: str = rule(
        Text(
            pattern=r"^[a-z][a-z0-9_]{0,62}\Z", means="a name of small letters, digits and _", remedy=_REMEDY
        ),
        "name of the address that is told (https: POST, JSON; smtp: a letter): environment variable "
        "SPILLWAY_HOOK_NAME, or the password of the Airflow connection NAME",
    )
    on: tuple[str, ...] = rule(
        Listing(Choice(EVENTS), least=1, unique=True),
        "violation: an expectation failed; shortfall: more was sent than there is room for; refusal: records or files "
        "were refused; failure: a run ended red",
        EVENTS,
    )

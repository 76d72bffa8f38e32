"""Models of dbt as SQL: references are the tables they name, and what a template decides is marked as such.

A value that a template puts in becomes `TEMPLATED`, which no condition may name; a part that it includes or not
(`{% if ... %}`) is left out, as it is no part of every run, unless nothing can be read without it.

>>> sql_of("{{ config(x=1) }} select * from {{ ref('flights') }} where a > {{ var('low') }} {% if x %}and b{% endif %}"
... )[0]
' select * from flights where a > spillway_templated '
"""

from __future__ import annotations

import re

_REFERENCE = re.compile(
    r"\{\{-?\s*(?:ref|source)\s*\((?:[^){}]*,)?\s*['\"](\w+)['\"]\s*(?:,\s*v(?:ersion)?\s*=[^){}]*)?\)\s*-?\}\}"
)
_NOTHING = re.compile(r"\{\{-?\s*config\b.*?\}\}|\{#.*?#\}", re.DOTALL)
_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CHOICE = re.compile(r"\{%-?\s*if\b(?:(?!\{%-?\s*if\b).)*?\{%-?\s*endif\s*-?%\}", re.DOTALL)
_TAG = re.compile(r"\{%.*?%\}", re.DOTALL)
TEMPLATED = "spillway_templated"
"""Stands where a template puts a value, or a name."""


def sql_of(text: str) -> tuple[str, ...]:
    """What a statement may be as SQL, the likeliest first; itself, where there are no templates in it."""
    if "{" not in text:
        return (text,)
    plain = _REFERENCE.sub(r"\1", _NOTHING.sub("", text))
    whole, count = plain, 1
    while count:  # from the inside
        whole, count = _CHOICE.subn("", whole)
    found = [_TAG.sub("", _VALUE.sub(value, one)) for one in (whole, plain) for value in (TEMPLATED, "")]
    return tuple(dict.fromkeys(found))

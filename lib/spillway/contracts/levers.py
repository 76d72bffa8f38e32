"""The ordered list `levers:` of a contract: the levers that are applied to the subject, and their settings.

An entry names a lever of `spillway.registry` and has its settings, which are in no other place of the contract:

    levers:
      - {lever: attributes, rank_by: relative}

The record of each lever (`registry.settings_of`) declares its fields. So the reader, its errors and the JSON Schema
know a lever as soon as it is registered. Rules between a lever's settings and the rest of a stream's contract are in
the record's `stream_rules(contract)`; their field paths start at the entry. Rules between the settings and the inputs
of a join or a query are in `input_rules(inputs)`.

>>> from spillway.contracts.fields import Report
>>> report = Report("weather.yaml")
>>> [entry] = Levers().read([{"lever": "attributes", "plan": "prefix", "fit": "count"}], "levers", report)
>>> entry.lever, entry.settings.fit
('attributes', 'count')
>>> Levers().read([{"lever": "atributes"}], "levers", report)
()
>>> print(report.problems[0])
weather.yaml: `levers[0].lever` must be a registered lever, got 'atributes'; did you mean attributes?
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spillway.contracts.fields import BAD, Broken, Record, Report, join_path, suggest, to_plain
from spillway.errors import InvalidValue
from spillway.registry import LEVERS, loses_rows, needs_every_row, settings_of


@dataclass(frozen=True)
class LeverEntry:
    """An entry of the list: a lever and its settings."""

    lever: str
    settings: Any

    def as_written(self) -> dict[str, Any]:
        """Return the entry as plain values for YAML, with all defaults written out."""
        return {"lever": self.lever, **to_plain(self.settings)}


class Subject(ABC):
    """A stream, a join or a query, to which levers are applied."""

    levers: tuple[LeverEntry, ...]

    @property
    @abstractmethod
    def subject(self) -> str:
        """The name of the stream, the join or the query."""

    @property
    def lever_names(self) -> tuple[str, ...]:
        """The names of its levers, in order."""
        return tuple(entry.lever for entry in self.levers)

    def lever_settings(self, name: str) -> Any:
        """Return the settings of the lever `name`; raise `InvalidValue` if the contract does not list it."""
        for entry in self.levers:
            if entry.lever == name:
                return entry.settings
        raise InvalidValue(
            "lever",
            f"be one of {self.subject}'s",
            name,
            f"add {{lever: {name}}} to the levers of its contract",
        )


@dataclass(frozen=True)
class Levers:
    """The shape of the list. Each lever must be registered, and must be in the list at most once."""

    least: int = 0

    def read(self, value: object, path: str, report: Report) -> tuple[LeverEntry, ...]:
        if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
            report.add(path, "be a list", value, "write [{lever: attributes}]")
            return ()
        if len(value) < self.least:
            report.add(path, f"hold at least {self.least}", list(value), "add a lever")
        entries: list[Any] = []
        for i, item in enumerate(value):
            entry = _entry(item, f"{path}[{i}]", report)
            if entry is not BAD and entry.lever in [e.lever for e in entries if e is not BAD]:
                report.add(f"{path}[{i}].lever", "occur once in the list", entry.lever, "remove the repeat")
            entries.append(entry)
        # rules refer to an entry by its index, so a list with a bad entry is not used
        return () if BAD in entries else tuple(entries)

    def json_schema(self) -> dict[str, Any]:
        once = [{"contains": _named(lever), "minContains": 0, "maxContains": 1} for lever in LEVERS]
        schema = {
            "type": "array",
            "items": {"oneOf": [_entry_schema(lever) for lever in LEVERS]},
            "allOf": once,
        }
        return {**schema, "minItems": self.least} if self.least else schema


def default_levers() -> tuple[LeverEntry, ...]:
    """Return the levers of a stream whose contract has no list: `attributes`, which sheds measures that do not fit."""
    return (LeverEntry("attributes", settings_of("attributes")()),)


def lever_problems(contract: Subject) -> Iterator[Broken]:
    """Yield the rules that the levers of a stream break, by their order or with the rest of the contract."""
    names = contract.lever_names
    for i, entry in enumerate(contract.levers):
        losers = [name for name in names[i + 1 :] if loses_rows(name)]
        if losers and needs_every_row(entry.lever):
            yield (
                f"levers[{i}].lever",
                "come after every lever that drops rows, because it recovers values from the rows that it passes on",
                entry.lever,
                f"move it behind {losers[-1]}",
            )
        if hasattr(entry.settings, "stream_rules"):
            for where, rule, value, remedy in entry.settings.stream_rules(contract):
                yield join_path(f"levers[{i}]", where), rule, value, remedy


def misplaced_lever_setting(name: str) -> tuple[str, str] | None:
    """Return rule and remedy for a lever's setting that is written next to `levers`; None for other names."""
    for lever in LEVERS:
        if name in Record(settings_of(lever)).fields():
            return "be stated in the entry of its lever", f"write levers: [{{lever: {lever}, {name}: ...}}]"
    return None


def _entry(value: object, path: str, report: Report) -> Any:
    if not isinstance(value, Mapping):
        return report.add(path, "be a mapping", value, "write {lever: NAME, ...} with its settings")
    if "lever" not in value:
        return report.add(path, "name its lever", dict(value), "add lever: one of " + ", ".join(LEVERS))
    name = value["lever"]
    if not isinstance(name, str) or name not in LEVERS:
        return report.add(f"{path}.lever", "be a registered lever", name, suggest(name, LEVERS))
    stated = {field: item for field, item in value.items() if field != "lever"}
    settings = Record(settings_of(name)).read(stated, path, report)
    return BAD if settings is BAD else LeverEntry(name, settings)


def _named(lever: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"lever": {"const": lever}}, "required": ["lever"]}


def _entry_schema(lever: str) -> dict[str, Any]:
    schema = Record(settings_of(lever)).json_schema()
    name = {"const": lever, "description": f"the lever {lever}"}
    return {
        **schema,
        "properties": {"lever": name, **schema["properties"]},
        "required": ["lever", *schema["required"]],
    }

"""Field shapes of contracts: one definition gives the reader, its errors and the JSON Schema.

A record is a frozen dataclass whose fields are declared with `rule(shape, doc, default)`. `Record(cls)` reads plain
YAML values into it and reports all problems, not only the first. `Record(cls).json_schema()` returns the same rules for
an editor. A record class may define:

- `rules()`: yields the rules between fields that are broken;
- `schema_extra()`: the same rules as JSON Schema;
- `former_field(name)`: returns rule and remedy for a field of older contracts, or one in the wrong place, or None.

If the default is None and the shape does not accept null, the record computes the value itself.

A record with a field `method` may have presets in its class attribute `PRESETS`: the values that each method gives to
other fields. A field that the YAML states takes precedence over the preset. Nested mappings are merged field by field.

>>> import dataclasses
>>> @dataclasses.dataclass(frozen=True, kw_only=True)
... class Pump:
...     name: str = rule(Text(), "what it is called")
...     litres: float = rule(Number(above=0), "litres per second", 1.0)
>>> report = Report("pumps.yaml")
>>> Record(Pump).read({"name": "A", "liters": 2}, "", report)
Pump(name='A', litres=1.0)
>>> print(report.problems[0])
pumps.yaml: `liters` must be a known field, got 2; did you mean litres?
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from spillway.errors import Problem

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Broken = tuple[str, str, object, str]
"""A broken rule of a record: field path within it, rule, value, remedy."""


class _Bad:
    """The type of `BAD`: a value that could not be read, and whose problem is in the report."""

    def __repr__(self) -> str:
        return "<bad>"


BAD: Any = _Bad()


@dataclass
class Report:
    """Collects problems. `lines` maps a field path to its line, where the line is known."""

    where: str
    lines: Mapping[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: str, rule: str, value: object, remedy: str) -> Any:
        line = self.lines.get(path) or self.lines.get(re.sub(r"(\.[^.\[]*|\[\d+\])$", "", path))
        where = f"{self.where}:{line}" if line else self.where
        self.problems.append(Problem(where, path or "the file", rule, value, remedy))
        return BAD


def suggest(word: object, known: Iterable[str]) -> str:
    """Return a remedy that names the most similar known word, or all known words if none is similar."""
    words = list(known)
    near = difflib.get_close_matches(str(word).lower(), [w.lower() for w in words], n=1, cutoff=0.6)
    for candidate in words:
        if near and candidate.lower() == near[0]:
            return f"did you mean {candidate}?"
    return "use one of " + ", ".join(words) if words else "remove it"


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


class Shape(Protocol):
    """A shape: reads one value and checks it."""

    def read(self, value: object, path: str, report: Report) -> Any: ...

    def json_schema(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Text:
    """A string that is not blank (unless `blank`) and matches `pattern`, if given; `means` is the pattern in words."""

    pattern: str | None = None
    means: str = "text"
    blank: bool = False
    remedy: str = "write it as text"

    def read(self, value: object, path: str, report: Report) -> Any:
        if not isinstance(value, str):
            return report.add(
                path, f"be {self.means}", value, f'{self.remedy}, in quotes if need be: "{value}"'
            )
        pattern = self.pattern or (r"" if self.blank else r"\S")
        if not re.search(pattern, value):
            return report.add(path, f"be {self.means}", value, self.remedy)
        return value

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        if self.pattern is not None:
            # JSON Schema has no `\Z`; there `$` matches only at the end of the text
            schema["pattern"] = self.pattern.replace(r"\Z", "$")
        elif not self.blank:
            schema["pattern"] = r"\S"
        return schema


METHODS = ("default", "paper")
"""Values of the setting `method` of a lever: Spillway's own rules, or those of the paper the lever implements."""

SUBJECT_NAME = Text(
    pattern=r"^[a-z][a-z0-9_]{0,62}\Z",
    means="a lower-case name of letters, digits and _",
    remedy="it names tables and folders: write e.g. net_east",
)


@dataclass(frozen=True)
class Choice:
    """One of the words `of`. `instead` has remedies for wrong words that people often write, in lower case.

    A wrong word is looked up without its parameters: `DECIMAL(10,2)` as `decimal`.
    """

    of: tuple[str, ...]
    instead: tuple[tuple[str, str], ...] = ()

    def read(self, value: object, path: str, report: Report) -> Any:
        if not isinstance(value, str) or value not in self.of:
            written = str(value).partition("(")[0].strip().lower()
            remedy = dict(self.instead).get(written) or suggest(value, self.of)
            return report.add(path, "be one of " + ", ".join(self.of), value, remedy)
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"enum": list(self.of)}


@dataclass(frozen=True)
class Number:
    """A finite number within bounds; an integer if `whole`."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    whole: bool = False
    below: float | None = None

    def _words(self) -> str:
        bounds = [
            *([f"at least {self.least:g}"] if self.least is not None else []),
            *([f"above {self.above:g}"] if self.above is not None else []),
            *([f"at most {self.most:g}"] if self.most is not None else []),
            *([f"below {self.below:g}"] if self.below is not None else []),
        ]
        return ("be a whole number" if self.whole else "be a number") + (
            " " + " and ".join(bounds) if bounds else ""
        )

    def read(self, value: object, path: str, report: Report) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            # a number with a unit, such as 0.2 degC or 5%
            plain = (
                re.match(r"\s*([-+]?\d+(\.\d+)?)\s*[^\d\s.,eE_:/-]", value)
                if isinstance(value, str)
                else None
            )
            remedy = f"write {plain[1]}, without a unit" if plain else "write it as a plain number"
            return report.add(path, self._words(), value, remedy)
        if self.whole and value != int(value):
            return report.add(path, self._words(), value, f"write {round(value)}")
        if self.least is not None and value < self.least:
            return report.add(path, self._words(), value, f"write {self.least:g} or more")
        if self.above is not None and value <= self.above:
            return report.add(path, self._words(), value, f"write more than {self.above:g}")
        if self.most is not None and value > self.most:
            return report.add(path, self._words(), value, f"write {self.most:g} or less")
        if self.below is not None and value >= self.below:
            return report.add(path, self._words(), value, f"write less than {self.below:g}")
        return int(value) if self.whole else float(value)

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "integer" if self.whole else "number"}
        for key, bound in (
            ("minimum", self.least),
            ("exclusiveMinimum", self.above),
            ("maximum", self.most),
            ("exclusiveMaximum", self.below),
        ):
            if bound is not None:
                schema[key] = int(bound) if bound == int(bound) else bound
        return schema


def _is_finite(value: float) -> bool:
    """Return whether a number is finite as a float; a long integer may be too large."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True)
class Flag:
    """A boolean: true or false."""

    def read(self, value: object, path: str, report: Report) -> Any:
        if not isinstance(value, bool):
            yes = str(value).lower() in ("yes", "on", "y", "1", "true")
            return report.add(path, "be true or false", value, f"write {str(yes).lower()}")
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


PERCENT = Number(least=0, most=100)
ERROR_PCT = Number(least=0, below=100)
"""Percentage below 100. A bound of 100 % would be useless: any smaller value of the same sign would be within it."""


@dataclass(frozen=True)
class OptionalValue:
    """A value of the shape, or null."""

    shape: Shape

    def read(self, value: object, path: str, report: Report) -> Any:
        return None if value is None else self.shape.read(value, path, report)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "null"}, self.shape.json_schema()]}


@dataclass(frozen=True)
class Listing:
    """A list of values of the shape, read as a tuple."""

    shape: Shape
    least: int = 0
    unique: bool = False

    def read(self, value: object, path: str, report: Report) -> Any:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return report.add(
                path, "be a list", value, f"write [{value}]" if isinstance(value, str) else "write a list"
            )
        if len(value) < self.least:
            return report.add(path, f"hold at least {self.least}", list(value), "add one")
        items = tuple(self.shape.read(item, f"{path}[{i}]", report) for i, item in enumerate(value))
        if self.unique:
            for i, item in enumerate(items):
                if item is not BAD and item in items[:i]:
                    report.add(f"{path}[{i}]", "occur once in the list", item, "remove the repeat")
        return tuple(item for item in items if item is not BAD)

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "items": self.shape.json_schema()}
        if self.least:
            schema["minItems"] = self.least
        if self.unique:
            schema["uniqueItems"] = True
        return schema


@dataclass(frozen=True)
class OneOrMore:
    """One value of a shape, or a list of such values; read as a tuple."""

    shape: Shape

    def read(self, value: object, path: str, report: Report) -> Any:
        if isinstance(value, Mapping):
            found = self.shape.read(value, path, report)
            return () if found is BAD else (found,)
        return Listing(self.shape).read(value, path, report)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [self.shape.json_schema(), Listing(self.shape).json_schema()]}


@cache
def _declared_fields(of: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {f.metadata.get("yaml", f.name): f for f in dataclasses.fields(of) if "shape" in f.metadata}


@dataclass(frozen=True)
class Record:
    """A mapping, read into a frozen dataclass whose fields were declared with `rule`."""

    of: type[Any]

    def read(self, value: object, path: str, report: Report) -> Any:
        if not isinstance(value, Mapping):
            names = ", ".join(f"{name}: ..." for name in self.fields())
            return report.add(path, "be a mapping", value, f"write {{{names}}}")
        fields = self.fields()
        value = self._with_new_names(_with_preset(self.of, value), path, report)
        for name in value:
            if name not in fields:
                former = self.of.former_field(str(name)) if hasattr(self.of, "former_field") else None
                broken, remedy = former or ("be a known field", suggest(name, fields))
                report.add(join_path(path, str(name)), broken, value[name], remedy)
        given: dict[str, Any] = {}
        for name, item in fields.items():
            at = join_path(path, name)
            if name in value:
                read = item.metadata["shape"].read(value[name], at, report)
                # Keep a bad word or number, so that the rules below see the rest of the record as it was meant and
                # all problems are found in one pass. The caller raises anyway.
                given[item.name] = _as_meant(value[name]) if read is BAD and not _nested(item) else read
            elif item.default is dataclasses.MISSING:
                report.add(at, "be there", None, f"add {name}: {item.metadata['doc']}")
                given[item.name] = BAD if _nested(item) else None
        for item in fields.values():
            if given.get(item.name) is BAD:
                if item.default is dataclasses.MISSING:
                    return BAD
                del given[item.name]
        record = self.of(**given)
        for where, rule_, got, remedy in record.rules() if hasattr(record, "rules") else ():
            report.add(join_path(path, where), rule_, got, remedy)
        return record

    def _with_new_names(self, value: Mapping[Any, Any], path: str, report: Report) -> Mapping[Any, Any]:
        """Return `value` with the present names of fields that were renamed; report each former name."""
        former = {one.metadata.get("former"): name for name, one in self.fields().items()}
        for name in [name for name in value if isinstance(name, str) and name in former]:
            now = former[name]
            remedy = f"rename it to {now}: its meaning and its values are the same"
            report.add(join_path(path, name), f"be called `{now}` now", value[name], remedy)
            value = {now: value[name], **{key: one for key, one in value.items() if key != name}}
        return value

    def fields(self) -> dict[str, dataclasses.Field[Any]]:
        """Return the declared fields by their names in YAML."""
        return _declared_fields(self.of)  # type: ignore[arg-type]  # a class is hashable

    def json_schema(self) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required = []
        for name, item in self.fields().items():
            shape = item.metadata["shape"]
            properties[name] = {"description": item.metadata["doc"], **shape.json_schema()}
            if item.default is dataclasses.MISSING:
                required.append(name)
            elif item.default is not None or isinstance(shape, OptionalValue):
                properties[name]["default"] = to_plain(item.default)
        schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            "required": required,
        }
        extra = getattr(self.of, "schema_extra", None)
        return {**schema, **extra()} if extra else schema


def _with_preset(of: type[Any], value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return `value` with the preset of its `method`. Fields that `value` states are unchanged."""
    presets: Mapping[str, Mapping[str, Any]] = getattr(of, "PRESETS", {})
    method = value.get("method")
    return _merged(presets[method], value) if isinstance(method, str) and method in presets else value


def _merged(preset: Mapping[Any, Any], stated: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the preset updated with the stated fields; mappings in both are merged in the same way."""
    found = {**preset, **stated}
    for name in preset.keys() & stated.keys():
        if isinstance(preset[name], Mapping) and isinstance(stated[name], Mapping):
            found[name] = _merged(preset[name], stated[name])
    return found


def _nested(item: dataclasses.Field[Any]) -> bool:
    shape = item.metadata["shape"]
    return isinstance(
        shape.shape if isinstance(shape, OptionalValue) else shape, Record | Listing | OneOrMore
    )


def _as_meant(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def rule(
    shape: Shape,
    doc: str,
    default: Any = dataclasses.MISSING,
    yaml: str | None = None,
    former: str | None = None,
) -> Any:
    """Declare a field of a record: its shape, its documentation, its default, its name in YAML if that differs.

    A field without default is required. `former`: its name in older contracts, which is refused with the present name.
    """
    metadata: dict[str, Any] = {"shape": shape, "doc": doc}
    if former is not None:
        metadata["former"] = former
    if yaml is not None:
        metadata["yaml"] = yaml
    return dataclasses.field(default=default, metadata=metadata)


def to_plain(value: Any) -> Any:
    """Return a record as plain values for YAML, with all defaults written out.

    A class that is not a record implements `as_written` (a list entry whose fields depend on a name).
    """
    if hasattr(value, "as_written"):
        return value.as_written()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.metadata.get("yaml", f.name): to_plain(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if "shape" in f.metadata
        }
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value

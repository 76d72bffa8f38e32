"""Read YAML by the core schema of version 1.2, refuse duplicate keys, and record the line of each field.

PyYAML implements YAML 1.1. It reads `on`, `no` and `off` as booleans, `12:30` as 750 and `1e-3` as text. A contract has
a field with the name `on`, and a stream may have the name `no`. So the rules of YAML 1.2 apply.

A document is refused before it is built if it has more than `MOST_CHARACTERS` characters, is deeper than `MOST_DEPTH`
levels, or has more than `MOST_NODES` nodes. Nodes that an alias repeats count once per repetition.

>>> from spillway.contracts.fields import Report
>>> read_yaml("on: [no, 1e-3, true]", Report("a.yaml"))
{'on': ['no', 0.001, True]}
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

import yaml

from spillway.contracts.fields import BAD, Report, join_path

MOST_CHARACTERS = 1 << 19
MOST_DEPTH = 32
MOST_NODES = 20_000


class _TooMuch(ValueError):
    """A document that exceeds a limit: the rule, the value, the line."""

    def __init__(self, rule: str, got: str, line: int) -> None:
        super().__init__(rule)
        self.rule, self.got, self.line = rule, got, line


class _Core(yaml.SafeLoader):
    """A loader with the resolvers of the core schema of YAML 1.2."""


class _CompiledCore(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same loader, compiled if PyYAML has been: ten times as fast, with other messages for what it refuses."""


_Core.yaml_implicit_resolvers = {}
_CompiledCore.yaml_implicit_resolvers = _Core.yaml_implicit_resolvers
_FLOAT = r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|^[-+]?\.(inf|Inf|INF)\Z|^\.(nan|NaN|NAN)\Z"
for _tag, _pattern, _first in (
    ("null", r"^(~|null|Null|NULL|)\Z", [*"~nN", ""]),
    ("bool", r"^(true|True|TRUE|false|False|FALSE)\Z", [*"tTfF"]),
    ("int", r"^[-+]?[0-9]+\Z", [*"-+0123456789"]),
    ("float", _FLOAT, [*"-+0123456789."]),
):
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def read_yaml(text: str, report: Report) -> Any:
    """Return the plain value of one YAML document, or BAD if it cannot be read; add its problems to `report`."""
    lines: dict[str, int] = {}
    report.lines = lines
    try:
        node = _composed(text)
    except _TooMuch as much:
        lines[""] = much.line
        return report.add("", much.rule, much.got, "split it, or write it plainly")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        lines[""] = mark.line + 1 if mark else 1
        return report.add(
            "",
            "be YAML",
            " ".join(str(error.problem or error.context).split()),
            "correct that line; indent with spaces, not with tabs"
            if "\\t" in str(error)
            else "correct that line",
        )
    except yaml.YAMLError as error:
        return report.add("", "be YAML", " ".join(str(error).split()), "save it as UTF-8 text")
    if node is None:
        return None
    before = len(report.problems)
    try:
        value = _plain(node, "", lines, report, (), [MOST_NODES])
    except _TooMuch as much:
        return report.add("", much.rule, much.got, "write out what the aliases repeat")
    return BAD if len(report.problems) > before and value is BAD else value


def _composed(text: str) -> yaml.Node | None:
    """Return the root of a document; the messages of one that is refused are those of Python's own loader."""
    try:
        _measure(text, _CompiledCore)
        compiled: yaml.Node | None = _CompiledCore(text).get_single_node()
        return compiled
    except (yaml.YAMLError, UnicodeError):
        _measure(text, _Core)
        return _Core(text).get_single_node()


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _measure(text: str, loader: type) -> None:
    """Refuse a document that exceeds a limit, before it is built."""
    if len(text) > MOST_CHARACTERS:
        raise _TooMuch(f"have at most {MOST_CHARACTERS:,} characters", f"{len(text):,}", 1)
    depth = nodes = 0
    # the parser yields events one by one and does not recurse, so deep nesting is found before a recursion fails
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > MOST_DEPTH:
            raise _TooMuch(f"be at most {MOST_DEPTH} levels deep", "more", _line_of(event))
        if nodes > MOST_NODES:
            raise _TooMuch(f"hold at most {MOST_NODES:,} values", "more", _line_of(event))


def _plain(
    node: yaml.Node,
    path: str,
    lines: MutableMapping[str, int],
    report: Report,
    above: tuple[int, ...],
    left: list[int],
) -> Any:
    left[0] -= 1
    if left[0] < 0:
        line = node.start_mark.line + 1
        raise _TooMuch(
            f"hold at most {MOST_NODES:,} values, including the values that aliases repeat", "more", line
        )
    lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in above:
        return report.add(path, "not hold itself", "an alias to a node that contains it", "remove the alias")
    inside = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key, child in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            at = join_path(path, name)
            if name in mapping:
                first = lines[at]
                lines[at] = key.start_mark.line + 1
                report.add(at, f"occur once (first on line {first})", name, "remove one")
                continue
            lines[at] = key.start_mark.line + 1
            mapping[name] = _plain(child, at, lines, report, inside, left)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [
            _plain(item, f"{path}[{i}]", lines, report, inside, left) for i, item in enumerate(node.value)
        ]
    try:
        return _scalar(node)
    except ValueError as error:
        return report.add(path, "be a plain value", node.value, f"remove the tag ({error})")


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind == "str":
        return node.value
    if kind == "null":
        return None
    if kind == "bool":
        return str(node.value).lower() == "true"
    if kind == "int":
        return int(node.value)
    if kind == "float":
        return float(re.sub(r"(?i)\.(inf|nan)$", r"\1", node.value))
    raise ValueError(node.tag)

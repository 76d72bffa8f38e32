"""YAML as people mean it: version 1.2 words, duplicate keys refused, and the line every field stands on.

YAML 1.1, which PyYAML speaks by default, reads `on`, `no` and `off` as booleans, `12:30` as 750 and
`1e-3` as text. A contract has a field called `on` and may name a stream `no`; so the 1.2 core rules apply.

>>> from spillway.contracts.shapes import Report
>>> read_yaml("on: [no, 1e-3, true]", Report("a.yaml"))
{'on': ['no', 0.001, True]}
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

import yaml

from spillway.contracts.shapes import BAD, Report, join_path


class _Core(yaml.SafeLoader):
    """The resolvers of YAML 1.2's core schema."""


_Core.yaml_implicit_resolvers = {}
_FLOAT = r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
for _tag, _pattern, _first in (
    ("null", r"^(~|null|Null|NULL|)$", [*"~nN", ""]),
    ("bool", r"^(true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"^[-+]?[0-9]+$", [*"-+0123456789"]),
    ("float", _FLOAT, [*"-+0123456789."]),
):
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def read_yaml(text: str, report: Report) -> Any:
    """The plain value of one YAML document; what is wrong with it goes to `report`, and BAD comes back."""
    lines: dict[str, int] = {}
    report.lines = lines
    try:
        loader = _Core(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        lines[""] = mark.line + 1 if mark else 1
        return report.add(
            "", "be YAML", " ".join(str(error.problem or error.context).split()), "mend that line"
        )
    except yaml.YAMLError as error:
        return report.add("", "be YAML", " ".join(str(error).split()), "save it as UTF-8 text")
    if node is None:
        return None
    before = len(report.problems)
    value = _plain(node, "", lines, report, ())
    return BAD if len(report.problems) > before and value is BAD else value


def _plain(
    node: yaml.Node, path: str, lines: MutableMapping[str, int], report: Report, above: tuple[int, ...]
) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in above:
        return report.add(path, "not hold itself", "an alias to what it stands in", "remove the alias")
    inside = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key, child in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            at = join_path(path, name)
            if name in mapping:
                first = lines[at]
                lines[at] = key.start_mark.line + 1
                report.add(at, f"stand once (first on line {first})", name, "remove one")
                continue
            lines[at] = key.start_mark.line + 1
            mapping[name] = _plain(child, at, lines, report, inside)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, f"{path}[{i}]", lines, report, inside) for i, item in enumerate(node.value)]
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

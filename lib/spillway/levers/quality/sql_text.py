"""What can be told of a statement without understanding it: the names in it, and whether it is a plain aggregate.

Names are all words outside of quoted text and comments: a column that is not among them is not used, so that it need
not be read (`SELECT *` uses all). That says too much rather than too little.

A plain aggregate groups one input by columns and makes COUNT, SUM or AVG of them, and nothing else: of such an answer
an interval can be given (`intervals`). Anything beyond it (a join, HAVING, DISTINCT, LIMIT, a window function) is no
plain aggregate, and `sic` alone says what it rests on.

>>> sorted(names_in("SELECT a, 'b' FROM t -- c"))
['a', 'from', 'select', 't']
>>> found = plain_aggregate("SELECT k, count(*) AS n, avg(x + 1) AS m FROM t WHERE x > 2 GROUP BY k")
>>> found.source, found.keys, [(one.name, one.kind, one.of) for one in found.measures], found.where
('t', ('k',), [('n', 'count', None), ('m', 'avg', 'x + 1')], 'x > 2')
>>> plain_aggregate("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 2") is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_CLAUSES = re.compile(r"\b(select|from|where|group\s+by)\b", re.IGNORECASE)
_NEVER = re.compile(
    r"\b(join|having|order|limit|distinct|union|intersect|except|over|with|lateral|qualify|filter|tablesample)\b",
    re.IGNORECASE,
)
_MEASURE = re.compile(r"^(count|sum|avg|mean)\s*\((.*)\)\s+(?:as\s+)?(\w+)$", re.IGNORECASE | re.DOTALL)
_KEY = re.compile(r"^([A-Za-z_]\w*)$")


@dataclass(frozen=True)
class Measure:
    """A column that is a COUNT, SUM or AVG; `of` None: of rows."""

    name: str
    kind: str
    of: str | None


@dataclass(frozen=True)
class PlainAggregate:
    """One input, grouped by columns, and what is made of each group."""

    source: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    where: str | None


def names_in(statement: str) -> frozenset[str]:
    """Every word outside of quoted text and comments, in lower case."""
    return frozenset(word.lower() for word in _WORD.findall(_QUOTED.sub(" ", statement)))


def relations_in(statement: str) -> frozenset[str]:
    """Words behind FROM and JOIN, in lower case.

    >>> sorted(relations_in("SELECT 'from x' FROM sites s JOIN Others o ON s.at = o.at"))
    ['others', 'sites']
    """
    found = re.findall(r"\b(?:from|join)\s+([a-z_]\w*)", _QUOTED.sub(" ", statement), re.IGNORECASE)
    return frozenset(name.lower() for name in found)


def reads_everything(statement: str) -> bool:
    """Whether columns are used that are not named.

    >>> reads_everything("SELECT t.* FROM t"), reads_everything("SELECT count(*), 2 * x FROM t")
    (True, False)
    """
    said = re.sub(r"count\s*\(\s*\*\s*\)", "", _QUOTED.sub(" ", statement), flags=re.IGNORECASE)
    starred = re.search(r"(select|distinct|all|,|\.)\s*\*", said, re.IGNORECASE) is not None
    return starred or re.search(r"\b(natural|using)\b", said, re.IGNORECASE) is not None


def plain_aggregate(statement: str) -> PlainAggregate | None:
    """The statement's parts; None where it is anything but a plain aggregate."""
    said = re.sub(r"--[^\n]*|/\*.*?\*/", " ", statement, flags=re.DOTALL).strip().rstrip(";").strip()
    if _NEVER.search(_QUOTED.sub(" ", said)) or re.search(r"\(\s*select\b", said, re.IGNORECASE):
        return None
    pieces = [part.strip() for part in _CLAUSES.split(said)]
    if pieces[0]:
        return None
    clauses = [re.sub(r"\s+", " ", word.lower()) for word in pieces[1::2]]
    if clauses not in (["select", "from"], ["select", "from", "where"],
                       ["select", "from", "group by"], ["select", "from", "where", "group by"]):  # fmt: skip
        return None
    parts = dict(zip(clauses, pieces[2::2], strict=True))
    if not _KEY.match(parts["from"]):
        return None
    keys, measures = [], []
    for item in _items(parts["select"]):
        measure = _MEASURE.match(item)
        if measure and _balanced(measure.group(2)):
            kind, of = measure.group(1).lower(), measure.group(2).strip()
            kind = "avg" if kind == "mean" else kind
            if kind != "count" and of == "*":
                return None
            measures.append(Measure(measure.group(3), kind, None if of == "*" else of))
        elif _KEY.match(item):
            keys.append(item)
        else:
            return None
    grouped = _items(parts["group by"]) if "group by" in parts else []
    if not measures or sorted(keys) != sorted(grouped):
        return None
    return PlainAggregate(parts["from"], tuple(keys), tuple(measures), parts.get("where"))


def _items(text: str) -> list[str]:
    """What stands between commas outside of brackets and quotes."""
    found, depth, start, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == "'"
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == "," and depth == 0 and not quoted:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()]


def _balanced(text: str) -> bool:
    depth = 0
    for letter in _QUOTED.sub(" ", text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0

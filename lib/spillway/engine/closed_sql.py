"""A statement in Spark's SQL may ask, of the views that it is given, and do nothing else.

A contract's author says what is worked out, not what the cluster does: Spark's SQL can also write a folder, read any
file by its path, run a program (TRANSFORM) and call any method of Java (`reflect`). A statement is parsed by Spark's
own parser before anything else hears it, and refused by name where it is more than a question, or asks of anything but
its views and steps. Then Spark analyses it, which runs nothing, and what came of every name, wherever it stood, is
looked at: a program, a relation that is none of the views, and what answers otherwise the next time are refused.
What neither can tell is taken out of the session that answers: it reads no path as a table, puts no variable into a
text, and does not know the functions that call Java.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from spillway.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CALLS_JAVA = ("reflect", "java_method", "try_reflect")
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_DOES = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.InsertIntoDir")
_RUNS_PROGRAM = f"{_LOGICAL}.ScriptTransformation"
_RELATION = "UnresolvedRelation"
_TABLE_FUNCTION = "UnresolvedTableValuedFunction"
TABLE_FUNCTIONS = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "range", "stack"}
)
"""Those that make rows of what they are handed."""
_CHANGES = "org.apache.spark.sql.catalyst.expressions.Nondeterministic"
_CHANGING = frozenset(
    {
        "CurrentDate",
        "CurrentTimestamp",
        "CurrentTime",
        "Now",
        "LocalTimestamp",
        "CurrentUser",
        "CurrentTimeZone",
    }
    | {"CurrentDatabase", "CurrentCatalog", "SparkVersion"}
)
_OWN_LEAVES = frozenset(
    {"Range", "LocalRelation", "OneRowRelation", "LogicalRDD", "CTERelationRef", "UnionLoopRef"}
)
"""What the views and steps come down to, and rows that a statement makes of nothing."""
_NOW = re.compile(
    r"(?:\b(?:timestamp(?:_ntz|_ltz)?|date)|\b(?:try_)?(?:cast|to_timestamp\w*|to_date|date|timestamp)\s*\()"
    r"\s*['\"]\s*(?:now|today|tomorrow|yesterday)\b",
    re.IGNORECASE,
)
"""Words that Spark takes for a time when it reads a literal."""


def closed_session(spark: SparkSession) -> SparkSession:
    """A session of one's own that answers from views alone."""
    own = spark.newSession()
    own.conf.set("spark.sql.runSQLOnFiles", "false")
    own.conf.set("spark.sql.variable.substitute", "false")
    option = _class(own, "scala.Option")
    identifier = _class(own, "org.apache.spark.sql.catalyst.FunctionIdentifier")
    functions = own._jsparkSession.sessionState().functionRegistry()
    for name in _CALLS_JAVA:
        functions.dropFunction(identifier(name, option.apply("builtin"), option.apply("system")))
    return own


def _class(spark: SparkSession, name: str) -> Any:
    found: Any = spark.sparkContext._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


_CLOSED: set[tuple[str, frozenset[str]]] = set()
"""What was found to be a question of such views: a query asks the same of every window."""


def asked_of_views(own: SparkSession, statement: str, known: Collection[str]) -> DataFrame:
    """A question of these views and steps, understood and not yet answered; what is more than that is refused."""
    place = (statement, frozenset(known))
    if place in _CLOSED:
        return own.sql(statement)
    _refuse_doing(own, statement, known)
    frame = own.sql(statement)
    _refuse_beyond(own, statement, frame, known)
    _CLOSED.add(place)
    return frame


def _refuse_beyond(own: SparkSession, statement: str, frame: DataFrame, known: Collection[str]) -> None:
    """Refuse what Spark's analyser found behind a name: the same wherever it stood."""
    from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]

    gateway = own.sparkContext._gateway
    remedy = "leave it out: what is asked may depend on the rows alone"
    rule = "answer the same whenever a window is worked out"
    now = _NOW.search(statement)
    if now:
        raise _refused(rule, now.group(0), remedy)
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        kind = str(node.getClass().getSimpleName())
        if is_instance_of(gateway, node, _RUNS_PROGRAM):
            raise _refused("run no program", statement, "take TRANSFORM out")
        if node.children().isEmpty() and kind not in _OWN_LEAVES:
            what, names = " ".join(str(node.simpleString(5)).split())[:80], ", ".join(sorted(known))
            raise _refused("read nothing but its inputs and steps", what, f"name one of {names}")
        if kind == "Sample":
            raise _refused(rule, "TABLESAMPLE", remedy)
        for one in _expressions(node):
            if str(one.getClass().getSimpleName()) in _CHANGING or is_instance_of(gateway, one, _CHANGES):
                raise _refused(rule, str(one.prettyName()), remedy)


def _expressions(node: Any) -> Iterator[Any]:
    """The expressions of a node, and all within them."""
    waiting = _each(node.expressions())
    while waiting:
        one = waiting.pop()
        yield one
        waiting += _each(one.children())


def _refuse_doing(own: SparkSession, statement: str, known: Collection[str]) -> None:
    """Refuse what the parser knows to be more than a question of these views and steps."""
    from py4j.java_gateway import is_instance_of

    gateway = own.sparkContext._gateway
    plan = own._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    names = {name.lower() for name in known}
    nodes = list(_nodes(plan))
    for node in nodes:
        if node.nodeName() == "UnresolvedWith":
            names |= {_text(pair._1()).lower() for pair in _each(node.cteRelations())}
    for node in nodes:
        kind = node.nodeName()
        if is_instance_of(gateway, node, _RUNS_PROGRAM):
            raise _refused("run no program", statement, "take TRANSFORM out")
        if any(is_instance_of(gateway, node, one) for one in _DOES):
            raise _refused(
                "be one question, which changes nothing", statement, "begin it with SELECT or WITH"
            )
        if kind == _RELATION:
            parts = [_text(part) for part in _each(node.multipartIdentifier())]
            if len(parts) != 1 or parts[0].lower() not in names:
                raise _refused(
                    "read nothing but its inputs and steps",
                    ".".join(parts),
                    f"name one of {', '.join(sorted(known))}",
                )
        if kind == _TABLE_FUNCTION:
            parts = [_text(part) for part in _each(node.name())]
            if len(parts) != 1 or parts[0].lower() not in TABLE_FUNCTIONS:
                raise _refused(
                    "make rows of its inputs alone",
                    ".".join(parts),
                    f"use {', '.join(sorted(TABLE_FUNCTIONS))}",
                )


def _refused(rule: str, value: str, remedy: str) -> Refused:
    return Refused("sql", rule, value, remedy)


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan and all below it: its inputs, what its WITH names, and the questions within its expressions."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _each(node.children())
        waiting += _each(node.innerChildren())
        waiting += _each(node.subqueries())


def _each(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value.toString())

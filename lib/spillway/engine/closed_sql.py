"""A statement in Spark's SQL may ask, of the views that it is given, and do nothing else.

A contract's author says what is worked out, not what the cluster does: Spark's SQL can also write a folder, read any
file by its path, run a program (TRANSFORM), call any method of Java (`reflect`) and ask the clock. A statement is read
twice, each time wholly: every field of every node, whether Spark calls it a child or not (the definitions of named
windows are none). As parsed, before anything of it is looked up: there are only nodes that ask, functions that Spark's
SQL knows, and relations by one name. As analysed, before anything is asked: every relation is a view that was handed
in, and every expression answers the same when it is asked again. What is on no list is refused. The session that
answers reads no path as a table, puts no variable into a text, and does not know the functions that call Java or open
files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CALLS_OUT = _words(
    """
    from_avro from_protobuf java_method reflect schema_of_avro to_avro to_protobuf try_reflect xpath xpath_boolean
    xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    """
)
"""Functions that call Java, or open what a document or an option names (an XML's DTD, a schema's file)."""
_CATALYST = "org.apache.spark.sql.catalyst."
_PLAN = f"{_CATALYST}plans.logical.LogicalPlan"
_EXPRESSION = f"{_CATALYST}expressions.Expression"
_REPLACED = f"{_CATALYST}expressions.RuntimeReplaceable"
_PRODUCT = "scala.Product"
_NOTHING_BELOW = (
    "java.",
    "scala.None$",
    "org.apache.spark.sql.types.",
    "org.apache.spark.sql.util.",
    f"{_CATALYST}catalog.",
    f"{_CATALYST}expressions.AttributeReference",
    f"{_CATALYST}expressions.ExprId",
)
_ASKS = _words(
    """
    Aggregate AsOfJoin CTERelationDef CTERelationRef Distinct Except Expand Filter Generate GlobalLimit Intersect
    Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation PipeOperator Pivot Project Range
    RebalancePartitions Repartition RepartitionByExpression ResolvedHint ResolvedInlineTable Sort SubqueryAlias
    Union UnionLoop UnionLoopRef Unpivot UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedQualify
    UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
    UnresolvedWith View Window WithCTE WithWindowDefinition
    """
)
"""Nodes of a plan that ask, as parsed and as analysed."""
_MAKES_ROWS = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "range", "stack"}
)
"""Those that make rows of what they are handed."""
_UNSTEADY = _words("AesEncrypt CurDateExpressionBuilder LocalTimestamp Now SparkVersion")
_UNSTEADY_KINDS = ("Current", "KllMerge", "KllSketchAgg", "KllSketchMerge")
"""What Spark calls deterministic and is not: it asks the clock, or draws lots (which half a KLL sketch keeps, where a
cipher begins)."""
_CLOCK_WORDS = _words("current_date current_time current_timestamp localtimestamp")
"""Where no column has such a name, a function is meant."""
_OF_USERS = _words("PythonUDAF PythonUDF ScalaUDF SQLFunctionExpression SQLScalarFunction")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_WRITTEN_OUT = re.compile(r"\w+\s*['\"]\s*(?:epoch\b|[+-]?\d)", re.IGNORECASE)
_TOLD_BY_CLOCK = re.compile(r"\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)


def closed_session(spark: SparkSession) -> SparkSession:
    """A session of one's own that answers from views alone."""
    own = spark.newSession()
    own.conf.set("spark.sql.runSQLOnFiles", "false")
    own.conf.set("spark.sql.variable.substitute", "false")
    # else rows of VALUES are worked out while they are parsed, and nobody sees what they were
    own.conf.set("spark.sql.parser.eagerEvalOfUnresolvedInlineTable", "false")
    functions = own._jsparkSession.sessionState().functionRegistry()
    for name in _CALLS_OUT:
        functions.dropFunction(_builtin(own, name))
    return own


def _builtin(spark: SparkSession, name: str) -> Any:
    option = _class(spark, "scala.Option")
    identifier = _class(spark, f"{_CATALYST}FunctionIdentifier")
    return identifier(name, option.apply("builtin"), option.apply("system"))


def _class(spark: SparkSession, name: str) -> Any:
    found: Any = spark.sparkContext._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def refuse_parsed(own: SparkSession, statement: str, known: Collection[str]) -> None:
    """Refuse what is more than a question of these views and steps; nothing of it is looked up.

    The clock is refused here too: in some places (`range`, PIVOT, a function's options) it is asked while a statement
    is analysed, and nothing tells of it afterwards.
    """
    functions = own._jsparkSession.sessionState().functionRegistry()
    nodes = list(_nodes(own, _parsed(own, statement)))
    names = {name.lower() for name in known}
    for node in nodes:
        if node.kind == "UnresolvedWith":
            # where each of them may be read is told by the plan as analysed
            names |= {_text(pair._1()).lower() for pair in _each(node.it.cteRelations())}
    for node in nodes:
        _refuse_kind(node, statement)
        if node.kind == "UnresolvedRelation":
            parts = _texts(node.it.multipartIdentifier())
            if len(parts) != 1 or parts[0].lower() not in names:
                raise _read_beside(".".join(parts), known)
        elif node.kind == "UnresolvedTableValuedFunction":
            parts = _texts(node.it.name())
            if len(parts) != 1 or parts[0].lower() not in _MAKES_ROWS:
                raise _refused(
                    "make rows of its inputs alone",
                    ".".join(parts),
                    f"use {', '.join(sorted(_MAKES_ROWS))}",
                )
        elif node.kind in ("UnresolvedFunction", "UnresolvedGenerator"):
            parts = (
                _texts(node.it.nameParts())
                if node.kind == "UnresolvedFunction"
                else _text(node.it.name().unquotedString()).split(".")
            )
            found = functions.lookupFunction(_builtin(own, parts[0].lower()))
            if len(parts) != 1 or found.isEmpty():
                raise _not_sparks(".".join(parts))
            made = _text(found.get().getClassName()).rsplit(".", 1)[-1]
            if _is_unsteady(made) or (made == "UnixTimestamp" and node.it.arguments().isEmpty()):
                raise _unsteady(parts[0])
        elif node.kind == "UnresolvedAttribute":
            parts = _texts(node.it.nameParts())
            if len(parts) == 1 and parts[0].lower() in _CLOCK_WORDS:
                raise _unsteady(parts[0])
        elif node.kind == "Literal" and node.it.dataType().typeName() in _TIMES:
            origin = node.it.origin()
            said = statement[origin.startIndex().get() : origin.stopIndex().get() + 1]
            if not _WRITTEN_OUT.match(said):
                raise _by_clock(said)


def refuse_analysed(own: SparkSession, analysed: Any, statement: str, known: Collection[str]) -> None:
    """Refuse what reads anything but these views and steps, or may answer differently when it is asked again."""
    names = {name.lower() for name in known}
    for node in _nodes(own, analysed):
        _refuse_kind(node, statement)
        kind, one = node.kind, node.it
        if kind == "SubqueryAlias" and not one.identifier().qualifier().isEmpty():
            alias = one.identifier()
            raise _read_beside(".".join([*_texts(alias.qualifier()), _text(alias.name())]), known)
        if kind == "View":
            named = one.desc().identifier()
            if not (
                one.isTempView() and named.database().isEmpty() and _text(named.table()).lower() in names
            ):
                raise _read_beside(_text(named.unquotedString()), known)
        elif _is_unsteady(kind):
            raise _unsteady(one.prettyName())
        elif kind == "Cast" and _special(one):
            raise _by_clock(_text(one.child().toString()))
        elif kind in ("XmlToStructs", "SchemaOfXml") and not one.options().isEmpty():
            raise _refused("read nothing but its inputs and steps", "options of XML", "leave the options out")
        elif _EXPRESSION in node.classes and not one.deterministic():
            raise _unsteady(_drawing(one).prettyName())


def _is_unsteady(kind: str) -> bool:
    return kind in _UNSTEADY or (kind.startswith(_UNSTEADY_KINDS) and kind != "CurrentRow$")


def _drawing(expression: Any) -> Any:
    """The innermost expression that is not deterministic."""
    for child in _each(expression.children()):
        if not child.deterministic():
            return _drawing(child)
    return expression


def _special(cast: Any) -> bool:
    """Whether a cast is of a text that Spark takes for today, or of one that it works out and may take so."""
    child = cast.child()
    if cast.dataType().typeName() not in _TIMES or child.dataType().typeName() != "string":
        return False
    if not child.foldable():
        return False
    if child.nodeName() != "Literal":
        return True
    said = child.value()
    return said is not None and _TOLD_BY_CLOCK.match(_text(said)) is not None


def _refuse_kind(node: _Node, statement: str) -> None:
    """Refuse a node that is no part of a question."""
    kind = node.kind
    if kind in ("PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier"):
        raise _refused("name what it reads and calls by its name", "IDENTIFIER", "write the name itself")
    if kind in _OF_USERS or ("." in kind and _EXPRESSION in node.classes):
        raise _not_sparks(_text(node.it.toString()))
    if kind in _ASKS or _PLAN not in node.classes:
        return
    if kind == "ScriptTransformation":
        raise _refused("run no program", statement, "take TRANSFORM out")
    if kind == "Sample":
        raise _unsteady("TABLESAMPLE")
    if kind == "RelationTimeTravel":
        raise _refused("read nothing but its inputs and steps", "AS OF", "read an input as it is")
    raise _refused("be one question, which changes nothing", statement, "begin it with SELECT or WITH")


def _read_beside(name: str, known: Collection[str]) -> Refused:
    return _refused("read nothing but its inputs and steps", name, f"name one of {', '.join(sorted(known))}")


def _not_sparks(name: str) -> Refused:
    return _refused(
        "call functions that Spark's SQL has, and none that opens files or calls Java",
        name,
        "use another one, by its name alone",
    )


def _unsteady(what: str) -> Refused:
    return _refused(
        "answer the same whenever a window is worked out",
        what,
        "leave it out: what is asked may depend on the rows alone",
    )


def _by_clock(said: str) -> Refused:
    return _refused(
        "answer the same whenever a window is worked out",
        said,
        "write the day or time out, as in DATE '2026-01-31'",
    )


def _refused(rule: str, value: str, remedy: str) -> Refused:
    return Refused("sql", rule, value, remedy)


def _parsed(own: SparkSession, statement: str) -> Any:
    """The statement as this session parses it: a parser goes by the settings of whichever session is active."""
    sessions = _class(own, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(own._jsparkSession)
    try:
        return own._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


class _Node(NamedTuple):
    """An object of a plan, and the name of its class: in full where it is not Catalyst's."""

    kind: str
    it: Any
    classes: frozenset[str]


_CLASSES: dict[str, frozenset[str]] = {}
"""Which of the classes that matter an object of a class is."""


def _nodes(own: SparkSession, plan: Any) -> Iterator[_Node]:
    """A plan and all that it is made of. What a view reads is not looked into: that is its maker's."""
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]

    name_of = _class(own, "org.apache.commons.lang3.ClassUtils").getName
    is_a = _class(own, "py4j.reflection.TypeUtil").isInstanceOf
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, JavaObject):
            continue
        name = name_of(one)
        if name.startswith(_NOTHING_BELOW):
            continue
        if name.startswith("scala.collection."):
            waiting += _each(one.toSeq())
            continue
        classes = _CLASSES.get(name)
        if classes is None:
            told = (_PLAN, _EXPRESSION, _REPLACED, _PRODUCT)
            classes = _CLASSES[name] = frozenset(what for what in told if is_a(what, one))
        kind = name.rsplit(".", 1)[-1] if name.startswith(_CATALYST) else name
        yield _Node(kind, one, classes)
        if kind != "View" and _PRODUCT in classes:
            waiting += [one.productElement(at) for at in range(one.productArity())]
        if _REPLACED in classes and one.resolved():
            waiting.append(one.replacement())


def _each(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]


def _texts(found: Any) -> list[str]:
    return [_text(part) for part in _each(found)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value.toString())

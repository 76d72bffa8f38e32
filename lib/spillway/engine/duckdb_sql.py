"""Translate a checked statement to DuckDB SQL that gives the same answer as Spark 4 (ANSI mode, times in UTC).

Every expression gets its type by Spark's rules, from the columns upwards. Every implicit cast of Spark becomes an
explicit one, so that DuckDB's own rules for mixed types never apply. The line of `AGREED` with the expression's form
and types gives its SQL. If there is no such line, the query needs Spark, and the error names the expression.

Types: boolean, int, bigint, double, decimal (a literal with a decimal point), string, date, timestamp, and null (NULL,
which can become any other).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from spillway.contracts.fields import suggest
from spillway.contracts.spark_dialect import DIALECT
from spillway.engine.dialect import AGREED, Agreement, check_statement, refuse_tables
from spillway.engine.statements import NeedsSpark
from spillway.errors import InvalidValue

Columns = tuple[tuple[str, str], ...]
"""Names and types, in order."""
DUCKDB_TYPES = {
    "boolean": "BOOLEAN", "int": "INTEGER", "bigint": "BIGINT", "double": "DOUBLE", "string": "VARCHAR",
    "date": "DATE", "timestamp": "TIMESTAMP", "decimal": "DECIMAL(38, 18)",
}  # fmt: skip
_WIDER = {
    "int": ("bigint", "double", "decimal"),
    "bigint": ("double", "decimal"),
    "decimal": ("double",),
    "date": ("timestamp",),
}
_MIXED = "cast one of them"
_DECIMAL = "write the number as 1.5D, which makes it a DOUBLE"
_LONGEST = 1_000_000
"""The maximum length of the generated SQL in characters."""
_COMPARISONS = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Between,
)


class TypedSql(NamedTuple):
    """An expression of DuckDB SQL, and its type in Spark."""

    sql: str
    type: str
    number: str | None = None
    """The literal as it is written in the statement, if it is a number."""


class Step(NamedTuple):
    """A statement for DuckDB, and the names of its columns as the author writes them."""

    sql: str
    columns: Columns


def type_of(field: pa.Field) -> str:
    """Return the type of a column of a view."""
    kind = field.type
    for name, known in (
        ("boolean", pa.types.is_boolean),
        ("int", pa.types.is_int32),
        ("bigint", pa.types.is_int64),
        ("double", pa.types.is_float64),
        ("string", pa.types.is_string),
        ("date", pa.types.is_date32),
        ("timestamp", pa.types.is_timestamp),
    ):
        if known(kind):
            return name
    return str(kind)


@lru_cache(maxsize=1024)
def duckdb_step(statement: str, views: tuple[tuple[str, Columns], ...]) -> Step:
    """Return the statement for DuckDB over views with these columns.

    >>> duckdb_step("SELECT N / 2 AS Half FROM t", (("t", (("n", "double"),)),)).columns
    (('Half', 'double'),)
    """
    written = check_statement(statement)
    refuse_tables(written, [name for name, _ in views])
    names = _output_names(written)
    try:
        tree = _qualified(written, dict(views))
        columns = _Translator(tree, dict(views)).outputs
        sql = tree.sql(dialect="duckdb", comments=False)
    except RecursionError:
        what = "more than a few hundred expressions in one another"
        raise NeedsSpark.because(what, "use IN for a list of values, or steps") from None
    if len(sql) > _LONGEST:
        raise NeedsSpark.because("a statement that is too long for DuckDB", "use steps")
    if not names:
        spelled = {name.lower(): name for _, known in views for name, _ in known}
        names = [spelled.get(name, name) for name, _ in columns]
    return Step(sql, tuple((name, kind) for name, (_, kind) in zip(names, columns, strict=True)))


def _qualified(written: exp.Expr, views: Mapping[str, Columns]) -> exp.Expr:
    """Resolve every column, as Spark does."""
    if isinstance(written, exp.Query) and any(
        join.method or join.kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI")
        for join in written.find_all(exp.Join)
    ):
        raise NeedsSpark.because("NATURAL JOIN", "write JOIN ... USING")
    for select in written.find_all(exp.Select):
        if select.is_star and any(join.args.get("using") for join in select.args.get("joins") or ()):
            raise NeedsSpark.because("SELECT * with USING", "name the columns")
    _refuse_names_in_where(written, {name.lower() for columns in views.values() for name, _ in columns})
    schema: dict[str, object] = {name: dict(columns) for name, columns in views.items()}
    try:
        return qualify(written.copy(), schema=schema, dialect=DIALECT)
    except OptimizeError as problem:
        named = re.match(r"Column '\"?(.*?)\"?' could not be resolved|Unknown column: (\S+)", str(problem))
        if named is None:
            raise InvalidValue("sql", "be understood", str(problem), "correct it") from None
        name = (named[1] or named[2]).replace('"', "")
        known = list(dict.fromkeys(column for columns in views.values() for column, _ in columns))
        if name.lower() in [one.lower() for one in known]:
            rule, remedy = "name the input of a column that several inputs have", f"write input.{name}"
        else:
            rule, remedy = "name columns that its inputs have", suggest(name.rpartition(".")[2], known)
        raise InvalidValue("sql", rule, name, remedy) from None


def _refuse_names_in_where(written: exp.Expr, columns: set[str]) -> None:
    """Refuse a WHERE that uses an alias of its SELECT, which Spark does not resolve there."""
    listed = {
        one.name.lower()
        for alias in written.find_all(exp.TableAlias)
        for one in alias.args.get("columns") or ()
    }
    for select in written.find_all(exp.Select):
        named = {one.alias.lower() for one in select.expressions if isinstance(one, exp.Alias)}
        others = {
            one.output_name.lower()
            for other in written.find_all(exp.Select)
            if other is not select
            for one in other.expressions
        }
        where = select.args.get("where")
        for column in where.find_all(exp.Column) if where is not None else ():
            name = column.name.lower()
            if (
                column.table
                or name not in named - columns - others - listed
                or column.parent_select is not select
            ):
                continue
            rule = "name columns of its inputs in WHERE"
            raise InvalidValue(
                "sql", rule, column.name, "write the expression, or select it in an earlier step"
            )


def _output_names(written: exp.Expr) -> list[str]:
    """Return the names of the answer's columns as the author writes them; empty if the statement has a star."""
    select = written
    while not isinstance(select, exp.Select):
        select = select.this
    if any(one.is_star for one in select.expressions):
        return []
    return [one.output_name or one.sql(DIALECT) for one in select.expressions]


def _shown(node: exp.Expr) -> str:
    """Return the SQL of a node, short enough for a message."""
    return str(node.sql(DIALECT, comments=False)).replace("`", "")[:120]


class _Translator:
    """Translates the expressions of a qualified tree to DuckDB SQL, from the inner scopes to the outer ones."""

    def __init__(self, tree: exp.Expr, views: Mapping[str, Columns]) -> None:
        self._views = {name.lower(): columns for name, columns in views.items()}
        self._outputs: dict[int, dict[str, str]] = {}
        self._scope: Scope
        for scope in traverse_scope(tree):
            self._scope = scope
            self._outputs[id(scope.expression)] = self._translate_query(scope.expression)
        self.outputs = tuple(
            self._outputs[id(tree if not isinstance(tree, exp.Subquery) else tree.unnest())].items()
        )

    def _translate_query(self, query: exp.Expr) -> dict[str, str]:
        with_ = query.args.get("with_")
        if with_ is not None and with_.args.get("recursive"):
            raise NeedsSpark.because("WITH RECURSIVE")
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query)
        if not isinstance(query, exp.Select):
            raise NeedsSpark.because(_shown(query))
        for name in ("laterals", "windows", "sort", "cluster", "distribute"):
            if query.args.get(name):
                raise NeedsSpark.because(
                    _shown(query.args[name][0]) if isinstance(query.args[name], list) else name.upper()
                )
        found: dict[str, str] = {}
        made = []
        for one in query.expressions:
            typed = self._of(one.unalias())
            if one.output_name in found:
                raise NeedsSpark.because(
                    f"two columns called {one.output_name} in one SELECT", "name its columns, each with AS"
                )
            found[one.output_name] = typed.type
            made.append((one, typed))
        ordering = query.args.get("order")
        self._order(ordering, found)
        for clause in ("where", "having", "qualify"):
            held = query.args.get(clause)
            if held is not None:
                held.set("this", exp.Var(this=self._as(held.this, "boolean")))
        group = query.args.get("group")
        if group is not None:
            if any(group.args.get(name) for name in ("rollup", "cube", "grouping_sets", "all", "totals")):
                raise NeedsSpark.because(_shown(group), "write a SELECT for each grouping and UNION ALL")
            group.set("expressions", [exp.Var(this=self._of(one).sql) for one in group.expressions])
        for join in query.args.get("joins") or ():
            if join.args.get("on") is not None:
                join.set("on", exp.Var(this=self._as(join.args["on"], "boolean")))
        self._limit(query)
        for one, typed in made:
            text = exp.Var(this=typed.sql if typed.type != "null" else f"CAST({typed.sql} AS INTEGER)")
            one.replace(exp.alias_(text, one.output_name, quoted=True))
        return found

    def _set_operation(self, query: exp.SetOperation) -> dict[str, str]:
        left, right = (
            list(self._outputs[id(side.unnest())].items()) for side in (query.this, query.expression)
        )
        if len(left) != len(right):
            raise InvalidValue(
                "sql", "have the same number of columns on both sides", query.key.upper(), "correct it"
            )
        found = {}
        for (name, one), (_, other) in zip(left, right, strict=True):
            alike = {one, other} <= {"int", "bigint", "null"} or one == other or "null" in (one, other)
            if not alike or "decimal" in (one, other):
                raise NeedsSpark.because(f"{one} and {other} in column {name} of {query.key.upper()}", _MIXED)
            found[name] = "bigint" if "bigint" in (one, other) else other if one == "null" else one
        self._order(query.args.get("order"), found)
        self._limit(query)
        return found

    def _order(self, order: exp.Expr | None, outputs: Mapping[str, str]) -> None:
        for one in order.expressions if order is not None else ():
            column = one.this
            if isinstance(column, exp.Column) and not column.table:
                if column.name not in outputs:
                    raise InvalidValue(
                        "sql",
                        "name columns that its inputs have",
                        column.name,
                        suggest(column.name, list(outputs)),
                    )
                text = exp.column(column.name, quoted=True).sql("duckdb")
            elif any(not inner.table for inner in column.find_all(exp.Column)):
                raise NeedsSpark.because(f"ORDER BY {_shown(column)}", "select it under a name of its own")
            else:
                text = self._of(column).sql
            one.set("this", exp.Var(this=text))

    def _limit(self, query: exp.Expr) -> None:
        for name in ("limit", "offset"):
            held = query.args.get(name)
            if held is not None and not held.expression.is_int:
                raise NeedsSpark.because(_shown(held), "write a number")

    def _as(self, node: exp.Expr, kind: str) -> str:
        return self._cast(self._of(node), kind, node)

    def _of(self, node: exp.Expr) -> TypedSql:
        """Return the SQL and the type of an expression."""
        if isinstance(node, exp.Paren):
            return self._of(node.this)
        form = FORMS.get(type(node))
        if form is not None:
            found = getattr(self, form)(node)
            if found is not None:
                return _not_too_long(TypedSql(f"({found.sql})", found.type, found.number))
        return _not_too_long(self._agreed(node, ""))

    # Forms that are no line of AGREED

    def _column(self, node: exp.Column) -> TypedSql:
        if isinstance(node.this, exp.Star):
            raise InvalidValue(
                "sql", "name the columns that a function reads", _shown(node), "write count(*)"
            )
        scope: Scope | None = self._scope
        while scope is not None and node.table not in scope.sources:
            scope = scope.parent
        if scope is None:
            raise NeedsSpark.because(_shown(node), "name its input in front of it")
        source = scope.sources[node.table]
        if isinstance(source, exp.Table):
            columns = {name.lower(): kind for name, kind in self._views[source.name.lower()]}
        else:
            columns = {name.lower(): kind for name, kind in self._outputs[id(source.expression)].items()}
        kind = columns[node.name.lower()]
        if kind not in DUCKDB_TYPES and kind != "null":
            raise NeedsSpark.because(f"{_shown(node)}, of type {kind}")
        return TypedSql(node.sql("duckdb"), kind)

    def _literal(self, node: exp.Literal) -> TypedSql:
        text = str(node.this)
        if node.is_string:
            return TypedSql(exp.Literal.string(text).sql("duckdb"), "string")
        return _number(text, node)

    def _negative(self, node: exp.Neg) -> TypedSql | None:
        return (
            _number(f"-{node.this.this}", node)
            if node.this.is_number and isinstance(node.this, exp.Literal)
            else None
        )

    def _constant(self, node: exp.Expr) -> TypedSql:
        return (
            TypedSql("NULL", "null")
            if isinstance(node, exp.Null)
            else TypedSql(str(node.this).upper(), "boolean")
        )

    def _cast_form(self, node: exp.Cast) -> TypedSql | None:
        if isinstance(node, exp.TryCast) and node.args.get("safe"):
            return None
        kind = _TYPES.get(node.to.sql(DIALECT))
        if kind is None:
            raise NeedsSpark.because(_shown(node))
        given = self._of(node.this)
        if given.type in ("decimal", "null") and not (given.type == "decimal" and kind == "double"):
            if given.type == "null":
                return TypedSql(f"CAST(NULL AS {DUCKDB_TYPES[kind]})", kind)
            raise NeedsSpark.because(_shown(node), _DECIMAL)
        if given.type == kind or kind in _WIDER.get(given.type, ()):
            return TypedSql(self._cast(given, kind, node), kind)
        return None

    def _case(self, node: exp.Case) -> TypedSql:
        results = [one.args["true"] for one in node.args["ifs"]] + [node.args.get("default") or exp.Null()]
        kind, values = self._cast_to_common(results, node)
        tests = []
        for one in node.args["ifs"]:
            when = (
                exp.EQ(this=node.this.copy(), expression=one.this.copy())
                if node.this is not None
                else one.this
            )
            tests.append(self._as(when, "boolean"))
        arms = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, values, strict=False))
        return TypedSql(f"CASE {arms} ELSE {values[-1]} END", kind)

    def _coalesce(self, node: exp.Coalesce) -> TypedSql:
        kind, values = self._cast_to_common([node.this, *node.expressions], node)
        return TypedSql(f"coalesce({', '.join(values)})", kind)

    def _extreme(self, node: exp.Greatest) -> TypedSql:
        kind, values = self._cast_to_common([node.this, *node.expressions], node)
        return TypedSql(f"{node.sql_name().lower()}({', '.join(values)})", kind)

    def _concatenated(self, node: exp.Concat) -> TypedSql:
        return TypedSql(" || ".join(self._as(one, "string") for one in node.expressions), "string")

    def _in(self, node: exp.In) -> TypedSql:
        query = node.args.get("query")
        if query is not None:
            of, kind = self._of(node.this), self._only_type(query)
            both = _common([of.type, kind], compared=True)
            if both != kind and kind != "null":
                raise NeedsSpark.because(_shown(node), _MIXED)
            return TypedSql(f"{self._cast(of, both, node)} IN ({self._query(query)})", "boolean")
        _, values = self._cast_to_common([node.this, *node.expressions], node, compared=True)
        return TypedSql(f"{values[0]} IN ({', '.join(values[1:])})", "boolean")

    def _exists(self, node: exp.Exists) -> TypedSql:
        return TypedSql(f"EXISTS ({self._query(node.this)})", "boolean")

    def _scalar(self, node: exp.Subquery) -> TypedSql:
        return TypedSql(f"({self._query(node)})", self._only_type(node))

    def _only_type(self, node: exp.Expr) -> str:
        """Return the type of the single column of a subquery that is used as a value or a list of values."""
        types = list(self._outputs[id(node.unnest())].values())
        if len(types) != 1:
            rule = "have one column in a subquery that is used as a value"
            raise InvalidValue("sql", rule, _shown(node), "select one column")
        return types[0]

    def _query(self, node: exp.Expr) -> str:
        return str(node.unnest().sql(dialect="duckdb", comments=False))

    def _filter(self, node: exp.Filter) -> TypedSql:
        return self._agreed(node.this, f" FILTER (WHERE {self._as(node.expression.this, 'boolean')})")

    def _window(self, node: exp.Window) -> TypedSql:
        function, condition = node.this, ""
        if isinstance(function, exp.Filter):
            condition = f" FILTER (WHERE {self._as(function.expression.this, 'boolean')})"
            function = function.this
        if isinstance(function.this, exp.Distinct):
            raise InvalidValue(
                "sql", "have no DISTINCT in front of OVER", _shown(node), "group in a step before"
            )
        if isinstance(function, exp.IgnoreNulls) or node.args.get("alias"):
            raise NeedsSpark.because(_shown(node))
        parts = [self._of(one).sql for one in node.args.get("partition_by") or ()]
        over = [f"PARTITION BY {', '.join(parts)}"] if parts else []
        if node.args.get("order") is not None:
            order = [
                f"{self._of(one.this).sql} {'DESC' if one.args.get('desc') else 'ASC'} "
                f"NULLS {'FIRST' if one.args.get('nulls_first') else 'LAST'}"
                for one in node.args["order"].expressions
            ]
            over.append(f"ORDER BY {', '.join(order)}")
        spec = node.args.get("spec")
        if spec is not None:
            ends = [spec.args.get("start"), spec.args.get("end")]
            if spec.args["kind"].upper() != "ROWS" and any(isinstance(end, exp.Expr) for end in ends):
                raise NeedsSpark.because(_shown(node), "use ROWS BETWEEN")
            if any(isinstance(end, exp.Expr) and not end.is_int for end in ends):
                raise NeedsSpark.because(_shown(node), "write numbers of rows")
            over.append(str(spec.sql("duckdb")))
        return self._agreed(function, f"{condition} OVER ({' '.join(over)})")

    def _cast_to_common(
        self, nodes: Sequence[exp.Expr], of: exp.Expr, compared: bool = False
    ) -> tuple[str, list[str]]:
        """Return the common type that Spark gives to some expressions, and each of them cast to it."""
        values = [self._of(node) for node in nodes]
        kind = _common([one.type for one in values], compared)
        if kind == "":
            raise NeedsSpark.because(_shown(of), _remedy_of([one.type for one in values]))
        return kind, [self._cast(value, kind, node) for value, node in zip(values, nodes, strict=True)]

    def _cast(self, value: TypedSql, kind: str, node: exp.Expr) -> str:
        """Write an implicit cast of Spark."""
        if value.type == kind:
            return value.sql
        if value.type == "null":
            return f"CAST(NULL AS {DUCKDB_TYPES[kind]})"
        if value.number is not None and kind in ("double", "decimal"):
            return f"CAST('{value.number}' AS {DUCKDB_TYPES[kind]})"
        if value.type == "string" and kind in ("date", "timestamp") and value.sql.startswith("('"):
            return f"({CAST_OF_TEXT[kind].duckdb.format(a=value.sql)})"
        if kind in _WIDER.get(value.type, ()):
            return f"CAST({value.sql} AS {DUCKDB_TYPES[kind]})"
        raise NeedsSpark.because(f"{_shown(node)}, of type {value.type} instead of {kind}", "cast it")

    # Lines of AGREED

    def _agreed(self, node: exp.Expr, over: str) -> TypedSql:
        found = _matches(node)
        if not found:
            raise NeedsSpark.because(_shown(node))
        given = {name: self._argument(inner, found) for name, inner in found[0][1].items()}
        types = [given[name].type for name in sorted(given)]
        compared = isinstance(node, _COMPARISONS)
        if (
            compared and "string" in types
        ):  # a constant text that is compared with a date or time is cast to that type
            other = next((one for one in types if one in ("date", "timestamp")), None)
            if other is not None:
                given = {
                    name: TypedSql(self._cast(one, other, node), other) if one.sql.startswith("('") else one
                    for name, one in given.items()
                }
                types = [given[name].type for name in sorted(given)]
        line = _line_for([one for one, _ in found], types)
        if line is None:
            raise NeedsSpark.because(f"{_shown(node)} of {' and '.join(types)}", _remedy_of(types))
        if over and "{over}" not in line.duckdb:
            raise InvalidValue("sql", "put FILTER and OVER behind an aggregate", _shown(node), "correct it")
        texts = {
            name: given[name].sql if kind in _WRITTEN else f"({self._cast(given[name], kind, node)})"
            for name, kind in zip(line.names, line.parameters, strict=True)
        }
        sql = line.duckdb.format(**texts, over=over)
        if isinstance(node, (exp.And, exp.Or)) and "error(" in texts["b"]:
            # Spark computes the right side only if the left side does not decide the result
            without = "NOT {a} THEN false" if isinstance(node, exp.And) else "{a} THEN true"
            guarded = f"CASE WHEN {without.format(**texts)} ELSE {texts['b']} END"
            sql = line.duckdb.format(a=texts["a"], b=guarded)
        return TypedSql(f"({sql})", line.returns)

    def _argument(
        self, node: exp.Expr, found: Sequence[tuple[Agreement, Mapping[str, exp.Expr]]]
    ) -> TypedSql:
        written = {
            kind
            for line, bound in found
            for name, kind in zip(line.names, line.parameters, strict=True)
            if bound[name] is node
        } & set(_WRITTEN)
        if not written:
            return self._of(node)
        (kind,) = written
        if not _WRITTEN[kind](node):
            raise NeedsSpark.because(_shown(node.parent) if node.parent else _shown(node), "write a constant")
        text = (
            exp.Literal.string(node.this).sql("duckdb")
            if node.is_string and kind == "pattern"
            else str(node.this)
        )
        return TypedSql(text, kind)


def _pattern_is_plain(node: exp.Expr) -> bool:
    """Return whether every escape in a LIKE pattern is one that Spark allows."""
    return node.is_string and re.fullmatch(r"(?s)([^\\]|\\[\\%_])*", node.this) is not None


_WRITTEN = {
    "literal": lambda node: (
        isinstance(node, exp.Literal)
        and (node.is_int or (node.is_string and re.fullmatch(r"\d{1,6}", node.this) is not None))
    ),
    "digits": lambda node: isinstance(node, exp.Literal) and node.is_int and int(node.this) <= 15,
    "pattern": _pattern_is_plain,
}
"""Parameters that must be literals: numbers and patterns."""
_TYPES = {kind.upper(): kind for kind in DUCKDB_TYPES if kind != "decimal"}
FORMS: Mapping[type[exp.Expr], str] = {
    exp.Column: "_column", exp.Literal: "_literal", exp.Neg: "_negative", exp.Null: "_constant",
    exp.Boolean: "_constant", exp.Cast: "_cast_form", exp.TryCast: "_cast_form", exp.Case: "_case",
    exp.Coalesce: "_coalesce", exp.Greatest: "_extreme", exp.Least: "_extreme", exp.Concat: "_concatenated",
    exp.In: "_in", exp.Exists: "_exists", exp.Subquery: "_scalar", exp.Filter: "_filter", exp.Window: "_window",
}  # fmt: skip
"""Kinds of nodes that the translator writes itself."""


def _not_too_long(typed: TypedSql) -> TypedSql:
    """Refuse an expression whose SQL is too long, before its nested parts use up the memory."""
    if len(typed.sql) > _LONGEST:
        raise NeedsSpark.because("a statement that is very long for DuckDB", "use steps")
    return typed


def _number(text: str, node: exp.Expr) -> TypedSql:
    if "e" in text.lower():
        return TypedSql(f"CAST('{text}' AS DOUBLE)", "double")
    if "." in text:
        if len(text.partition(".")[2]) > 18 or len(text) > 38:
            raise NeedsSpark.because(text, _DECIMAL)
        return TypedSql(f"CAST('{text}' AS DECIMAL(38, 18))", "decimal", text)
    for kind, bits in (("int", 31), ("bigint", 63)):
        if -(2**bits) <= int(text) < 2**bits:
            return TypedSql(f"CAST({text} AS {DUCKDB_TYPES[kind]})", kind, text)
    raise NeedsSpark.because(text, "write a number of at most 64 bits")


def _common(types: Sequence[str], compared: bool) -> str:
    """Return the common type that Spark gives to values of these types; "" if the process engine has none."""
    known = [one for one in dict.fromkeys(types) if one != "null"]
    if compared and "string" in known:  # constants only: `_cast` refuses others
        known = [one for one in known if one in ("date", "timestamp")] or known
    if not known:
        return "null"
    for kind in (*known, "bigint", "double", "decimal", "timestamp"):
        if all(one == kind or kind in _WIDER.get(one, ()) for one in known):
            if kind == "decimal" and not compared and known != ["decimal"]:
                return ""
            if kind == "double" and "decimal" in known and "double" not in known:
                continue
            return kind
    return ""


def _remedy_of(types: Sequence[str]) -> str:
    return _DECIMAL if "decimal" in types else _MIXED


_BY_KIND: dict[type[exp.Expr], list[Agreement]] = {}
for _line in AGREED:
    _BY_KIND.setdefault(type(_line.tree), []).append(_line)
CAST_OF_TEXT = {one.returns: one for one in _BY_KIND[exp.Cast] if one.parameters == ("string",)}


def _matches(node: exp.Expr) -> list[tuple[Agreement, dict[str, exp.Expr]]]:
    """Return the lines whose form matches an expression, each with the expressions bound to its parameters."""
    found = []
    for line in _BY_KIND.get(type(node), ()):
        bound: dict[str, exp.Expr] = {}
        if _fits(line.tree, node, bound):
            found.append((line, bound))
    return found


def _fits(pattern: object, node: object, bound: dict[str, exp.Expr]) -> bool:
    if isinstance(pattern, exp.Column):
        if not isinstance(node, exp.Expr) or isinstance(
            node, (exp.Distinct, exp.Star, exp.Order, exp.Interval)
        ):
            return False
        bound[pattern.name] = node
        return True
    if isinstance(pattern, list):
        return (
            isinstance(node, list)
            and len(node) == len(pattern)
            and all(_fits(one, other, bound) for one, other in zip(pattern, node, strict=True))
        )
    if not isinstance(pattern, exp.Expr):
        return pattern == node or (not pattern and not node)
    if type(pattern) is not type(node):
        return False
    assert isinstance(node, exp.Expr)
    return all(
        _fits(pattern.args.get(name), node.args.get(name), bound) for name in {*pattern.args, *node.args}
    )


def _line_for(lines: Sequence[Agreement], types: Sequence[str]) -> Agreement | None:
    """Return the line that Spark's implicit casts select: the line of exactly these types, else the first that fits."""
    for line in lines:
        if line.parameters == tuple(types):
            return line
    for line in lines:
        if len(line.parameters) == len(types) and all(
            one in ("null", kind) or kind in _WIDER.get(one, ())
            for one, kind in zip(types, line.parameters, strict=True)
        ):
            # a decimal is cast to double only if another argument is a double
            lone = "decimal" in types and "decimal" not in line.parameters
            if not lone or "double" in types:
                return line
    return None

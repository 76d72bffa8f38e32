# ruff: noqa: E501 - a line of the list is one equation
"""The SQL of queries: Spark SQL, reduced to listed functions and clauses.

A statement is parsed by sqlglot. Every node of the syntax tree must occur in an example of this module, with the same
arguments; anything else is refused by name. Both engines run SQL that is generated from the checked tree, never the
author's text. So it does not matter if an engine would parse that text in another way than sqlglot.

`AGREED` pairs an expression of Spark SQL with the DuckDB SQL that gives the same value, type and error. The process
engine answers only these expressions. `SPARK_ONLY` lists further expressions, which need Spark. To add a function, add
a line: the differential test (`tests/engine/test_same_answer.py`) reads these lists.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spillway.contracts.spark_dialect import DIALECT, WITHOUT_PARENTHESES, describe_parse_error
from spillway.errors import InvalidValue

LONGEST_STATEMENT = 100_000
"""The maximum length of a statement in characters."""
_TOO_FAR = "error('the days or months are too many for the process engine, run it with --engine spark')"
_NOT_ASCII = "error('the case of letters beyond ASCII needs Spark, run it with --engine spark')"
_TOO_LARGE = (
    "error('values that are no number, infinite or above 1e150 need Spark here, run it with --engine spark')"
)
_NO_NUMBER = "error('the process engine cannot say whether Spark reads this text as a number, run it with --engine spark')"
_ZERO = "{b} = 0 AND {a} IS NOT NULL THEN error('division by zero')"
_START = "CASE WHEN {b} > 0 THEN {b} - 1 WHEN {b} < 0 THEN length({a}) + {b} ELSE {b} END"
_TEXT_FORMS = {
    "INT": r"[+-]?[0-9]{1,18}",
    "BIGINT": r"[+-]?[0-9]{1,19}",
    "DOUBLE": r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?",
    "BOOLEAN": r"(?i)true|false",
    "DATE": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "TIMESTAMP": r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?",
}
"""Regular expressions by type: both engines cast texts of these forms to the same value."""

_AGREED = rf"""
a + b | N N -> N | {{a}} + {{b}}
a - b | N N -> N | {{a}} - {{b}}
a * b | N N -> N | {{a}} * {{b}}
a / b | double double -> double | CASE WHEN {_ZERO} ELSE {{a}} / {{b}} END
a DIV b | bigint bigint -> bigint | CASE WHEN {_ZERO} ELSE {{a}} // {{b}} END
a % b | I I -> I | CASE WHEN {_ZERO} WHEN {{b}} = -1 THEN {{a}} - {{a}} ELSE {{a}} % {{b}} END
a % b | double double -> double | CASE WHEN {_ZERO} ELSE {{a}} % {{b}} END
-a | N -> N | -{{a}}
abs(a) | N -> N | abs({{a}})
sign(a) | double -> double | CASE WHEN isnan({{a}}) OR {{a}} = 0 THEN {{a}} ELSE CAST(sign({{a}}) AS DOUBLE) END
sqrt(a) | double -> double | CASE WHEN {{a}} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({{a}}) END
exp(a) | double -> double | exp({{a}})
ln(a) | double -> double | CASE WHEN {{a}} > 0 THEN ln({{a}}) END
log10(a) | double -> double | CASE WHEN {{a}} > 0 THEN log10({{a}}) END
power(a, b) | double double -> double | CASE WHEN isnan({{b}}) OR (isinf({{b}}) AND abs({{a}}) = 1) THEN {{a}} * CAST('nan' AS DOUBLE) ELSE pow({{a}}, {{b}}) END
ceil(a) | bigint -> bigint | {{a}}
ceil(a) | double -> bigint | CASE WHEN isnan({{a}}) THEN 0 WHEN {{a}} >= 9223372036854775807 THEN 9223372036854775807 WHEN {{a}} <= -9223372036854775808 THEN -9223372036854775808 ELSE CAST(ceil({{a}}) AS BIGINT) END
floor(a) | bigint -> bigint | {{a}}
floor(a) | double -> bigint | CASE WHEN isnan({{a}}) THEN 0 WHEN {{a}} >= 9223372036854775807 THEN 9223372036854775807 WHEN {{a}} <= -9223372036854775808 THEN -9223372036854775808 ELSE CAST(floor({{a}}) AS BIGINT) END
round(a) | I -> I | {{a}}
round(a) | double -> double | CASE WHEN abs({{a}}) >= 9007199254740992 THEN {{a}} ELSE CAST(CAST(CAST({{a}} AS VARCHAR) AS DECIMAL(38, 0)) AS DOUBLE) END
round(a, n) | I digits -> I | {{a}}
round(a, n) | double digits -> double | CASE WHEN abs({{a}}) >= 9007199254740992 THEN {{a}} ELSE CAST(CAST(CAST(CAST({{a}} AS VARCHAR) AS DECIMAL(38, {{n}})) AS VARCHAR) AS DOUBLE) END
isnan(a) | double -> boolean | coalesce(isnan({{a}}), false)
a = b | T T -> boolean | {{a}} = {{b}}
a <> b | T T -> boolean | {{a}} <> {{b}}
a < b | T T -> boolean | {{a}} < {{b}}
a <= b | T T -> boolean | {{a}} <= {{b}}
a > b | T T -> boolean | {{a}} > {{b}}
a >= b | T T -> boolean | {{a}} >= {{b}}
a <=> b | T T -> boolean | {{a}} IS NOT DISTINCT FROM {{b}}
a IS DISTINCT FROM b | T T -> boolean | {{a}} IS DISTINCT FROM {{b}}
a BETWEEN b AND c | T T T -> boolean | {{a}} BETWEEN {{b}} AND {{c}}
nullif(a, b) | V V -> V | nullif({{a}}, {{b}})
a AND b | boolean boolean -> boolean | {{a}} AND {{b}}
a OR b | boolean boolean -> boolean | {{a}} OR {{b}}
NOT a | boolean -> boolean | NOT {{a}}
a IS NULL | V -> boolean | {{a}} IS NULL
a IS TRUE | boolean -> boolean | {{a}} IS TRUE
a IS FALSE | boolean -> boolean | {{a}} IS FALSE
if(a, b, c) | boolean V V -> V | CASE WHEN {{a}} THEN {{b}} ELSE {{c}} END
length(a) | string -> int | CAST(length({{a}}) AS INTEGER)
lower(a) | string -> string | CASE WHEN strlen({{a}}) <> length({{a}}) THEN {_NOT_ASCII} ELSE lower({{a}}) END
upper(a) | string -> string | CASE WHEN strlen({{a}}) <> length({{a}}) THEN {_NOT_ASCII} ELSE upper({{a}}) END
trim(a) | string -> string | trim({{a}}, ' ')
ltrim(a) | string -> string | ltrim({{a}}, ' ')
rtrim(a) | string -> string | rtrim({{a}}, ' ')
substring(a, b) | string int -> string | CASE WHEN {{b}} IS NOT NULL THEN substring({{a}}, greatest({_START}, 0) + 1, greatest(CAST({_START} AS BIGINT) + 2147483647 - greatest({_START}, 0), 0)) END
substring(a, b, c) | string int int -> string | CASE WHEN {{b}} IS NULL OR {{c}} IS NULL THEN NULL WHEN {{c}} < 0 THEN left({{a}}, 0) ELSE substring({{a}}, greatest({_START}, 0) + 1, greatest(CAST({_START} AS BIGINT) + {{c}} - greatest({_START}, 0), 0)) END
left(a, b) | string int -> string | CASE WHEN {{b}} < 0 THEN left({{a}}, 0) ELSE left({{a}}, {{b}}) END
right(a, b) | string int -> string | CASE WHEN {{b}} < 0 THEN left({{a}}, 0) ELSE right({{a}}, {{b}}) END
a || b | string string -> string | {{a}} || {{b}}
replace(a, b, c) | string string string -> string | replace({{a}}, {{b}}, {{c}})
startswith(a, b) | string string -> boolean | starts_with({{a}}, {{b}})
endswith(a, b) | string string -> boolean | ends_with({{a}}, {{b}})
contains(a, b) | string string -> boolean | contains({{a}}, {{b}})
instr(a, b) | string string -> int | CAST(instr({{a}}, {{b}}) AS INTEGER)
a LIKE n | string pattern -> boolean | {{a}} LIKE {{n}} ESCAPE '\'
year(a) | D -> int | CAST(year({{a}}) AS INTEGER)
quarter(a) | D -> int | CAST(quarter({{a}}) AS INTEGER)
month(a) | D -> int | CAST(month({{a}}) AS INTEGER)
day(a) | D -> int | CAST(day({{a}}) AS INTEGER)
dayofmonth(a) | D -> int | CAST(day({{a}}) AS INTEGER)
dayofweek(a) | D -> int | CAST(dayofweek({{a}}) + 1 AS INTEGER)
dayofyear(a) | D -> int | CAST(dayofyear({{a}}) AS INTEGER)
weekofyear(a) | D -> int | CAST(week({{a}}) AS INTEGER)
hour(a) | timestamp -> int | CAST(hour({{a}}) AS INTEGER)
minute(a) | timestamp -> int | CAST(minute({{a}}) AS INTEGER)
second(a) | timestamp -> int | CAST(second({{a}}) AS INTEGER)
extract(YEAR FROM a) | D -> int | CAST(year({{a}}) AS INTEGER)
extract(QUARTER FROM a) | D -> int | CAST(quarter({{a}}) AS INTEGER)
extract(MONTH FROM a) | D -> int | CAST(month({{a}}) AS INTEGER)
extract(DAY FROM a) | D -> int | CAST(day({{a}}) AS INTEGER)
extract(HOUR FROM a) | timestamp -> int | CAST(hour({{a}}) AS INTEGER)
extract(MINUTE FROM a) | timestamp -> int | CAST(minute({{a}}) AS INTEGER)
date_add(a, b) | D int -> date | CASE WHEN abs({{b}}::BIGINT) > 1000000 THEN {_TOO_FAR} ELSE CAST({{a}} AS DATE) + {{b}} END
add_months(a, b) | D int -> date | CASE WHEN abs({{b}}::BIGINT) > 30000 THEN {_TOO_FAR} ELSE CAST(CAST({{a}} AS DATE) + to_months({{b}}) AS DATE) END
datediff(a, b) | D D -> int | CAST(CAST({{a}} AS DATE) - CAST({{b}} AS DATE) AS INTEGER)
last_day(a) | D -> date | last_day({{a}})
to_date(a) | D -> date | CAST({{a}} AS DATE)
unix_seconds(a) | timestamp -> bigint | CAST((epoch_us({{a}}) - ((epoch_us({{a}}) % 1000000) + 1000000) % 1000000) // 1000000 AS BIGINT)
unix_millis(a) | timestamp -> bigint | CAST((epoch_us({{a}}) - ((epoch_us({{a}}) % 1000) + 1000) % 1000) // 1000 AS BIGINT)
unix_micros(a) | timestamp -> bigint | epoch_us({{a}})
try_cast(a AS INT) | string -> int | CASE WHEN regexp_full_match({{a}}, '[+-]?[0-9]{{{{1,18}}}}') THEN TRY_CAST({{a}} AS INTEGER) WHEN {{a}} IS NULL OR {{a}} = '' OR regexp_matches({{a}}, '[A-Za-z]') THEN NULL ELSE {_NO_NUMBER} END
try_cast(a AS BIGINT) | string -> bigint | CASE WHEN regexp_full_match({{a}}, '[+-]?[0-9]{{{{1,18}}}}') THEN TRY_CAST({{a}} AS BIGINT) WHEN {{a}} IS NULL OR {{a}} = '' OR regexp_matches({{a}}, '[A-Za-z]') THEN NULL ELSE {_NO_NUMBER} END
CAST(a AS BOOLEAN) | I -> boolean | {{a}} <> 0
CAST(a AS INT) | boolean -> int | CAST({{a}} AS INTEGER)
CAST(a AS INT) | bigint -> int | CAST({{a}} AS INTEGER)
CAST(a AS INT) | double -> int | CAST(trunc({{a}}) AS INTEGER)
CAST(a AS BIGINT) | boolean -> bigint | CAST({{a}} AS BIGINT)
CAST(a AS BIGINT) | double -> bigint | CASE WHEN {{a}} = 9223372036854775808 THEN 9223372036854775807 ELSE CAST(trunc({{a}}) AS BIGINT) END
CAST(a AS BIGINT) | timestamp -> bigint | CAST((epoch_us({{a}}) - ((epoch_us({{a}}) % 1000000) + 1000000) % 1000000) // 1000000 AS BIGINT)
CAST(a AS DOUBLE) | boolean -> double | CAST({{a}} AS DOUBLE)
CAST(a AS STRING) | boolean -> string | CAST({{a}} AS VARCHAR)
CAST(a AS STRING) | I -> string | CAST({{a}} AS VARCHAR)
CAST(a AS STRING) | D -> string | CAST({{a}} AS VARCHAR)
CAST(a AS DATE) | timestamp -> date | CAST({{a}} AS DATE)
count(*) | -> bigint | count(*){{over}}
count(a) | V -> bigint | count({{a}}){{over}}
count(DISTINCT a) | V -> bigint | count(DISTINCT {{a}}){{over}}
count_if(a) | boolean -> bigint | coalesce(CAST(count_if({{a}}){{over}} AS BIGINT), 0)
sum(a) | bigint -> bigint | CAST(sum({{a}}){{over}} AS BIGINT)
sum(a) | double -> double | sum({{a}}){{over}}
sum(DISTINCT a) | bigint -> bigint | CAST(sum(DISTINCT {{a}}){{over}} AS BIGINT)
avg(a) | double -> double | avg({{a}}){{over}}
min(a) | V -> V | min({{a}}){{over}}
max(a) | V -> V | max({{a}}){{over}}
stddev(a) | double -> double | CASE WHEN bool_or(NOT abs({{a}}) < 1e150){{over}} THEN {_TOO_LARGE} ELSE stddev_samp({{a}}){{over}} END
stddev_samp(a) | double -> double | CASE WHEN bool_or(NOT abs({{a}}) < 1e150){{over}} THEN {_TOO_LARGE} ELSE stddev_samp({{a}}){{over}} END
stddev_pop(a) | double -> double | CASE WHEN bool_or(NOT abs({{a}}) < 1e150){{over}} THEN {_TOO_LARGE} ELSE stddev_pop({{a}}){{over}} END
variance(a) | double -> double | CASE WHEN bool_or(NOT abs({{a}}) < 1e150){{over}} THEN {_TOO_LARGE} ELSE var_samp({{a}}){{over}} END
var_pop(a) | double -> double | CASE WHEN bool_or(NOT abs({{a}}) < 1e150){{over}} THEN {_TOO_LARGE} ELSE var_pop({{a}}){{over}} END
covar_samp(a, b) | double double -> double | CASE WHEN bool_or(NOT (abs({{a}}) < 1e150 AND abs({{b}}) < 1e150)){{over}} THEN {_TOO_LARGE} ELSE covar_samp({{a}}, {{b}}){{over}} END
covar_pop(a, b) | double double -> double | CASE WHEN bool_or(NOT (abs({{a}}) < 1e150 AND abs({{b}}) < 1e150)){{over}} THEN {_TOO_LARGE} ELSE covar_pop({{a}}, {{b}}){{over}} END
bool_and(a) | boolean -> boolean | bool_and({{a}}){{over}}
bool_or(a) | boolean -> boolean | bool_or({{a}}){{over}}
row_number() | -> int | CAST(row_number(){{over}} AS INTEGER)
rank() | -> int | CAST(rank(){{over}} AS INTEGER)
dense_rank() | -> int | CAST(dense_rank(){{over}} AS INTEGER)
percent_rank() | -> double | percent_rank(){{over}}
cume_dist() | -> double | cume_dist(){{over}}
ntile(n) | literal -> int | CAST(ntile({{n}}){{over}} AS INTEGER)
lag(a) | V -> V | lag({{a}}){{over}}
lag(a, n) | V literal -> V | lag({{a}}, {{n}}){{over}}
lead(a) | V -> V | lead({{a}}){{over}}
lead(a, n) | V literal -> V | lead({{a}}, {{n}}){{over}}
first_value(a) | V -> V | first_value({{a}}){{over}}
last_value(a) | V -> V | last_value({{a}}){{over}}
"""
_UNITS = (
    [
        f"date_trunc('{unit}', a) | timestamp -> timestamp | date_trunc('{unit}', {{a}})"
        for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
    ]
    + [
        f"trunc(a, '{unit}') | D -> date | CAST(date_trunc('{unit}', {{a}}) AS DATE)"
        for unit in ("YEAR", "QUARTER", "MONTH", "WEEK")
    ]
    + [
        f"a {sign} INTERVAL n {unit} | {kind} literal -> {'date' if kind == 'date' and days else 'timestamp'} | "
        f"CAST({{a}} {sign} to_{unit.lower()}s({{n}}) AS {'DATE' if kind == 'date' and days else 'TIMESTAMP'})"
        for sign in "+-"
        for kind in ("date", "timestamp")
        for unit, days in (("MONTH", 1), ("DAY", 1), ("HOUR", 0), ("MINUTE", 0), ("SECOND", 0))
    ]
)


def _form(pattern: str) -> str:
    """Escape the braces of a regular expression for `str.format`."""
    return pattern.replace("{", "{{").replace("}", "}}")


_CASTS_OF_TEXT = [
    f"CAST(a AS {kind}) | string -> {kind.lower()} | CASE WHEN NOT regexp_full_match({{a}}, '{_form(form)}') THEN error("
    f"'the process engine reads no such text as {kind}, run it with --engine spark') ELSE CAST({{a}} AS {kind}) END"
    for kind, form in _TEXT_FORMS.items()
]
_KINDS = {
    "I": ("int", "bigint"),
    "N": ("int", "bigint", "double"),
    "D": ("date", "timestamp"),
    "V": ("boolean", "int", "bigint", "double", "string", "date", "timestamp"),
    "T": ("boolean", "int", "bigint", "double", "decimal", "string", "date", "timestamp"),
}
"""Type variables of the lists: a line with a type variable stands for one line per type."""

SPARK_ONLY = """
percentile(a, 0.5); percentile_approx(a, 0.5); median(a); approx_count_distinct(a); skewness(a); kurtosis(a); corr(a, b); mode(a)
max_by(a, b); min_by(a, b); collect_list(a); collect_set(a); listagg(a, ',') WITHIN GROUP (ORDER BY a); grouping(a)
sum(DISTINCT a); avg(DISTINCT a); min(a) FILTER (WHERE b); first_value(a) IGNORE NULLS
sin(a); cos(a); tan(a); asin(a); acos(a); atan(a); atan2(a, b); radians(a); degrees(a); pi(); cbrt(a); log(a, b)
greatest(a, b); least(a, b); nvl2(a, b, c); a & b; a ILIKE 'x'; a RLIKE 'x'; a LIKE b
lpad(a, 2, 'x'); rpad(a, 2, 'x'); repeat(a, 2); reverse(a); initcap(a); concat_ws(',', a, b); split(a, ',')
regexp_extract(a, 'x', 1); regexp_replace(a, 'x', 'y'); md5(a); sha2(a, 256); concat(a, b)
date_format(a, 'yyyy'); from_unixtime(a); months_between(a, b); extract(SECOND FROM a); extract(WEEK FROM a)
array(a); size(a); sort_array(a); array_contains(a, b); element_at(a, 1); a[1]; explode(a); posexplode(a)
transform(a, x -> x + 1); struct(a); from_json(a, 'a INT'); get_json_object(a, '$.x')
try_cast(a AS DATE); try_cast(a AS DOUBLE); CAST(a AS DECIMAL(10, 2)); CAST(a AS FLOAT); CAST(a AS TIMESTAMP); a + INTERVAL '1' YEAR
1.5; 'x'; r'x'; NULL; TRUE; CASE WHEN a THEN b ELSE c END; CASE a WHEN b THEN c END; coalesce(a, b); a IN (b, c)
"""
"""Expressions that Spark answers; the process engine answers some of their forms (`duckdb_sql`), and refuses others."""

STATEMENTS = (
    "SELECT * FROM t",
    "SELECT t.i, k, u.i AS j FROM t JOIN u USING (k) ORDER BY i NULLS LAST, j DESC NULLS FIRST",
    "SELECT t.* FROM t ORDER BY d DESC NULLS FIRST, i",
    "SELECT x.i AS n, y.d m FROM t AS x JOIN u y ON x.k = y.k WHERE x.i > 0 ORDER BY x.i, y.i DESC",
    "SELECT t.i, u.s FROM t INNER JOIN u ON t.i = u.i ORDER BY 1, 2",
    "SELECT count(*) AS n FROM t LEFT JOIN u ON t.k = u.k AND u.b",
    "SELECT count(*) AS n FROM t RIGHT OUTER JOIN u ON t.d = u.d",
    "SELECT count(*) AS n FROM t LEFT OUTER JOIN u ON t.d = u.d",
    "SELECT count(t.i) AS n, count(u.i) AS m FROM t FULL OUTER JOIN u ON t.s = u.s",
    "SELECT count(*) AS n FROM t FULL JOIN u ON t.day = u.day",
    "SELECT count(*) AS n FROM t CROSS JOIN u",
    "SELECT count(*) AS n FROM t, u WHERE t.at < u.at",
    "SELECT count(*) AS n FROM t LEFT SEMI JOIN u ON t.k = u.k",
    "SELECT count(*) AS n FROM t LEFT ANTI JOIN u ON t.k = u.k",
    "SELECT k AS g, count(*) AS n, sum(d) AS total FROM t GROUP BY k HAVING count(*) > 1 ORDER BY g",
    "SELECT `k` + 1 AS g, count(*) AS n FROM t GROUP BY g HAVING n > 0 ORDER BY n DESC, g LIMIT 3 OFFSET 1",
    "SELECT s, count(*) AS n FROM t GROUP BY 1 ORDER BY n, 1 DESC",
    "SELECT k, max(i) AS i FROM t GROUP BY k HAVING i > 1 ORDER BY i, k",
    "SELECT -i AS i, i + 0 AS j FROM t WHERE i BETWEEN -100 AND 100 ORDER BY i",
    "SELECT (i + 1) * 2 AS n, i IS NOT NULL AND NOT (b OR i > 3) AS f FROM t ORDER BY n, f",
    "SELECT DISTINCT d FROM t ORDER BY d",
    "SELECT DISTINCT k, b FROM t ORDER BY k DESC, b",
    "WITH c AS (SELECT k, i FROM t), e(z) AS (SELECT i FROM c) SELECT sum(z) AS n FROM e",
    "WITH c AS (SELECT k FROM t) SELECT k FROM c UNION ALL SELECT k FROM u ORDER BY k",
    "WITH c AS (SELECT k FROM t) SELECT k FROM c INTERSECT SELECT k FROM u ORDER BY k",
    "WITH c AS (SELECT k FROM t) SELECT k FROM c EXCEPT SELECT k FROM u ORDER BY k",
    "SELECT count(*) AS n FROM (SELECT k FROM t UNION ALL SELECT k FROM u) q",
    "SELECT k FROM t UNION SELECT k FROM u ORDER BY k",
    "SELECT d FROM t INTERSECT SELECT d FROM u ORDER BY d",
    "SELECT d FROM t EXCEPT SELECT d FROM u ORDER BY d",
    "(SELECT k FROM t) EXCEPT ALL (SELECT k FROM u) ORDER BY k",
    "SELECT k FROM t INTERSECT ALL SELECT k FROM u ORDER BY k LIMIT 2",
    "SELECT i FROM t WHERE k IN (SELECT k FROM u) AND s NOT IN (SELECT s FROM u WHERE s IS NOT NULL) ORDER BY i",
    "SELECT i FROM t WHERE EXISTS (SELECT 1 AS one FROM u WHERE u.k = t.k) ORDER BY i",
    "SELECT i, (SELECT max(k) FROM u) AS m FROM t WHERE i > (SELECT avg(i) FROM u WHERE u.i < 100) ORDER BY i",
    "SELECT i, row_number() OVER (PARTITION BY k ORDER BY s, i DESC) AS r FROM t ORDER BY i, r",
    "SELECT i, sum(k) OVER (ORDER BY i, s ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m FROM t ORDER BY i, m",
    "SELECT i, sum(k) OVER (ORDER BY i, s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS m FROM t ORDER BY i, m",
    "SELECT i, max(k) OVER (ORDER BY i ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS m FROM t ORDER BY i, m",
    "SELECT i, count(*) OVER (ORDER BY k RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS m FROM t ORDER BY i, m",
    "SELECT i FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY i, s) = 1 ORDER BY i",
    "SELECT i FROM t WHERE s NOT LIKE 'a%' AND NOT isnull(d) AND isnotnull(k) ORDER BY i",
    "WITH c(z) AS (SELECT i FROM t) SELECT z * 2 AS z FROM c WHERE z > 1 ORDER BY z",
    "SELECT z FROM (SELECT i * 2 AS z FROM t) q WHERE z > 1 ORDER BY z",
    "SELECT i, k, k <> 0 AND i / k > 1 AS f, k = 0 OR i / k > 1 AS g FROM t",
    "SELECT t.i, q.i AS j FROM t, (WITH t AS (SELECT k AS i FROM u) SELECT i FROM t) q",
    "SELECT at - INTERVAL '15 minutes' AS a, day + INTERVAL 2 days AS c, date_trunc('MM', at) AS e, trunc(day, 'YY') AS f FROM t WHERE year(at) BETWEEN 1000 AND 9000 AND year(day) BETWEEN 1000 AND 9000",
    "SELECT k, mean(i) AS m, std(k) AS n, every(b) AS e, some(b) AS f FROM t GROUP BY k",
    "SELECT sum(i) FILTER (WHERE b) AS n, count(*) FILTER (WHERE d > 0) AS m FROM t",
    "SELECT count(DISTINCT d) AS n, count(DISTINCT s) AS m, sum(DISTINCT k) AS o FROM t",
)
"""Statements over t and u (i, k BIGINT, d DOUBLE, s STRING, b BOOLEAN, at TIMESTAMP, day DATE) that both engines answer."""
_SPARK_STATEMENTS = (
    "SELECT s, count(*) AS n FROM t GROUP BY s WITH ROLLUP",
    "SELECT s, count(*) AS n FROM t GROUP BY ROLLUP (s, k)",
    "SELECT s, count(*) AS n FROM t GROUP BY CUBE (s, k)",
    "SELECT s, count(*) AS n FROM t GROUP BY GROUPING SETS ((s), ())",
    "SELECT e, p FROM t LATERAL VIEW explode(array(i)) q AS e LATERAL VIEW OUTER posexplode(array(i)) q AS p, f",
    "SELECT sum(i) OVER w AS n FROM t WINDOW w AS (PARTITION BY s ORDER BY d)",
    "SELECT sum(i) OVER (ORDER BY k RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS n FROM t",
    "SELECT n FROM VALUES (1), (2) AS v(n)",
    "SELECT i FROM t NATURAL JOIN u SORT BY i",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
)
_UNSTEADY = frozenset(
    [
        "aes_encrypt",
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_timezone",
        "current_user",
        "curdate",
        "getdate",
        "gen_random_uuid",
        "get_current_timestamp",
        "input_file_name",
        "kll_merge_agg_bigint",
        "kll_sketch_agg_bigint",
        "kll_sketch_merge_bigint",
        "localtime",
        "localtimestamp",
        "monotonically_increasing_id",
        "now",
        "rand",
        "randn",
        "random",
        "randstr",
        "session_user",
        "shuffle",
        "spark_partition_id",
        "today",
        "tablesample",
        "uniform",
        "unix_timestamp",
        "user",
        "uuid",
    ]
)
"""Functions whose answer may differ when the same rows are read again."""
ORDERED_ONLY = (
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead,
    exp.FirstValue, exp.LastValue,
)  # fmt: skip
"""Functions whose answer depends on the order of rows. They need OVER (... ORDER BY ...)."""
_CLOCK = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Constant texts that Spark casts to the time of the query."""
_MAKES_TEXT = (exp.Func, exp.DPipe, exp.Bracket)
_NO_TEXT = (
    exp.Cast, exp.Array, exp.Struct, exp.AggFunc, exp.And, exp.Or, exp.TimestampTrunc, exp.TsOrDsToDate, exp.If,
    exp.Case, exp.Coalesce, exp.Nullif, exp.Nvl2, exp.Greatest, exp.Least,
)  # fmt: skip
"""Functions that return no text, or return one of their literals."""


@dataclass(frozen=True)
class Agreement:
    """An expression that both engines answer alike: Spark SQL, types, DuckDB SQL."""

    spark: str
    parameters: tuple[str, ...]
    returns: str
    duckdb: str
    tree: exp.Expr

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters in both SQL texts, in the order of the types."""
        return tuple(sorted({column.name for column in self.tree.find_all(exp.Column)}))


def _agreements() -> Iterator[Agreement]:
    for line in [*_AGREED.strip().splitlines(), *_UNITS, *_CASTS_OF_TEXT]:
        spark, types, duckdb = line.split(" | ")
        parameters, _, returns = types.partition("-> ")
        tree = _normalised(_parse(spark)[0])
        variable = next((name for name in types.split() if name in _KINDS), "")
        for kind in _KINDS.get(variable, ("",)):
            given = tuple(kind if name == variable else name for name in parameters.split())
            yield Agreement(spark, given, kind if returns == variable else returns, duckdb, tree)


def _parse(text: str) -> list[exp.Expr]:
    found = sqlglot.parse(text, dialect=DIALECT)
    return [tree for tree in found if tree is not None and not isinstance(tree, exp.Semicolon)]


_ALIASES: Mapping[str, type[exp.Expr]] = {
    "mean": exp.Avg, "std": exp.Stddev, "every": exp.LogicalAnd, "some": exp.LogicalOr,
}  # fmt: skip
"""Other names of functions, which sqlglot does not know."""
_UNIT_NAMES = {"MM": "MONTH", "MON": "MONTH", "YYYY": "YEAR", "YY": "YEAR", "DD": "DAY"}


def _normalised(tree: exp.Expr) -> exp.Expr:
    """Rewrite casts, types, texts, units of time and negations to one kind of node each."""
    for node in list(tree.walk()):
        made = _rewritten(node)
        if made is None:
            continue
        if node is tree:
            tree = made
        else:
            node.replace(made)
    return tree


def _rewritten(node: exp.Expr) -> exp.Expr | None:
    """Return the node that replaces a node, or None if it stays; a node that stays may be changed in place."""
    if isinstance(node, exp.DataType):
        if node.this == exp.DType.TIMESTAMP:
            node.set("this", exp.DType.TIMESTAMPTZ)
    elif isinstance(node, exp.TryCast):
        if not node.args.get("safe"):
            return exp.Cast(this=node.this, to=node.args["to"])
    elif isinstance(node, exp.RawString):
        return exp.Literal.string(node.this)
    elif isinstance(node, (exp.Like, exp.ILike)) and node.args.get("negate"):
        return exp.Not(this=type(node)(this=node.this, expression=node.expression))
    elif isinstance(node, exp.Anonymous) and len(node.expressions) == 1:
        name, (of,) = str(node.name).lower(), node.expressions
        if name in _ALIASES:
            return _ALIASES[name](this=of)
        if name in ("isnull", "isnotnull"):
            found = exp.Paren(this=exp.Is(this=exp.paren(of, copy=False), expression=exp.Null()))
            return found if name == "isnull" else exp.Not(this=found)
    elif isinstance(node, (exp.Interval, exp.DateTrunc, exp.TimestampTrunc)):
        unit = node.args.get("unit")
        if isinstance(unit, (exp.Var, exp.Literal)):
            word = str(unit.this).upper()
            if isinstance(node, exp.Interval):
                word = word.removesuffix("S")
            unit.set("this", _UNIT_NAMES.get(word, word))
    return None


AGREED = tuple(_agreements())


def examples() -> list[exp.Expr]:
    """Return the syntax trees of all examples of what a statement may contain."""
    only = [text for line in SPARK_ONLY.strip().splitlines() for text in line.split("; ")]
    trees = [_normalised(tree) for text in (*only, *STATEMENTS, *_SPARK_STATEMENTS) for tree in _parse(text)]
    return [*(one.tree for one in AGREED), *trees]


def _shapes(node: exp.Expr) -> Iterator[tuple[type, str, object]]:
    """Yield the kind of a node, alone and with each of its arguments; with the keyword if the argument is one."""
    yield type(node), "", None
    for name, value in node.args.items():
        if value is None or value is False or value == []:
            continue
        held = value if isinstance(value, list) else [value]
        words = (
            None
            if isinstance(node, (exp.Identifier, exp.Literal))
            else [str(one).upper() for one in held if not isinstance(one, exp.Expr)]
        )
        yield type(node), name, tuple(words or ()) or None


@lru_cache(maxsize=1)
def _listed_shapes() -> frozenset[tuple[type, str, object]]:
    return frozenset(shape for tree in examples() for node in tree.walk() for shape in _shapes(node))


@lru_cache(maxsize=1024)
def check_statement(statement: str) -> exp.Expr:
    """Parse one statement and refuse what is not listed. The returned tree is cached: do not change it.

    >>> check_statement("SELECT log(x) AS y FROM t -- natural").sql(DIALECT)
    'SELECT LN(x) AS y FROM t'
    """
    if len(statement) > LONGEST_STATEMENT:
        raise InvalidValue(
            "sql", f"have at most {LONGEST_STATEMENT:,} characters", len(statement), "use steps"
        )
    try:
        trees = _parse(statement)
    except (SqlglotError, RecursionError) as problem:
        raise InvalidValue(
            "sql", f"be Spark SQL ({describe_parse_error(problem)})", statement[:120], "correct it there"
        ) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise InvalidValue("sql", "be one SELECT statement", statement[:120], "begin it with SELECT or WITH")
    tree = _normalised(trees[0])
    for node in tree.walk():
        node.comments = None
        _refuse_unlisted(node)
    _refuse_clock(tree)
    for node in tree.find_all(*ORDERED_ONLY):
        window = node.find_ancestor(exp.Window)
        if window is None or (window.args.get("order") is None and not window.args.get("alias")):
            rule = "give the same answer whenever it runs"
            raise InvalidValue("sql", rule, node.sql(DIALECT), "state the order: OVER (... ORDER BY ...)")
    return tree


def _refuse_unlisted(node: exp.Expr) -> None:
    name = _called(node)
    # if no input has a column of this name, Spark reads it as a function
    column = node.name.lower() if isinstance(node, exp.Column) and not node.table else ""
    if name.lower() in _UNSTEADY or column in WITHOUT_PARENTHESES:
        name = column or name
        raise InvalidValue(
            "sql",
            "give the same answer whenever it runs",
            name,
            "leave it out: an answer may only depend on the rows"
            + (f"; if it is a column, write input.{column}" if column else ""),
        )
    for shape in _shapes(node):
        if shape not in _listed_shapes():
            word = shape[2][0] if isinstance(shape[2], tuple) else shape[1]
            word = shape[1] if word == "TRUE" else word
            what = name if not word or isinstance(node, exp.DataType) else f"{name} {word}"
            what = str(word) if isinstance(node, exp.Var) else what
            raise InvalidValue(
                "sql",
                "use only functions and clauses that spillway/engine/dialect.py lists",
                what,
                _remedy(node, name),
            )


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.name)
    if isinstance(node, exp.DataType):
        return f"type {node.sql(DIALECT)}"
    if isinstance(node, exp.Func) and node.sql_names():
        return str(node.sql_name()).lower()
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).lower()


def _remedy(node: exp.Expr, name: str) -> str:
    if not isinstance(node, exp.Func):
        return "write it in another way"
    known = {_called(one) for tree in examples() for one in tree.find_all(exp.Func)}
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"did you mean {near[0]}?" if near else "leave it out, or write it in another way"


def _refuse_clock(tree: exp.Expr) -> None:
    """Refuse constant texts that Spark could cast to the time of the query.

    Spark does so if it casts a constant to a date or time, also implicitly. So no literal may be such a word, and no
    function may build a text from literals only.
    """
    for node in tree.find_all(exp.Literal, *_MAKES_TEXT):
        if isinstance(node, exp.Literal):
            clock = node.is_string and _CLOCK.match(node.this) is not None
        else:
            texts = any(one.is_string for one in node.find_all(exp.Literal))
            clock = (
                texts
                and not isinstance(node, _NO_TEXT)
                and node.find(exp.Column, exp.Star, exp.Query) is None
            )
        if clock:
            raise InvalidValue(
                "sql",
                "give the same answer whenever it runs",
                node.sql(DIALECT),
                "write the date or time in digits, and a constant text as one literal: Spark replaces words such as "
                "'today' by its clock",
            )


def refuse_tables(tree: exp.Expr, known: Collection[str]) -> None:
    """Refuse a statement that reads anything except these views and steps, and its own WITH clauses."""
    names = {name.lower() for name in known}
    for table in tree.find_all(exp.Table):
        if table.name.lower() not in names and table.name.lower() not in _with_names(table):
            raise InvalidValue(
                "sql",
                "read only its inputs and the steps before it",
                table.name,
                f"name one of {', '.join(sorted(known))}",
            )


def _with_names(table: exp.Table) -> frozenset[str]:
    """Return the names of the WITH clauses that a table name may refer to."""
    found: set[str] = set()
    inner: exp.Expr = table
    while inner.parent is not None:
        outer = inner.parent
        clause = outer.args.get("with_")
        if isinstance(outer, exp.With):
            place = next(at for at, one in enumerate(outer.expressions) if one is inner)
            seen = outer.expressions[: place + 1 if outer.args.get("recursive") else place]
            found |= {one.alias.lower() for one in seen}
        elif isinstance(clause, exp.With) and clause is not inner:
            found |= {one.alias.lower() for one in clause.expressions}
        inner = outer
    return frozenset(found)


def spark_sql(statement: str, known: Sequence[str]) -> str:
    """Return the SQL that Spark runs, generated from the checked tree."""
    tree = check_statement(statement)
    refuse_tables(tree, known)
    try:
        return str(tree.sql(dialect=DIALECT, comments=False))
    except RecursionError:
        rule = "have at most a few hundred expressions in one another"
        raise InvalidValue("sql", rule, statement[:120], "use IN for a list of values, or steps") from None

"""Queries mined from logs: what a statement wants of the stream's rows, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.levers.sifters.logs import LOGS, SIFTERS
from tests.pipeline.streams import write_contracts

from spillway.cli.contracts import read_query_log
from spillway.contracts import read_stream
from spillway.errors import InvalidValue, UsageError
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.mine import build_entry, mine_queries

DIMENSIONS = {
    "latency": Dimension("latency", "double"),
    "host": Dimension("host", "string"),
}


def test_statements_that_want_the_same_are_one_query_weighed_by_their_runs() -> None:
    log = [
        ("select * from logs where latency > 400 and host = 'web-1'", 10.0),
        (
            "SELECT avg(latency) FROM lake.logs l WHERE l.latency > 400 AND l.host = 'web-1' GROUP BY l.at",
            5.0,
        ),
        ("select 1 from other where latency > 3", 100.0),
        (
            "with slow as (select * from logs where (latency > 900 or host = 'web-2')) select count(*) from slow",
            2.0,
        ),
        ("select host from logs", 1.0),
    ]
    found = mine_queries(log, "logs", DIMENSIONS)
    assert found.queries == (
        ("latency > 400 AND host = 'web-1'", 15.0),
        ("(latency > 900 OR host = 'web-2')", 2.0),
        ("true", 1.0),
    )
    assert found.others == 1


def test_of_a_join_only_what_is_said_of_the_stream_counts() -> None:
    text = """
        select * from logs a join hosts h on a.host = h.host
        where a.latency between 10 and 20 and h.rack = 7 and upper(a.host) = 'X' and a.latency > h.limit
    """
    found = mine_queries([(text, 1.0)], "logs", DIMENSIONS)
    assert found.queries == (("latency BETWEEN 10 AND 20", 1.0),)
    assert [part for part, _ in found.left_out] == ["UPPER(host) = 'X'"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # rows of b are wanted whatever their latency; and both sides' conditions are no contradiction
        ("select * from logs a join logs b using (at) where a.latency > 400", ["latency > 400", "true"]),
        (
            "select * from logs a join logs b using (at) where a.latency > 400 and b.latency < 3 and host = 'x'",
            ["latency < 3 AND host = 'x'", "latency > 400 AND host = 'x'"],
        ),
        # who is without a match is known by all that could be one
        ("select * from h left join logs l on h.id = l.id where l.latency is null", ["true"]),
        ("select * from logs l right join h on h.id = l.id where not l.host <=> 'x'", ["true"]),
        ("select * from logs l full join h on h.id = l.id where l.host is null or l.latency > 3", ["true"]),
        ("select * from logs l left join h on h.id = l.id where l.latency is null", ["latency IS NULL"]),
        ("select * from h left join logs l on h.id = l.id where l.latency > 3", ["latency > 3"]),
        ("select * from h left join logs l on h.id = l.id left join k where l.latency is null", ["true"]),
        ("select * from logs l join h on h.id = l.id full join k where l.latency is null", ["true"]),
        # columns by other names
        ("with a(latency, size) as (select size, latency from logs) select * from a where latency > 3", ["true"]),
        ("select * from logs as l(size, latency) where latency > 3", ["true"]),
        ("select * from logs pivot (max(size) for host in ('a' as latency)) where latency > 3", ["true"]),
        ("with a as (select * from logs as l(size, latency)) select * from a where latency > 3", ["true"]),
        ("with a as (select meta.* from logs) select * from a where latency > 3", ["true"]),
        # what cannot be together is left out, so that a contract takes the rest
        ("select * from logs where latency > 3 and latency < 2 and host = 'x'", ["latency > 3 AND host = 'x'"]),
    ],
)  # fmt: skip
def test_no_condition_is_narrower_than_what_a_statement_reads(text: str, wanted: list[str]) -> None:
    assert [where for where, _ in mine_queries([(text, 1.0)], "logs", DIMENSIONS).queries] == wanted


DBT = {
    "dbt_project.yml": "name: shop\nmodel-paths: [models]\n",
    "models/staging/stg_logs.sql": """
        {{ config(materialized='view') }}
        with source as (select * from {{ source('raw', 'logs') }}),
        renamed as (select host, latency, upper(severity) as level from source)
        select * from renamed
    """,
    "models/marts/slow.sql": """
        {{ config(materialized='incremental') }}
        with logs as (select * from {{ ref('shop', 'stg_logs') }}),
        mine as (select * from logs where latency > 400 {% if target.name == 'dev' %}and host = 'web-9'{% endif %})
        select host, count(*) from mine where host = 'web-0' group by host
        {% if is_incremental() %} having max(latency) > (select max(latency) from {{ this }}) {% endif %}
    """,
    "models/marts/hosts.sql": """
        select a.host from {{ ref('stg_logs') }} a join {{ ref('racks') }} r on a.host = r.host
        where a.host in ('web-1', 'web-2') and a.latency < {{ var('limit') }} and a.host != '{{ var("own") }}'
    """,
    "models/marts/swapped.sql": "select host as latency from {{ ref('stg_logs') }} where latency < 3",
    "models/marts/of_swapped.sql": "select * from {{ ref('swapped') }} where latency > 7",
    "macros/odd.sql": "{% macro odd(x) %} {{ x }} % 2 = 1 {% endmacro %}",
    "target/compiled/shop/models/marts/slow.sql": "select * from raw.logs where latency > 400",
}


def test_a_project_of_dbt_is_read_as_it_is(tmp_path: Path) -> None:
    """Its models alone, once; through staging models and expressions that hand rows on; templates decide nothing."""
    for name, text in DBT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    log = read_query_log(str(tmp_path))
    assert len(log) == 5
    found = mine_queries(log, "logs", DIMENSIONS)
    assert found.queries == (
        ("host IN ('web-1', 'web-2')", 1.0),
        ("latency < 3", 1.0),
        ("latency > 400", 1.0),
    )
    assert found.unreadable == ()
    assert found.others == 1  # of_swapped: its latency is a host
    assert dict(found.left_out) == {
        "latency < {{ }}": "hold in every run, and a template decides it",
        "host <> '{{ }}'": "hold in every run, and a template decides it",
    }
    assert read_query_log(str(tmp_path / "models" / "staging"))[0][0].startswith("CREATE VIEW stg_logs AS")
    # a view that nobody reads wants all of its rows
    assert mine_queries(log[-1:], "logs", DIMENSIONS).queries == (("true", 1.0),)
    (tmp_path / "dbt_project.yml").write_text("model-paths: [")
    with pytest.raises(UsageError, match=r"dbt_project.yml` must be YAML"):
        read_query_log(str(tmp_path))


def test_an_expression_named_as_the_stream_is_the_stream_only_where_it_is() -> None:
    text = "with logs as (select * from logs where host = 'web-1') select * from logs where latency > 3"
    assert mine_queries([(text, 2.0)], "logs", DIMENSIONS).queries == (("host = 'web-1'", 2.0),)


@pytest.mark.parametrize(
    "inner",
    [
        "select logs.* from logs join racks on logs.host = racks.host",
        "select * from logs group by all",
        "select * from logs limit 10",
        "select distinct latency, size from logs",
        "select *, max(size) over () as largest from logs",
        "select size as latency from logs",
        "select 1000 * latency as latency from logs",
        "select * from logs union all select * from others",
    ],
)
def test_what_changes_the_rows_is_not_the_stream_by_another_name(inner: str) -> None:
    """A condition on what comes out says nothing of what went in, of which all is wanted."""
    outer = "select * from a where latency > 3"
    assert mine_queries([(f"with a as ({inner}) {outer}", 1.0)], "logs", DIMENSIONS).queries == (
        ("true", 1.0),
    )
    found = mine_queries([(f"create view a as {inner}", 1.0), (outer, 1.0)], "logs", DIMENSIONS)
    assert (found.queries, found.others) == ((("true", 1.0),), 1)


def test_views_of_views_are_the_stream_in_whatever_order_they_come() -> None:
    log = [("select * from a where latency > 3", 1.0)]
    log += [(f"create view {one} as select * from {of}", 1.0) for one, of in ("ab", "bc", ("c", "logs"))]
    found = mine_queries(log, "logs", DIMENSIONS)
    assert (found.queries, found.others) == ((("latency > 3", 1.0),), 0)


@pytest.mark.parametrize(
    "text",
    [
        "{{ config(materialized='table') }} select * from {{ ref('logs') }} where latency < 5 {% if x %}{% endif %}",
        "select * from {{ ref('shop', 'logs', v=2) }} {# all of them, {{ so far }} #} where latency < 5",
        "select * from logs where latency < 5 {% if x %}and host = 'a'{% if y %} and host = 'b'{% endif %}{% endif %}",
        "select * from logs {% if x %}where latency < 5{% else %}{% endif %} {% if y %}{{ odd() }}{% endif %} and true",
    ],
)
def test_models_of_dbt_are_read_without_their_templates(text: str) -> None:
    found = mine_queries([(text, 1.0)], "logs", DIMENSIONS)
    assert (found.queries, found.unreadable) == ((("latency < 5", 1.0),), ())


def test_the_folders_of_models_are_those_that_a_project_names(tmp_path: Path) -> None:
    for place in ("sql/a.sql", "models/b.sql", "more/deep/c.sql"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("select 1")
    for stated, names in (
        ("model-paths: [sql, more]", "ca"),
        ("source-paths: [sql]", "a"),
        ("name: shop", "b"),
    ):
        (tmp_path / "dbt_project.yml").write_text(stated)
        assert read_query_log(str(tmp_path)) == [(f"CREATE VIEW {one} AS select 1", 1.0) for one in names]


def test_an_entry_is_drafted_that_the_contract_takes(tmp_path: Path) -> None:
    contract = read_stream(LOGS)
    found = build_entry(
        contract, [("select * from logs where severity >= 'WARN' and size > 3", 4.0), ("selec", 1.0)]
    )
    assert found.entry["queries"] == [{"where": "severity >= 'WARN'", "weight": 4.0}]
    assert found.entry["unqueried"] == "by_region"  # a log is examples of what is asked, not all of it
    assert any("size > 3" in note for note in found.notes)
    levers = [{**SIFTERS, **found.entry}]
    assert write_contracts(tmp_path, [{**LOGS, "levers": levers}]).streams["logs"].lever_names == ("sifters",)
    with pytest.raises(InvalidValue, match="hold a SELECT that reads logs"):
        build_entry(contract, [("select 1 from other", 1.0)])


def test_logs_come_as_files_of_sql_and_as_tables(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.sql").write_text("select 1")
    (tmp_path / "log.csv").write_text('query,runs\n"select 1, 2",3\nselect 4,\n')
    (tmp_path / "log.jsonl").write_text('{"sql": "select 5"}\n')
    assert read_query_log(str(tmp_path / "a")) == [("select 1", 1.0)]
    assert read_query_log(str(tmp_path / "log.csv")) == [("select 1, 2", 3.0)]
    assert read_query_log(str(tmp_path / "log.jsonl")) == [("select 5", 1.0)]
    (tmp_path / "bad.csv").write_text("text\nselect 1\n")
    for name, said in (("bad.csv", "must have a column query"), ("nothing", "must be a file or a folder")):
        with pytest.raises(UsageError, match=said):
            read_query_log(str(tmp_path / name))


def test_a_log_may_be_a_delta_table_of_which_the_columns_of_use_are_read(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = pa.table({"Query_Text": ["select 1", None, "select 2"], "runs": [3, 1, 0], "who": ["a", "b", "c"]})
    write_deltalake(str(tmp_path / "log"), rows)
    write_deltalake(str(tmp_path / "log"), rows.slice(0, 1), mode="append")
    assert read_query_log(str(tmp_path / "log")) == [("select 1", 3.0), ("select 1", 3.0)]
    write_deltalake(str(tmp_path / "none"), rows.select(["who"]))
    with pytest.raises(UsageError, match=r"must have a column query.*got who in"):
        read_query_log(str(tmp_path / "none"))
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    with pytest.raises(InvalidValue, match="be one that delta-rs reads"):
        read_query_log(str(tmp_path / "broken"))
    assert (tmp_path / "broken" / "_delta_log").is_dir()  # it is not ours to put aside


def test_the_command_prints_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from spillway.cli import main

    write_contracts(tmp_path / "schemas", [LOGS])
    (tmp_path / "log.sql").write_text(
        "select * from logs where latency > 400; select * from logs where size > 1"
    )
    monkeypatch.setenv("SPILLWAY_HOME", str(tmp_path))
    assert main(["contracts", "mine", str(tmp_path / "log.sql"), "--stream", "logs"]) == 0
    told = yaml.safe_load(capsys.readouterr().out)
    assert told["levers"][0]["queries"][0] == {"where": "latency > 400", "weight": 1.0}


def test_a_log_of_which_every_query_wants_all_rows_makes_no_entry() -> None:
    """Its condition would be `true` alone, which no contract takes."""
    log = [("select count(*) from logs", 5.0), ("select * from logs where upper(host) = 'X'", 1.0)]
    with pytest.raises(
        InvalidValue, match=r"want all rows once UPPER\(host\) = 'X' is left out.*a random sample"
    ):
        build_entry(read_stream(LOGS), log)

"""The expectation of our own: a view that selects the rows that break a rule has no row.

A rule over several tables is a view in SQL. DuckDB computes it, and its rows are a batch of the pandas data source.
`UnexpectedRowsExpectation` of Great Expectations is the same idea, but it runs its query in SQLAlchemy or Spark. Data
Docs show the rows of the view with all their columns.

Import this module only where Great Expectations is loaded: it subclasses its expectations.
"""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.render import (
    LegacyDiagnosticRendererType,
    LegacyRendererType,
    RenderedStringTemplateContent,
    RenderedTableContent,
)
from great_expectations.render.renderer.renderer import renderer
from great_expectations.validator.metric_configuration import MetricConfiguration

from spillway.checks.data_docs import MOST_ROWS, as_text

_COUNT, _HEAD = "table.row_count", "table.head"


class ExpectNoRowOfView(BatchExpectation):
    """Expect that the view has no row. `view` is the identifier of its batch in the execution engine.

    The result has the number of rows as `observed_value`, and the first `MOST_ROWS` rows in `details`.
    """

    view: str

    success_keys: ClassVar[tuple[str, ...]] = ("view",)
    args_keys: ClassVar[tuple[str, ...]] = ("view",)

    def get_validation_dependencies(
        self, execution_engine: Any = None, runtime_configuration: dict[str, Any] | None = None
    ) -> Any:
        """Ask for the number of rows of the view, and for the first ones."""
        found = super().get_validation_dependencies(execution_engine, runtime_configuration)
        for name, values in ((_COUNT, {}), (_HEAD, {"n_rows": MOST_ROWS, "fetch_all": False})):
            metric = MetricConfiguration(name, {"batch_id": self.view}, values)
            found.set_metric_configuration(metric_name=name, metric_configuration=metric)
        return found

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        count, head = int(metrics[_COUNT]), metrics[_HEAD]
        rows = [{name: as_text(value) for name, value in row.items()} for row in head.to_dict("records")]
        return {
            "success": not count,
            "result": {"observed_value": count, "details": {"unexpected_rows": rows}},
        }

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[RenderedStringTemplateContent]:
        view = (configuration or result.expectation_config).kwargs["view"]
        template = {"template": "No row of view $view.", "params": {"view": view}}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=template)]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> str:
        count = result.result["observed_value"]
        return f"{count:,} row{'' if count == 1 else 's'}" if isinstance(count, int) else str(count)

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[RenderedTableContent] | None:
        """Return a table of the rows, or None if there is none."""
        rows = result.result.get("details", {}).get("unexpected_rows")
        if not rows:
            return None
        return [
            RenderedTableContent(
                content_block_type="table",
                header_row=list(rows[0]),
                table=[list(row.values()) for row in rows],
                styling={"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}},
            )
        ]

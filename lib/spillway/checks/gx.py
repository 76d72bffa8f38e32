"""Great Expectations, quiet and offline: one ephemeral context a run, Data Docs beside the report."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.checks.suites import Expectation, Suite
from spillway.errors import Refused

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Verdict:
    """What Great Expectations concluded about one expectation."""

    holds: bool
    observed: Any


def load_in_background() -> None:
    """Begin to import Great Expectations, which takes seconds, while an engine's start is waited for."""
    threading.Thread(target=import_module, args=("great_expectations",), daemon=True).start()


class Validator:
    """One context for all suites of a run. `docs` is where Data Docs go; what was there is replaced."""

    def __init__(self, docs: str | Path) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import great_expectations as gx

        self._gx = gx
        self._context = gx.get_context(mode="ephemeral")
        self._context.enable_analytics(False)
        self._context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        self.docs = Path(docs)
        shutil.rmtree(self.docs, ignore_errors=True)
        self._add_docs_site()
        self._views = self._context.data_sources.add_pandas(name="views")

    def _add_docs_site(self) -> None:
        for site in list(self._context.get_site_names()):
            self._context.delete_data_docs_site(site)
        self._context.add_data_docs_site(
            "local_site",
            {
                "class_name": "SiteBuilder",
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                "show_how_to_buttons": False,
                "store_backend": {
                    "class_name": "TupleFilesystemStoreBackend",
                    "base_directory": str(self.docs.resolve()),
                },
            },
        )

    def validate(self, suite: Suite, rows: pa.Table) -> Mapping[str, Verdict]:
        """Judge every expectation of `suite` on its view's rows; verdicts by the expectations' names."""
        gx = self._gx
        asset = self._views.add_dataframe_asset(name=suite.name)
        batch = asset.add_batch_definition_whole_dataframe("changed")
        rules = gx.ExpectationSuite(name=suite.name, notes=suite.meaning)
        for rule in suite.expectations:
            rules.add_expectation(self._expectation(suite, rule))
        definition = self._context.validation_definitions.add(
            gx.ValidationDefinition(name=suite.name, data=batch, suite=self._context.suites.add(rules))
        )
        result = definition.run(batch_parameters={"dataframe": rows.to_pandas()}, result_format="BASIC")
        verdicts = {}
        for found in result.results:
            name = found.expectation_config.meta["name"]
            if found.exception_info and _raised(found.exception_info):
                raise Refused(
                    name,
                    "be computable on its view",
                    _message(found.exception_info),
                    "compare its column with the view",
                    f"{suite.name}.yaml",
                )
            verdicts[name] = Verdict(bool(found.success), (found.result or {}).get("observed_value"))
        return verdicts

    def _expectation(self, suite: Suite, rule: Expectation) -> Any:
        from great_expectations.exceptions import ExpectationNotFoundError
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

        configuration = ExpectationConfiguration(
            type=rule.type,
            kwargs=dict(rule.kwargs),
            meta={"name": rule.name},
            notes=rule.meaning,
            severity=rule.severity,
        )
        try:
            return configuration.to_domain_obj()
        except (ExpectationNotFoundError, ValueError, TypeError) as problem:
            raise Refused(
                rule.name,
                "be an expectation that Great Expectations knows",
                f"{rule.type} with {dict(rule.kwargs)}",
                str(problem).splitlines()[0],
                f"{suite.name}.yaml",
            ) from problem

    def write_docs(self) -> Path:
        """Build Data Docs of everything validated so far."""
        self._context.build_data_docs()
        return self.docs / "index.html"


def _raised(info: Mapping[str, Any]) -> bool:
    nested = [value for value in info.values() if isinstance(value, Mapping)]
    return bool(info.get("raised_exception")) or any(item.get("raised_exception") for item in nested)


def _message(info: Mapping[str, Any]) -> str:
    nested = [value for value in info.values() if isinstance(value, Mapping)]
    messages = [item.get("exception_message") for item in (info, *nested)]
    return str(next((text for text in messages if text), "an error")).splitlines()[0]

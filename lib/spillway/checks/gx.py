"""Run Great Expectations quietly and offline: one ephemeral context per run; Data Docs are next to the report."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from spillway.checks.data_docs import (
    REPORTED,
    SuiteResult,
    archive_docs,
    finish_docs,
    lock_docs,
)
from spillway.checks.suites import Expectation, Suite
from spillway.clock import utc_now
from spillway.errors import InvalidValue, escape_text

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class Verdict:
    """The result of Great Expectations for one expectation."""

    holds: bool
    observed: Any


MOST_EXAMPLES = 5


@dataclass
class Tally:
    """How many rows an expectation was checked on, how many break it, and examples of those."""

    rows: int = 0
    nulls: int = 0
    broken: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def load_in_background() -> None:
    """Start to import Great Expectations, which takes seconds, in a thread while an engine starts."""
    threading.Thread(target=import_module, args=("great_expectations",), daemon=True).start()


class Validator:
    """Judge suites in one Great Expectations context and build Data Docs of them in `docs`.

    `run_id` names the run: pages that the same run wrote before stay, those of another run move to `earlier`.
    `subjects` are the streams, joins and queries that are judged.
    """

    def __init__(self, docs: str | Path, run_id: str = "", subjects: Sequence[str] = ()) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import great_expectations as gx

        self._gx = gx
        self._context = gx.get_context(mode="ephemeral")
        self._context.enable_analytics(False)
        self._context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        self.docs, self.run_id, self._subjects = Path(docs), run_id, tuple(subjects)
        # Great Expectations empties the folder that it builds in; pages of the same run must stay
        self._built = TemporaryDirectory(prefix="spillway-docs-")
        self._add_docs_site()
        self._views = self._context.data_sources.add_pandas(name="views")
        self._judged: list[SuiteResult] = []

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
                    "base_directory": self._built.name,
                },
            },
        )

    def validate(self, suite: Suite, rows: pa.Table) -> Mapping[str, Verdict]:
        """Check every expectation of `suite` on the rows of its view; return the verdicts by expectation."""
        gx = self._gx
        asset = self._views.add_dataframe_asset(name=suite.name)
        rules = gx.ExpectationSuite(name=suite.name, notes=suite.meaning)
        for rule in suite.expectations:
            rules.add_expectation(self._expectation(suite, rule))
        rules = self._context.suites.add(rules)
        judged = asset.add_batch_definition_whole_dataframe("changed").get_batch(
            batch_parameters={"dataframe": rows.to_pandas()}
        )
        result = judged.validate(rules, result_format={"result_format": "BASIC"})
        severities = {rule.name: rule.severity for rule in suite.expectations}
        verdicts = {}
        for found in result.results:
            name = found.expectation_config.meta["name"]
            if found.exception_info and _raised(found.exception_info):
                raise InvalidValue(
                    name,
                    "be computable on its view",
                    _message(found.exception_info),
                    "compare its column with the view",
                    f"{suite.name}.yaml",
                )
            verdicts[name] = Verdict(bool(found.success), (found.result or {}).get("observed_value"))
            if not found.success and severities[name] == "info":
                found.success = True  # Data Docs agree with the table `validations`: reported, not failed
                found.result["observed_value"] = f"{verdicts[name].observed} ({REPORTED})"
        reported = sum(severities[name] == "info" and not one.holds for name, one in verdicts.items())
        self._store_result(suite, result, reported, suite.name)
        return verdicts

    def validate_pieces(
        self, suite: Suite, pieces: Iterable[tuple[Any, pd.DataFrame]]
    ) -> dict[str, dict[Any, Tally]]:
        """Check expectations by row on one data frame after the other.

        `pieces`: pairs of a group and a frame; frames have a column `seq`. Return the tallies by expectation
        and group. Data Docs get one page with the sums and with examples. The examples are escaped, so that
        browsers show them as text.
        """
        asset = self._views.add_dataframe_asset(name=suite.name)
        whole = asset.add_batch_definition_whole_dataframe("piece")
        rules = self._gx.ExpectationSuite(name=suite.name, notes=suite.meaning)
        for rule in suite.expectations:
            rules.add_expectation(self._expectation(suite, rule))
        rules = self._context.suites.add(rules)
        wanted = {
            "result_format": "SUMMARY",
            "partial_unexpected_count": MOST_EXAMPLES,
            "unexpected_index_column_names": ["seq"],
        }
        tallies: dict[str, dict[Any, Tally]] = {rule.name: {} for rule in suite.expectations}
        last = None
        for group, frame in pieces:
            last = whole.get_batch(batch_parameters={"dataframe": frame}).validate(
                rules, result_format=wanted
            )
            for found in last.results:
                name = found.expectation_config.meta["name"]
                if found.exception_info and _raised(found.exception_info):
                    remedy = "compare it with the type of its attribute"
                    raise InvalidValue(
                        name, "be a rule of these rows", _message(found.exception_info), remedy
                    )
                _add_up(tallies[name].setdefault(group, Tally()), found.result, frame)
        if last is not None:
            self._keep_result(suite, last, tallies)
        return tallies

    def _keep_result(self, suite: Suite, result: Any, tallies: Mapping[str, Mapping[Any, Tally]]) -> None:
        """Store the sums over all frames for Data Docs, in place of the results of the last frame."""
        columns = {rule.name: rule.kwargs["column"] for rule in suite.expectations}
        severities = {rule.name: rule.severity for rule in suite.expectations}
        reported = 0
        for found in result.results:
            name = found.expectation_config.meta["name"]
            found.result = _summed(list(tallies[name].values()), columns[name])
            broken = found.result["unexpected_count"]
            found.success = not broken or severities[name] == "info"
            if broken and found.success:
                reported += 1
                found.result["partial_unexpected_counts"].insert(0, {"value": REPORTED, "count": broken})
        self._store_result(suite, result, reported, "rows")

    def _store_result(self, suite: Suite, result: Any, reported: int, batch: str) -> None:
        """Store the result of a suite for Data Docs. A rule of severity `info` that is broken counts as reported."""
        from great_expectations.core.run_identifier import RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import (
            ExpectationSuiteIdentifier,
            ValidationResultIdentifier,
        )

        held, count = sum(found.success for found in result.results), len(result.results)
        result.success = held == count
        result.statistics = {
            "evaluated_expectations": count,
            "successful_expectations": held,
            "unsuccessful_expectations": count - held,
            "success_percent": 100 * held / count,
        }
        run = RunIdentifier(run_time=utc_now())
        result.meta |= {"run_id": run, "validation_time": run.run_time}
        key = ValidationResultIdentifier(ExpectationSuiteIdentifier(suite.name), run, batch)
        self._context.validation_results_store.store_validation_results(result, key)
        subjects = () if batch == "rows" else self._subjects
        self._judged.append(SuiteResult(suite.name, subjects, held - reported, reported, count))

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
            raise InvalidValue(
                rule.name,
                "be an expectation that Great Expectations knows",
                f"{rule.type} with {dict(rule.kwargs)}",
                str(problem).splitlines()[0],
                f"{suite.name}.yaml",
            ) from problem

    def write_docs(self) -> Path:
        """Build Data Docs of everything validated so far; they replace those of another run."""
        self._context.build_data_docs()
        with lock_docs(self.docs):
            archive_docs(self.docs, self.run_id)
            for kind in ("expectations", "validations"):
                if (built := Path(self._built.name, kind)).is_dir():
                    shutil.copytree(built, self.docs / kind, dirs_exist_ok=True)
            index = finish_docs(self.docs, self._judged, self.run_id)
        self._built.cleanup()
        return index


def _add_up(tally: Tally, result: Mapping[str, Any], frame: pd.DataFrame) -> None:
    tally.rows += result["element_count"]
    tally.nulls += result.get("missing_count") or 0
    tally.broken += result["unexpected_count"]
    rows = [one["seq"] for one in result.get("partial_unexpected_index_list") or ()]
    for seq in rows[: MOST_EXAMPLES - len(tally.examples)]:
        # read column by column, because a row of a frame has only one type
        at = int((frame["seq"] == seq).to_numpy(bool).argmax())
        tally.examples.append({str(name): frame[name].iloc[at] for name in frame})


def _summed(tallies: Sequence[Tally], column: str) -> dict[str, Any]:
    """Return the result of all frames in Great Expectations' format."""
    rows, nulls = sum(one.rows for one in tallies), sum(one.nulls for one in tallies)
    broken = sum(one.broken for one in tallies)
    examples = [row for one in tallies for row in one.examples][:MOST_EXAMPLES]
    shown = [escape(escape_text(f"seq {row['seq']}: {row[column]}")) for row in examples]
    share = 100 * broken / rows if rows else 0.0
    present = 100 * broken / (rows - nulls) if rows > nulls else 0.0
    return {
        "element_count": rows,
        "missing_count": nulls,
        "missing_percent": 100 * nulls / rows if rows else 0.0,
        "unexpected_count": broken,
        "unexpected_percent": present,
        "unexpected_percent_total": share,
        "unexpected_percent_nonmissing": present,
        "partial_unexpected_list": shown,
        "partial_unexpected_counts": [{"value": one, "count": 1} for one in shown],
    }


def _raised(info: Mapping[str, Any]) -> bool:
    nested = [value for value in info.values() if isinstance(value, Mapping)]
    return bool(info.get("raised_exception")) or any(item.get("raised_exception") for item in nested)


def _message(info: Mapping[str, Any]) -> str:
    nested = [value for value in info.values() if isinstance(value, Mapping)]
    messages = [item.get("exception_message") for item in (info, *nested)]
    return str(next((text for text in messages if text), "an error")).splitlines()[0]

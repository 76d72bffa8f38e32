"""Run Great Expectations quietly and offline: one ephemeral context per run; Data Docs are next to the report."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.checks.data_docs import (
    MOST_ROWS,
    REPORTED,
    SuiteResult,
    archive_docs,
    as_text,
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
    """The result of Great Expectations for one expectation, with the rows that break it."""

    holds: bool
    offending: Sequence[Mapping[str, Any]] = ()
    observed: str = ""
    """What was found, if the type of expectation does not name the rows that break it."""


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
    """Judge suites in one Great Expectations context and write Data Docs of them to `docs`.

    `run_id` names the run: pages that the same run wrote before stay, those of another run move to `earlier`.
    `subjects` are the streams, joins and queries that are judged.
    """

    def __init__(self, docs: str | Path, run_id: str = "", subjects: Sequence[str] = ()) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import great_expectations as gx

            import spillway.checks.no_row_of_view  # noqa: F401 - registers the expectation of our own

        self._gx = gx
        context = gx.get_context(mode="ephemeral")
        context.enable_analytics(False)
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        self.docs, self.run_id, self._subjects = Path(docs), run_id, tuple(subjects)
        # One asset for all suites: Great Expectations rewrites its configuration for each asset
        self._source = context.data_sources.add_pandas(name="views")
        asset = self._source.add_dataframe_asset(name="rows")
        self._whole = asset.add_batch_definition_whole_dataframe("changed")
        self._judged: list[SuiteResult] = []
        self._results: list[tuple[Suite, Any, str]] = []

    def validate(
        self, suite: Suite, rows: pa.Table, offending: Mapping[str, pa.Table] | None = None
    ) -> Mapping[str, Verdict]:
        """Check every expectation of `suite`; return the verdicts by expectation.

        `rows`: the rows of the view of the suite. `offending`: for each rule that has a view of its own, the rows
        of that view.
        """
        found = offending or {}
        for name, table in found.items():
            self._source.get_execution_engine().load_batch_data(_view_id(suite, name), table.to_pandas())
        batch = self._whole.get_batch(batch_parameters={"dataframe": _as_frame(rows)})
        result = batch.validate(self._suite(suite, suite.expectations), result_format="BOOLEAN_ONLY")
        by_name = {one.expectation_config.meta["name"]: one for one in result.results}
        if broken := [rule for rule in suite.expectations if not by_name[rule.name].success]:
            # Great Expectations lists the rows in a second pass, only for the rules that do not hold: it is slower
            by_name |= self._failures(batch, suite, broken, rows)
        result.results = [by_name[rule.name] for rule in suite.expectations]
        verdicts, reported = {}, 0
        for rule in suite.expectations:
            one = by_name[rule.name]
            if one.success:
                verdicts[rule.name] = Verdict(True)
                one.result = _held(rule, rows.num_rows)
                continue
            verdicts[rule.name] = _verdict(rule, one.result, rows, found.get(rule.name))
            if rule.severity == "info":
                reported += 1
                one.success = True  # Data Docs agree with the table `validations`: reported, not failed
                one.result["observed_value"] = f"{_observed(one.result)} ({REPORTED})"
        self._store_result(suite, result, reported, suite.name)
        return verdicts

    def _failures(
        self, batch: Any, suite: Suite, broken: Sequence[Expectation], rows: pa.Table
    ) -> dict[str, Any]:
        """Return the complete results of the rules that do not hold, by name."""
        missing = [name for name in suite.keys if name not in rows.column_names]
        if missing and not all(rule.view for rule in broken):
            remedy = "add it to the view, or take it out"
            raise InvalidValue(
                "keys", "be columns of the view", ", ".join(missing), remedy, f"{suite.name}.yaml"
            )
        wanted = {"result_format": "COMPLETE", "unexpected_index_column_names": [_ROW, *suite.keys]}
        found = {}
        for one in batch.validate(self._suite(suite, broken), result_format=wanted).results:
            name = one.expectation_config.meta["name"]
            if one.exception_info and _raised(one.exception_info):
                raise InvalidValue(
                    name,
                    "be computable on its view",
                    _message(one.exception_info),
                    "compare its column with the view",
                    f"{suite.name}.yaml",
                )
            found[name] = one
        return found

    def _suite(self, suite: Suite, rules: Sequence[Expectation]) -> Any:
        """Return Great Expectations' suite of these rules."""
        return self._gx.ExpectationSuite(
            name=suite.name,
            notes=escape(suite.meaning),
            expectations=[self._expectation(suite, rule) for rule in rules],
        )

    def validate_pieces(
        self, suite: Suite, pieces: Iterable[tuple[Any, pd.DataFrame]]
    ) -> dict[str, dict[Any, Tally]]:
        """Check expectations by row on one data frame after the other.

        `pieces`: pairs of a group and a frame; frames have a column `seq`. Return the tallies by expectation
        and group. Data Docs get one page with the sums and with examples. The examples are escaped, so that
        browsers show them as text.
        """
        rules = self._suite(suite, suite.expectations)
        wanted = {
            "result_format": "SUMMARY",
            "partial_unexpected_count": MOST_EXAMPLES,
            "unexpected_index_column_names": ["seq"],
        }
        tallies: dict[str, dict[Any, Tally]] = {rule.name: {} for rule in suite.expectations}
        last = None
        for group, frame in pieces:
            last = self._whole.get_batch(batch_parameters={"dataframe": frame}).validate(
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
        held, count = sum(found.success for found in result.results), len(result.results)
        result.success = held == count
        result.statistics = {
            "evaluated_expectations": count,
            "successful_expectations": held,
            "unsuccessful_expectations": count - held,
            "success_percent": 100 * held / count,
        }
        self._results.append((suite, result, batch))
        subjects = () if batch == "rows" else self._subjects
        self._judged.append(
            SuiteResult(suite.name, subjects, held - reported, reported, count, meaning=suite.meaning)
        )

    def _expectation(self, suite: Suite, rule: Expectation) -> Any:
        from great_expectations.exceptions import ExpectationNotFoundError
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

        meaning = escape(rule.meaning)
        configuration = ExpectationConfiguration(
            type=rule.type,
            kwargs={"view": _view_id(suite, rule.name)} if rule.view else dict(rule.kwargs),
            meta={"name": rule.name},
            description=f"No row of view {rule.name}: {meaning}"
            if rule.view
            else f"{meaning} ({escape(rule.expected)})",
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
        """Write Data Docs of everything validated so far; they replace those of another run.

        The pages are those of Great Expectations. Its site builder would also copy fonts and images and write an
        index that are not used here.
        """
        pages = self._pages()
        with lock_docs(self.docs):
            archive_docs(self.docs, self.run_id)
            for path, page in pages.items():
                (self.docs / path).parent.mkdir(parents=True, exist_ok=True)
                (self.docs / path).write_text(page, encoding="utf-8")
            return finish_docs(self.docs, self._judged, self.run_id)

    def _pages(self) -> dict[str, str]:
        """Return the pages of all results and their suites, by path."""
        from great_expectations.core.run_identifier import RunIdentifier
        from great_expectations.render.renderer import (
            ExpectationSuitePageRenderer,
            ValidationResultsPageRenderer,
        )
        from great_expectations.render.view import DefaultJinjaPageView

        pages, view = {}, DefaultJinjaPageView()
        of_results, of_rules = ValidationResultsPageRenderer(), ExpectationSuitePageRenderer()
        for suite, result, batch in self._results:
            run = RunIdentifier(run_time=utc_now())
            result.meta |= {"run_id": run, "batch_spec": {"data_asset_name": suite.table}}
            result.meta.pop("batch_markers", None)
            place = Path("validations", suite.name, *run.to_tuple(), f"{batch}.html")
            pages[str(place)] = view.render(of_results.render(result))
            rules = self._suite(suite, suite.expectations)
            pages[f"expectations/{suite.name}.html"] = view.render(of_rules.render(rules))
        return pages


_ROW = "row number"
"""A column of the judged frames, so that an offending row is found again."""


def _view_id(suite: Suite, rule: str) -> str:
    return f"{suite.name}.{rule}"


def _as_frame(rows: pa.Table) -> pd.DataFrame:
    """Return the rows as a data frame with row numbers.

    pandas takes NaN for null in a numpy column, and turns integers with nulls into floats. A column with NaN stays an
    Arrow column, so that a NaN breaks a rule. Integers with nulls become objects, so that large ones are exact.

    >>> import pyarrow as pa
    >>> frame = _as_frame(pa.table({"x": [1, None], "y": [0.5, float("nan")], "z": [1, 2]}))
    >>> list(map(str, frame.dtypes)), frame["y"].isna().any().item()
    (['object', 'double[pyarrow]', 'int64', 'int64'], False)
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            columns[name] = pd.Series(pd.arrays.ArrowExtensionArray(column))
        else:
            columns[name] = column.to_pandas(integer_object_nulls=True)
    return pd.DataFrame(columns | {_ROW: range(rows.num_rows)})


def _verdict(
    rule: Expectation, result: dict[str, Any], rows: pa.Table, offending: pa.Table | None
) -> Verdict:
    """Return the rows that break a rule, and write their values into its result as Data Docs show them."""
    if offending is not None:
        return Verdict(False, offending.to_pylist())
    if "unexpected_index_list" not in result:
        return Verdict(False, observed=str(result.get("observed_value")))
    places = [entry.pop(_ROW) for entry in result["unexpected_index_list"]]
    _name_values(result, rule)
    return Verdict(False, rows.take(places).to_pylist())


def _held(rule: Expectation, rows: int) -> dict[str, Any]:
    """Return the result of a rule that holds, in Great Expectations' format."""
    if rule.view:
        return {"observed_value": 0}
    return {"element_count": rows, "unexpected_count": 0, "unexpected_percent": 0.0}


def _observed(result: Mapping[str, Any]) -> str:
    count = result.get("unexpected_count", result.get("observed_value"))
    return f"{count:,} row{'' if count == 1 else 's'}" if isinstance(count, int) else str(count)


def _name_values(result: dict[str, Any], rule: Expectation) -> None:
    """Write the values of an offending row as text: with the names of the columns if there are several.

    Great Expectations lists the values of a pair of columns without names and in any order. The text is escaped, so
    that browsers show it as text.
    """
    names = rule.columns
    index = []
    for entry in result["unexpected_index_list"]:
        values = [as_text(entry[name]) for name in names]
        said = values[0] if len(names) == 1 else ", ".join(map(" ".join, zip(names, values, strict=True)))
        keys = {
            key: as_text(value) for key, value in entry.items() if key not in names or key in result[_KEYS]
        }
        index.append({**keys, "value": said})
    counts = Counter(entry["value"] for entry in index)
    result["unexpected_index_list"] = index
    result["unexpected_index_column_names"] = [name for name in result[_KEYS] if name != _ROW]
    result["partial_unexpected_list"] = [entry["value"] for entry in index[:MOST_ROWS]]
    result["partial_unexpected_counts"] = [
        {"value": value, "count": count} for value, count in counts.most_common(MOST_ROWS)
    ]
    result.pop("unexpected_list", None)
    result.pop("unexpected_index_query", None)


_KEYS = "unexpected_index_column_names"


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

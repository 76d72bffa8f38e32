"""Build the SQL for each window of a query, and turn its answers into the rows that are stored.

The statements are the author's; they read views with the kept portions only. The information content (`sic`) of an
answer follows from counts, independent of the statements: each step conserves what its inputs carry (Fiscato 2012,
eq. 3.3). So the last step carries the kept share of every source, spread evenly over its rows.

If the only step is a plain aggregate of one input and its answer must be estimated, the engine computes partial
aggregates per portion instead. The answer is made from these, with intervals of COUNT, SUM and AVG (`scaled_answer`).
The bounds of values that an earlier lever shed or rounded widen these intervals, or make them impossible
(`intervals`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spillway.contracts.column_names import BOUND_SUFFIX, is_attribute
from spillway.errors import InvalidValue
from spillway.levers.quality.coverage import (
    SequenceFates,
    WindowTally,
    last_number,
    result_shares,
    sequence_fates,
)
from spillway.levers.quality.intervals import deciding_attributes, inexact_rows_sql, relevant_attributes
from spillway.levers.quality.room_plan import WindowShare
from spillway.levers.quality.scaled_answer import (
    Ranges,
    add_exact_bounds,
    estimate_answer,
    partial_aggregates_sql,
)
from spillway.levers.quality.settings import Numbered, QualitySettings, SourceRule
from spillway.levers.quality.sources import (
    NumbersBefore,
    add_silent_sources,
    last_number_key,
    source_counts,
    source_counts_sql,
    tally_sources,
)
from spillway.levers.quality.sql_text import (
    PlainAggregate,
    names_in,
    plain_aggregate,
    reads_everything,
    relations_in,
)
from spillway.levers.windows import Inexact, InputLoss, Portion, SqlDecision, SqlInput, SqlQuery, Window

OURS = ("window", "batch_date", "window_start", "window_end", "result_step", "row", "sic", "coverage")
"""Columns of an answer that the system writes."""
MOST_NUMBERS = 50_000_000
WEIGHT = "weight"
"""The column with the row weight: the number of rows that a row represents."""
_PARTS = 1_000_000
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class QueryDecision(SqlDecision):
    """The windows of a query, each with its share of the capacity."""

    query: str
    inputs: tuple[str, ...]
    settings: QualitySettings
    shares: Mapping[int, WindowShare]
    columns: Mapping[str, tuple[str, ...]]
    ranges: Ranges = field(default_factory=dict)
    """The range of values of each column of the first input."""

    numbers_before: NumbersBefore = field(default_factory=NumbersBefore)
    losses: Mapping[int, Mapping[str, InputLoss]] = field(default_factory=dict)
    """The rows that were produced and cannot be read, by window and input."""

    @property
    def query_fingerprint(self) -> str:
        said = self.settings
        limits = (said.most_rows, said.most_seconds)
        asked = (self.inputs, self.statements, *limits, said.numbered, said.bounds, *said.sources)
        return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]

    def queries(self, window: Window, inexact: Inexact) -> Sequence[SqlQuery]:
        share = self.shares[window.window]
        if not share.kept:
            return ()
        if self._is_scaled(window, inexact):
            assert self.aggregate is not None
            sampled = self._input_loss(window) is not None
            found = [
                self._partial_aggregates_query(self.aggregate, share.kept, self._inexact(inexact), sampled)
            ]
        else:
            found = [self.result_query(share.kept, result) for result in self.result_steps]
        if self._is_doubtful(inexact):
            found.append(self._doubtful_rows_query(share.kept, self._inexact(inexact)))
        for one in self.settings.numbered:
            found.append(self._numbers_query(one, share.offered))
        return [
            *found,
            *(self._source_query(name, rule, share.offered) for name, rule in self._inputs_with_sources),
        ]

    @property
    def _inputs_with_sources(self) -> list[tuple[str, SourceRule]]:
        """Return the inputs whose sources are identified by an attribute."""
        rules = ((name, self.settings.source_rule(name)) for name in self.sources)
        return [(name, rule) for name, rule in rules if rule is not None and rule.by is not None]

    def check_sources(self) -> None:
        """Refuse a rule for sources whose `by` is not an attribute of the input."""
        for name, rule in self._inputs_with_sources:
            if rule.by not in self.columns[name]:
                raise InvalidValue(
                    "sources",
                    f"be identified by an attribute of {name}",
                    rule.by,
                    "name one of its keys",
                    self.query,
                )

    def _source_query(self, name: str, rule: SourceRule, offered: Sequence[Portion]) -> SqlQuery:
        """Return the SQL for the arrived tuples of every source of an input, in kept and shed portions.

        It reads only `by` and the row weight.
        """
        assert rule.by is not None
        columns = (rule.by, *({WEIGHT} & set(self.columns[name]) - {rule.by}))
        read = SqlInput(name, columns, tuple(one for one in offered if one.stream == name), True)
        return SqlQuery({name: read}, (("counted", source_counts_sql(name, rule, columns)),), _PARTS)

    def _input_loss(self, window: Window) -> InputLoss | None:
        """Return the dropped rows of a plain aggregate's input in the window; None if they do not change its answer."""
        found = self.losses.get(window.window, {}).get(self.sources[0])
        if found is None:
            return None
        share = self.shares[window.window]
        left_out = len(share.kept) < len(share.offered)
        return found if found.dropped_most or (found.recovered_rows and left_out) else None

    def _is_scaled(self, window: Window, inexact: Inexact) -> bool:
        """Return whether the answer is estimated: portions are left out, rows dropped, or values inexact."""
        if self.aggregate is None:
            return False
        share = self.shares[window.window]
        if self._input_loss(window) is not None:
            return True
        return len(share.kept) < len(share.offered) or bool(
            relevant_attributes(self.aggregate, self._inexact(inexact))
        )

    def _is_doubtful(self, inexact: Inexact) -> bool:
        return self.aggregate is not None and bool(
            deciding_attributes(self.aggregate, self._inexact(inexact))
        )

    def _inexact(self, inexact: Inexact) -> frozenset[str]:
        return frozenset(name.lower() for name in inexact.get(self.sources[0], ()))

    @property
    def statements(self) -> tuple[tuple[str, str], ...]:
        """Return the author's statements, each after those it reads."""
        return self.settings.ordered_steps(self.query)

    @property
    def aggregate(self) -> PlainAggregate | None:
        """Return the query as a plain aggregate of one input; None if it is not one, or `bounds` is false."""
        if len(self.statements) > 1 or len(self.sources) > 1 or not self.settings.bounds:
            return None
        found = plain_aggregate(self.statements[0][1])
        return found if found is not None and found.source.lower() == self.sources[0] else None

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the input streams, each once."""
        return tuple(dict.fromkeys(self.inputs))

    @property
    def result_steps(self) -> tuple[str, ...]:
        """Return the steps whose rows are results."""
        return self.settings.results(self.query)

    def result_query(self, kept: Sequence[Portion], result: str) -> SqlQuery:
        """Return the SQL for one result: the author's query over the kept portions."""
        said, steps = self.settings, dict(self.statements)
        needed, waiting = {result}, [result]
        while waiting:
            read = set(said.steps_read_by(steps[name := waiting.pop()], name)) - needed
            needed |= read
            waiting += sorted(read)
        asked = tuple((name, sql) for name, sql in self.statements if name in needed)
        reads = self._reads(kept)
        # the statement that answers is the last one
        ordered = (*(one for one in asked if one[0] != result), (result, steps[result]))
        named = frozenset().union(*(names_in(sql) for _, sql in asked))
        return SqlQuery(
            {name: read for name, read in reads.items() if name in named},
            ordered,
            said.most_rows,
            said.most_seconds,
        )

    def result_shares(self) -> dict[str, dict[str, float]]:
        """Return, by input and result, the share of the input's information content that arrives at the result."""
        reads = {
            name: [
                *(one for one in self.sources if one in names_in(sql)),
                *self.settings.steps_read_by(sql, name),
            ]
            for name, sql in self.statements
        }
        found = result_shares(self.sources, reads, self.result_steps)
        return {name: {to: float(share) for to, share in of.items()} for name, of in found.items()}

    def _reads(
        self,
        kept: Sequence[Portion],
        tagged: bool = False,
        bounds_of: frozenset[str] = frozenset(),
        sampled: bool = False,
    ) -> dict[str, SqlInput]:
        """Return the reads of each input: the columns that the statements name, and for `*` all attributes.

        `tagged`: each row has the index of its portion; `bounds_of`: attributes whose error bounds are read, too;
        `sampled`: the row weight is read, too.
        """
        names = frozenset().union(*(names_in(sql) for _, sql in self.statements))
        names |= {name + BOUND_SUFFIX for name in bounds_of} | ({WEIGHT} if sampled else set())
        everything = any(reads_everything(sql) for _, sql in self.statements)
        reads = {}
        for stream in self.sources:
            if stream not in names:
                raise InvalidValue(
                    "inputs",
                    "be read by its statements",
                    stream,
                    f"read it, or take it out of inputs{self._other_relations_note()}",
                    self.query,
                )
            known = self.columns[stream]
            columns = tuple(
                name for name in known if name.lower() in names or (everything and is_attribute(name))
            ) or ("seq",)
            portions = tuple(one for one in kept if one.stream == stream)
            reads[stream] = SqlInput(stream, columns, portions, tagged)
        return reads

    def _other_relations_note(self) -> str:
        """Return a note on relations in the statements that are neither inputs nor steps; empty if there are none."""
        read = frozenset().union(*(relations_in(sql) for _, sql in self.statements))
        beside = sorted(
            read - {name.lower() for name in (*self.sources, *(step for step, _ in self.statements))}
        )
        return f"; {', '.join(beside)} is read, and is no input" if beside else ""

    def _doubtful_rows_query(self, kept: Sequence[Portion], inexact: frozenset[str]) -> SqlQuery:
        """Return the SQL for the number of rows in which an inexact value decides whether or where they count."""
        assert self.aggregate is not None
        names = deciding_attributes(self.aggregate, inexact)
        sql = f"SELECT {inexact_rows_sql(names)} AS doubted FROM `{self.aggregate.source}`"
        return SqlQuery(self._reads(kept, bounds_of=names), (("doubted", sql),), 1)

    def _partial_aggregates_query(
        self, of: PlainAggregate, kept: Sequence[Portion], inexact: frozenset[str], sampled: bool
    ) -> SqlQuery:
        """Return the SQL for the partial aggregates of every portion and group."""
        reads = self._reads(kept, tagged=True, bounds_of=relevant_attributes(of, inexact), sampled=sampled)
        statement = partial_aggregates_sql(of, inexact, sampled and WEIGHT in reads[self.sources[0]].columns)
        return SqlQuery(reads, (("parts", statement),), _PARTS, self.settings.most_seconds)

    def _numbers_query(self, one: Numbered, offered: Sequence[Portion]) -> SqlQuery:
        """Return the SQL for the source's own numbers of all tuples that arrived, shed ones included."""
        columns = tuple(dict.fromkeys(["seq", one.attribute, *([one.by] if one.by else [])]))
        read = SqlInput(one.input, columns, tuple(p for p in offered if p.stream == one.input))
        # the statement has no name of the contract, because an engine may reserve such a word
        return SqlQuery(
            {"numbers": read}, (("numbered", "SELECT * FROM numbers ORDER BY seq"),), MOST_NUMBERS
        )

    def build_results(
        self,
        window: Window,
        answers: Sequence[pa.Table],
        counts: dict[str, int],
        inexact: Inexact,
        this_run: Callable[[], Mapping[int, Mapping[str, int]]],
    ) -> pa.Table | None:
        share = self.shares[window.window]
        if not answers:
            return None
        before = (
            self.numbers_before.of(window.window, this_run()) if self.settings.needs_previous_window else {}
        )
        mine, rest = list(answers[: len(self.result_steps)]), list(answers[len(self.result_steps) :])
        found = mine[0]
        doubted = self._is_doubtful(inexact) and bool(rest.pop(0)["doubted"][0].as_py())
        numbered = self.settings.numbered
        by_number: dict[str, dict[str, int]] = {}
        for one, numbers in zip(numbered, rest, strict=False):
            each, last = fates_by_source(numbers, one, before)
            fates = sum(each.values(), start=SequenceFates())
            counts[f"produced.{one.input}"], counts[f"lost.{one.input}"] = fates.produced, fates.lost
            rule = self.settings.source_rule(one.input)
            if rule is not None and rule.by is not None and rule.by == one.by:
                by_number[one.input] = {source: of.produced for source, of in each.items()}
            # a source without a tuple ends the window with the number it began with
            counts |= {
                place: number
                for place, number in before.items()
                if place.startswith(last_number_key(one, None))
            }
            counts |= last
        losses = self.losses.get(window.window, {})
        for (name, rule), counted in zip(self._inputs_with_sources, rest[len(numbered) :], strict=True):
            offered = [one for one in share.offered if one.stream == name]
            lost = losses.get(name, InputLoss()).lost_rows
            counts |= source_counts(counted, name, offered, share.kept, lost, by_number.get(name, {}))
            add_silent_sources(counts, name, rule, window_seconds(window), before)
        of = self.aggregate
        if of is not None and self._is_scaled(window, inexact):
            settings = self.settings
            found = estimate_answer(
                of, found, share, self.ranges, settings.assume_alike, doubted, self._input_loss(window)
            )
            if found.num_rows > settings.most_rows:
                raise InvalidValue(
                    "sql",
                    f"answer in at most {settings.most_rows:,} rows a window",
                    found.num_rows,
                    "group by less, or raise most_rows",
                    self.query,
                )
        elif of is not None:
            found = add_exact_bounds(found, of)
        mine[0] = found
        for one in mine:
            self.check_names(one.column_names)
        told = tally_window(self.settings, self.sources, share, losses, counts, window)
        found, sic = self._join_results(mine, told)
        rows = counts["rows"] = found.num_rows
        moment = pa.timestamp("us", "UTC")
        own = {
            "window_start": pa.array([window.from_time] * rows, moment),
            "window_end": pa.array([window.to_time] * rows, moment),
            "row": pa.array(np.arange(1, rows + 1)),
            "sic": pa.array(sic),
            "coverage": pa.array(np.full(rows, told.sic)),
        }
        for name, values in own.items():
            found = found.append_column(name, values)
        return found

    def _join_results(self, results: Sequence[pa.Table], told: WindowTally) -> tuple[pa.Table, np.ndarray]:
        """Return the rows of all results with their sic. A column that a result lacks is null in its rows."""
        if len(results) == 1:
            rows = results[0].num_rows
            return results[0], np.full(rows, told.sic / max(1, rows))
        by_input = told.by_input()
        shares = self.result_shares()
        sic, named = [], []
        for result, found in zip(self.result_steps, results, strict=True):
            carried = sum(shares[name][result] * part for name, part in by_input.items())
            sic.append(np.full(found.num_rows, carried / max(1, found.num_rows)))
            named.append(found.append_column("result_step", pa.array([result] * found.num_rows, pa.string())))
        try:
            whole = pa.concat_tables(named, promote_options="permissive")
        except pa.ArrowException as problem:
            raise InvalidValue(
                "steps",
                "have the same type for a column in all results",
                problem,
                "give one of them another name with AS",
                self.query,
            ) from problem
        return whole, np.concatenate(sic)

    def check_names(self, found: Sequence[str]) -> None:
        """Refuse an answer whose column names a table cannot have."""
        names = [name.lower() for name in found]
        for name in found:
            if not _NAME.match(name):
                raise InvalidValue(
                    "sql",
                    "name every column of its answer in letters, digits and _, the same by every engine",
                    name,
                    "give it a name with AS",
                    self.query,
                )
        for name in names:
            if name in OURS or names.count(name) > 1:
                what = "belong to the system" if name in OURS else "stand once in an answer"
                starred = any(reads_everything(sql) for _, sql in self.statements)
                also = (
                    "; name its columns instead of *, which is the lake's own too where they are named"
                    if starred
                    else ""
                )
                raise InvalidValue(
                    "sql",
                    f"name its columns so that none is {', '.join(OURS)} (these {what}) or stands twice",
                    name,
                    f"give it another name with AS{also}",
                    self.query,
                )


def fates_by_source(
    numbers: pa.Table, of: Numbered, before: Mapping[str, int]
) -> tuple[dict[str, SequenceFates], dict[str, int]]:
    """Return the tuples of every source of an input, kept and lost, and the last number of each source."""
    kind = numbers.schema.field(of.attribute).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InvalidValue(
            "numbered", "be an attribute of whole numbers", of.attribute, "name the one that counts", of.input
        )
    number = numbers[of.attribute].to_pylist()
    who = numbers[of.by].to_pylist() if of.by else [None] * len(number)
    by: dict[object, list[int]] = {}
    for source, one in zip(who, number, strict=True):
        if one is not None and math.isfinite(one):
            by.setdefault(source, []).append(int(one))
    fates: dict[str, SequenceFates] = {}
    last: dict[str, int] = {}
    for source, own in by.items():
        place = last_number_key(of, source)
        fates["" if source is None else str(source)] = sequence_fates(np.array(own), before.get(place))
        last[place] = last_number(np.array(own))
    return fates, last


def window_seconds(window: Window) -> float:
    """Return the length of a window in seconds."""
    return (window.to_time - window.from_time).total_seconds()


def tally_window(
    settings: QualitySettings,
    sources: Sequence[str],
    share: WindowShare,
    losses: Mapping[str, InputLoss],
    counts: Mapping[str, int],
    window: Window,
) -> WindowTally:
    """Return the produced and kept tuples of every source in the window."""
    return tally_sources(settings, sources, share.offered, share.kept, losses, counts, window_seconds(window))

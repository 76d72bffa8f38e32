"""Refuse the files of a batch that cannot be used, each with a reason; the rest of the batch continues.

A file is refused in three cases: no record of it can be used, its parser failed, or both the batch and the file have
more bad records than the contract allows (`bad_records`). What remains of the batch is then within the limit. A refused
file adds no tuple to `raw`. A file with too many bad records has one row in `rejected`, for the whole file, with the
number of bad records and the first of them. A corrected file (other bytes) is an ordinary delivery. After its contract
is corrected, `spillway replay` takes the file in.

Tasks count the results of the files that they parse. The counts of the slices of a large file are added up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spillway.batch import EMPTY, FILE_INGESTED, MISSED, REFUSED, REPLAYED, Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.errors import escape_text
from spillway.records import sum_counts
from spillway.records.rejects import WHOLE_FILE


@dataclass(frozen=True)
class Exclusion:
    """A file that is excluded from the batch in every task that reads a slice of it; `status` and `reason` say why.

    `why`: field, rule, value and remedy of damage to the whole file. `rejected` stores them with the file's first
    bytes.
    """

    status: str
    reason: str
    why: tuple[str, str, str, str] | None = None


@dataclass(frozen=True)
class FileResult:
    """The result of one file: number of good records, and number of bad records by reason.

    `reason`: why the file is refused, or else its first defect.
    """

    file: LandingFile
    status: str = FILE_INGESTED
    good: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    whole: bool = False
    """Whether the defect concerns the whole file, and `rejected` has one row for it."""
    header: str | None = None

    @property
    def bad(self) -> int:
        return sum(self.reasons.values())

    def merged_with(self, other: FileResult) -> FileResult:
        """Return the sum of this result and that of another slice of the same file."""
        worst = next((s for s in (MISSED, REFUSED) if s in (self.status, other.status)), FILE_INGESTED)
        return replace(
            self,
            status=worst,
            good=self.good + other.good,
            reasons=sum_counts([self.reasons, other.reasons]),
            reason=self.reason or other.reason,
            whole=self.whole or other.whole,
            header=self.header or other.header,
        )


def results_by_file(fates: Iterable[FileResult]) -> list[FileResult]:
    """Return one result per file, in the order of the files."""
    found: dict[int, FileResult] = {}
    for one in fates:
        place = one.file.base_seq
        found[place] = found[place].merged_with(one) if place in found else one
    return list(found.values())


FILE_REFUSED = "file refused"
"""The ledger's reason for records that were lost with a refused file."""


def final_results(contract: StreamContract, fates: Sequence[FileResult]) -> list[FileResult]:
    """Return the final result of each file of a batch, after all of them are parsed."""
    limit = 0.0 if contract.bad_records.action == "fail" else contract.bad_records.max_share_pct
    files = [one for one in fates if one.file.status == FILE_INGESTED]
    too_many = _share(sum(one.good for one in files), sum(one.bad for one in files)) > limit
    found = [one for one in fates if one.file.status != FILE_INGESTED]
    for one in files:
        share = _share(one.good, one.bad)
        if one.status == FILE_INGESTED and not (one.good or one.bad):
            one = replace(one, status=EMPTY)
        elif one.status == FILE_INGESTED and too_many and share > limit and not one.whole:
            one = replace(one, status=REFUSED, reason=_why(contract, one, limit, share))
        elif one.status == FILE_INGESTED and not one.good:
            # `rejected` has its records one by one, or one row for the whole file
            reason = one.reason if one.whole else _why(contract, one, limit, share)
            one = replace(one, status=REFUSED, reason=reason, whole=True)
        found.append(one)
    return found


def _share(good: int, bad: int) -> float:
    return 100.0 * bad / max(1, good + bad)


def _why(contract: StreamContract, one: FileResult, limit: float, share: float) -> str:
    all_of_it = one.good + one.bad
    value = f"{share:.2f} % ({one.bad:,} of {all_of_it:,}); the first: {one.reason}"
    remedy = f"correct the file; or correct the contract (or its bad_records), then spillway replay {contract.stream}"
    rule = f"have at most {limit:g} % bad records" if one.good else "have a record that can be used"
    return f"{escape_text(one.file.name)}: `the file` must {rule}, got {value}; {remedy}"


def files_with_results(batch: Batch, fates: Sequence[FileResult]) -> tuple[LandingFile, ...]:
    """Return the batch's files with their results.

    If records could not be replayed, their entry becomes missed, so that they can be replayed again.
    """
    by_seq = {one.file.base_seq: one for one in fates}
    files = []
    for file in batch.files:
        one = by_seq.get(file.base_seq) if file.status in (FILE_INGESTED, REPLAYED) else None
        if one is not None and file.status == REPLAYED and one.status != FILE_INGESTED:
            file = replace(file, status=MISSED, reason=one.reason)
        elif one is not None and file.status == FILE_INGESTED:
            reason = one.reason if one.status in (REFUSED, MISSED) else file.reason
            file = replace(file, status=one.status, reason=reason, header=one.header)
        files.append(file)
    return tuple(files)


def whole_file_rows(files: Iterable[LandingFile], batch: Batch) -> pa.Table:
    """Return rows of `rejected` that each represent one refused file."""
    rows = defaultdict(list)
    for file in files:
        rule, value, remedy = _parse_sentence(file.reason or "")
        for name, found in (
            ("file", file.name), ("line", WHOLE_FILE), ("field", "the file"), ("rule", rule), ("value", value),
            ("remedy", remedy), ("reason", file.reason), ("batch", batch.batch), ("batch_date", batch.batch_date),
        ):  # fmt: skip
            rows[name].append(found)
    return pa.table(dict(rows))


def _parse_sentence(sentence: str) -> tuple[str, str, str]:
    """Return rule, value and remedy of a problem's sentence."""
    told, _, remedy = sentence.rpartition("; ")
    rule, _, value = told.partition("` must ")[2].partition(", got ")
    return rule or sentence, value, remedy

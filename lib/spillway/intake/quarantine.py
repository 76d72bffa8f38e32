"""Quarantine: what of a batch cannot be used is refused by file, with a reason, and the rest of the batch goes on.

A file is refused when nothing of it could be used, when its parser failed, or when the batch has more bad records than
the contract allows (`bad_records`) and the file has too: what is left of the batch then is within what is allowed. A
refused file gives no tuple to `raw`; one with too many bad records stands in `rejected` once, as a whole, with how many
there were and the first of them. Mended (other bytes), it is a delivery like any other; after its contract was mended,
`spillway replay` takes it in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from spillway.batch import EMPTY, MISSED, REFUSED, REPLAYED, TAKEN, Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.errors import safely
from spillway.intake.fates import Fate
from spillway.records.rejects import WHOLE_FILE

FILE_REFUSED = "file refused"
"""What the ledger calls what went with a refused file."""


def judged(contract: StreamContract, fates: Sequence[Fate]) -> list[Fate]:
    """What becomes of a batch's files, now that all of them are parsed."""
    limit = 0.0 if contract.bad_records.action == "fail" else contract.bad_records.max_share_pct
    files = [one for one in fates if one.file.status == TAKEN]
    too_many = _share(sum(one.good for one in files), sum(one.bad for one in files)) > limit
    found = [one for one in fates if one.file.status != TAKEN]
    for one in files:
        share = _share(one.good, one.bad)
        if one.status == TAKEN and not (one.good or one.bad):
            one = replace(one, status=EMPTY)
        elif one.status == TAKEN and too_many and share > limit and not one.whole:
            one = replace(one, status=REFUSED, reason=_why(contract, one, limit, share))
        elif one.status == TAKEN and not one.good:
            # its records stand in `rejected` as they are, or the one that stands for the file does
            reason = one.reason if one.whole else _why(contract, one, limit, share)
            one = replace(one, status=REFUSED, reason=reason, whole=True)
        found.append(one)
    return found


def _share(good: int, bad: int) -> float:
    return 100.0 * bad / max(1, good + bad)


def _why(contract: StreamContract, one: Fate, limit: float, share: float) -> str:
    all_of_it = one.good + one.bad
    value = f"{share:.2f} % ({one.bad:,} of {all_of_it:,}); the first: {one.reason}"
    remedy = f"mend the file, or the contract (or its bad_records) and then spillway replay {contract.stream}"
    rule = f"have at most {limit:g} % bad records" if one.good else "have a record that can be used"
    return f"{safely(one.file.name)}: `the file` must {rule}, got {value}; {remedy}"


def settled_files(batch: Batch, fates: Sequence[Fate]) -> tuple[LandingFile, ...]:
    """The batch's files with what became of them; rows that could not be replayed after all may be once more."""
    by_seq = {one.file.base_seq: one for one in fates}
    files = []
    for file in batch.files:
        one = by_seq.get(file.base_seq) if file.status in (TAKEN, REPLAYED) else None
        if one is not None and file.status == REPLAYED and one.status != TAKEN:
            file = replace(file, status=MISSED, reason=one.reason)
        elif one is not None and file.status == TAKEN:
            reason = one.reason if one.status in (REFUSED, MISSED) else file.reason
            file = replace(file, status=one.status, reason=reason, header=one.header)
        files.append(file)
    return tuple(files)


def whole_files(files: Iterable[LandingFile], batch: Batch) -> pa.Table:
    """Rows of `rejected` that stand for whole files that were refused."""
    rows = defaultdict(list)
    for file in files:
        rule, value, remedy = _in_parts(file.reason or "")
        for name, found in (
            ("file", file.name), ("line", WHOLE_FILE), ("field", "the file"), ("rule", rule), ("value", value),
            ("remedy", remedy), ("reason", file.reason), ("batch", batch.batch), ("batch_date", batch.batch_date),
        ):  # fmt: skip
            rows[name].append(found)
    return pa.table(dict(rows))


def _in_parts(sentence: str) -> tuple[str, str, str]:
    """Rule, value and remedy of a problem's sentence."""
    told, _, remedy = sentence.rpartition("; ")
    rule, _, value = told.partition("` must ")[2].partition(", got ")
    return rule or sentence, value, remedy

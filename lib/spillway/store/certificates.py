"""The table `certificates`: of which revision of a batch it tells. It says nothing of another; no clock is asked."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.store.tables import Tables


def proven_revisions(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, int]:
    """By batch, the one revision that all its certificates measured, none of them with violations."""
    columns = ["batch", "revision", "violations"]
    found: dict[int, set[int | None]] = {}
    for row in tables.at("certificates").rows(columns, stream=stream, batch=list(batches)).to_pylist():
        # those of before revisions were counted are of a batch that was never saved since
        found.setdefault(row["batch"], set()).add(None if row["violations"] else row["revision"] or 0)
    return {
        batch: revision
        for batch, revisions in found.items()
        if len(revisions) == 1 and (revision := next(iter(revisions))) is not None
    }

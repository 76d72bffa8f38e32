"""Before and after at the same absolute capacities, on the smallest stream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evidence.attributes import same_bytes
from evidence.attributes.real_streams import real_stream
from evidence.attributes.same_bytes import EarlierFigures, measure, read_earlier_figures
from spillway.errors import InvalidValue

STREAM = "seattle_days"


@pytest.fixture(scope="module")
def before() -> EarlierFigures:
    return read_earlier_figures()[STREAM]


@pytest.fixture(scope="module")
def after(before: EarlierFigures) -> dict[str, float]:
    made = real_stream(STREAM)
    return measure((made.contract, made.files), before)


def test_figures_of_the_old_revision_cover_every_evidence_stream() -> None:
    found = read_earlier_figures()
    assert len(found) == 20
    assert all(one.offered_bytes for one in found.values())


@pytest.mark.long
def test_less_is_lost_at_the_bytes_that_the_old_revision_offered(
    before: EarlierFigures, after: dict[str, float]
) -> None:
    errors = [name for name in after if name.startswith("error_pct.")]
    assert len(errors) == len(same_bytes.SYNOPSES) * len(same_bytes.CAPACITIES_PCT)
    assert not [name for name in errors if after[name] > before.figures[name]]
    assert [name for name in errors if after[name] < before.figures[name]]


def test_classes_of_columns_and_fixed_bytes_add_up_to_all_bytes(
    before: EarlierFigures, after: dict[str, float]
) -> None:
    for one in (before.figures, after):
        columns = sum(one[f"bytes_per_row.{kind}"] for kind in same_bytes.CLASSES) * one["rows"]
        footers = one["fixed_bytes_per_file.footer"] * one["files"]
        logs = one["fixed_bytes_per_batch.log_and_metadata"] * len(before.offered_bytes)
        assert columns + footers + logs == pytest.approx(one["offered_bytes"], abs=1)


def test_stream_with_other_rows_than_the_old_revision_had_is_refused(before: EarlierFigures) -> None:
    made = replace(real_stream(STREAM), rows=real_stream(STREAM).rows.slice(1))
    with pytest.raises(InvalidValue, match="rows that the old revision was measured on"):
        measure((made.contract, made.files), before)

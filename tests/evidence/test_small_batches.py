"""A day of deliveries every 15 minutes: sent without loss where its single file fits, and what each delivery costs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evidence.attributes.small_batches import (
    DEFAULT,
    DELIVERIES,
    EXCESS_BYTES,
    WHOLE_DAY,
    page_header_bytes,
    street,
)
from spillway.batch import DONE


@pytest.mark.long
@pytest.mark.parametrize("files", [6, pytest.param(DELIVERIES, marks=pytest.mark.long)])
def test_a_day_of_small_files_fits_where_its_single_file_does(tmp_path: Path, files: int) -> None:
    """The quota is the bytes of the day's single file plus 256, for batch numbers and gaps in `seq` between files.

    The batches wait for a day (`until_seconds: 86400`), and are one file.
    """
    single = street(tmp_path / "single", None)
    single.day_at_once()
    quarters = street(tmp_path / "quarters", WHOLE_DAY)
    quarters.capacity = f"{single.crossing_bytes() + EXCESS_BYTES} B/day"
    done = quarters.day_in_files(files=files)
    assert [batch.status for batch in done] == [DONE] * files
    assert {batch.seconds_covered for batch in done} == {86_400 / files}
    assert len(quarters.tables.at("transmitted", "docks").files(batch_date=done[0].batch_date)) == 1
    assert quarters.lost_pct() == 0.0
    assert quarters.crossing_bytes() <= single.crossing_bytes() + EXCESS_BYTES


def test_a_delivery_costs_at_most_600_fixed_bytes_by_default(tmp_path: Path) -> None:
    """Send ten deliveries as two groups of five; the whole day has groups of the same size."""
    quarters = street(tmp_path, DEFAULT)
    assert len(quarters.day_in_files(10)) == 10
    assert quarters.fixed_bytes() / 10 <= 600
    assert quarters.lost_pct() == 0.0


def test_a_batch_that_is_sent_alone_costs_at_most_2_kb(tmp_path: Path) -> None:
    alone = street(tmp_path, None)
    assert len(alone.day_in_files(2)) == 2
    assert round(alone.fixed_bytes() / 2 / 1000, 1) <= 2.0


def test_page_headers_are_counted_as_they_lie_in_the_file(tmp_path: Path) -> None:
    """A column chunk consists of pages, and a page of its header and its data."""
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1, 2, 3]}), path, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    # 3 int64, and 6 bytes of definition levels: their length in 4 bytes and one run
    assert page_header_bytes(path) == column.total_compressed_size - 3 * 8 - 6

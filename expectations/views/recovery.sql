-- The result of recovery and the expected one, by batch. Raw is the truth. After raw is retired, the transmitted rows are,
-- if no row was recovered from another place.
SELECT stream, batch, batch_date, coalesce(r.row_count, 0) AS row_count, r.null_columns, r.null_keys, r.checksum,
  coalesce(t.row_count, 0) AS transmitted_rows, coalesce(b.lost, 0) AS lost,
  coalesce(a.row_count, b.ingested, t.row_count) - coalesce(b.lost, 0) AS expected_rows,
  CASE WHEN a.row_count IS NOT NULL THEN a.null_keys
    WHEN r.row_count = t.row_count THEN t.null_keys END AS expected_null_keys,
  CASE WHEN a.row_count IS NULL AND r.row_count = t.row_count THEN t.checksum
    WHEN coalesce(b.lost, 0) = 0 THEN a.checksum END AS expected_checksum
FROM {recovered} r FULL JOIN {transmitted} t USING (stream, batch, batch_date)
  FULL JOIN {raw} a USING (stream, batch, batch_date) LEFT JOIN {batch_totals} b USING (stream, batch)

-- The rate at which a batch is sent. Batches that share a file have one rate.
SELECT b.stream, b.batch,
  coalesce(sum(t.sent_bytes) OVER file * 8 / 1000 / nullif(sum(b.seconds_covered) OVER file, 0), 0) AS sent_kbps
FROM {batches} b LEFT JOIN {batch_totals} t USING (stream, batch)
WINDOW file AS (PARTITION BY b.stream, b.batch_date, coalesce(b.sent_with, -b.batch))

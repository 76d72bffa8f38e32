-- The rows of a batch from intake to its last stage, by the ledger. Rows dropped at intake do not count as lost.
SELECT subject AS stream, batch, arg_min(kept, ordinal) AS ingested, arg_max(kept, ordinal) AS kept,
  arg_max(stage, ordinal) AS last_stage, arg_max(bytes_kept, ordinal) AS sent_bytes, max(shortfall) AS shortfall,
  sum(lost) - arg_min(lost, ordinal) AS lost
FROM {ledger}
WHERE scope = 'stream' AND unit = 'rows' AND dimension_kind = 'total' AND ordinal >= 0
GROUP BY stream, batch

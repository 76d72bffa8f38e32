-- The rows or values that a stage lost for good, with the reason of the most of them. Joins and queries report what
-- they left out with an interval or a coverage, in tables of their own.
SELECT subject AS stream, batch, batch_date, scope, stage, ordinal, unit,
  max(lost) FILTER (dimension_kind = 'total') AS lost,
  coalesce(arg_max(nullif(reason, ''), lost), 'no reason is on record') AS why_lost
FROM {ledger}
WHERE scope NOT IN ('join', 'query')
GROUP BY ALL
HAVING max(lost) FILTER (dimension_kind = 'total') <> 0

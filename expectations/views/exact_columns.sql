-- The checksums in raw of the exact columns: no value of them was shed or rounded.
SELECT stream, batch, batch_date, name, checksum
FROM (SELECT stream, batch, batch_date, unnest(columns, recursive := true) FROM {raw}) columns
ANTI JOIN (SELECT stream, batch, attribute AS name FROM {certificates} WHERE shed_values + rounded_values > 0) changed
  USING (stream, batch, name)

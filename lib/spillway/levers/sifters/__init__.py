"""The lever `sifters` sheds the rows that are worth least to the queries that read a stream."""

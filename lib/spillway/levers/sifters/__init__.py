"""The lever `sifters`: rows are shed where they are worth least to the queries that read them."""

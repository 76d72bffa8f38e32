"""Store of Spillway: Delta tables (or tables in memory), their files, and the landing zone.

`Tables` opens a table as it is now. A step opens each table once and passes it on. A read takes a filter by column. A
write replaces the rows that the same batch wrote before. Every write is a compare-and-swap: if two writers write the
same rows, one succeeds and the other gets an error. No other package of Spillway uses a Delta library or a file system
directly.
"""

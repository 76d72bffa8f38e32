"""The door to what is held: Delta tables (or tables in memory), their files, and the landing zone.

`Tables` hands out a table as it is now; whoever works on a step opens each table once and hands it down. Tables are
read by what is asked for, written by replacing what a batch wrote before, and every write is a compare-and-swap: of
two writers of the same rows one wins and the other is told. Nothing else in Spillway names a Delta library or a file
system.
"""

"""The levers: each a package that sheds one kind of thing, gives it back, and accounts for it.

`protocol` says what a lever is; `spillway.registry` which there are. Levers decide and compute: they are handed the
rows, tables and engine they work with, and import neither `store` nor `engine`, nor one another.
"""

"""The levers. Each is a package that sheds one kind of data, recovers it, and accounts for it.

`protocol` defines what a lever is; `spillway.registry` lists the levers. Levers decide and compute. They receive the
rows, tables and engine that they work with. They do not import `store`, `engine` or each other.
"""

"""A toy lever with two inputs and windows: rows of equal site meet, every tenth comparison is left undone."""

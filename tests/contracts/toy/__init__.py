"""A lever that contracts can name and nothing runs. Not a test."""

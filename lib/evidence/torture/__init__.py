"""Test the product under kills, races and hostile input: `make torture`."""

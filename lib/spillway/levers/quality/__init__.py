"""Queries that say what every answer rests on (`sic`), and share a cluster fairly when it is too small for all."""

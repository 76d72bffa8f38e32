"""Sketches: summaries that answer queries about rows that are no longer stored or too many (based on Deng 2007)."""

"""Reproduce the tables and figures of each paper, next to our own figures."""

"""Runs the expectation suites over curated tables."""

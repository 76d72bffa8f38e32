"""Adaptive mechanisms against never adapting and against a simple rule, on every real stream."""

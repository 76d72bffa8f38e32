"""Spillway keeps data streams inside the capacity people have."""

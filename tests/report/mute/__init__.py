"""A lever that tells nothing of itself. Not a test."""

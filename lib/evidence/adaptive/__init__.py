"""Compare adaptive mechanisms with never adapting and with a simple rule, on every real stream."""

"""Query windows over streams: their inputs, runs, losses, and what-if."""

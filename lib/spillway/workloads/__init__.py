"""Compute joins and queries over windows of streams: inputs, runs, losses, what-if and advice."""

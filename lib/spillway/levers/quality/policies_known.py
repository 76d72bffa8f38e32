"""The names of the policies, for whoever reads contracts and computes nothing."""

POLICIES = ("fair", "random", "round_robin", "priority")
"""How it is chosen what is worked on when there is too much."""

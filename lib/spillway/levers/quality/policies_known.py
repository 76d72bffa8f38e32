"""The names of policies and cost models, for code that reads contracts but does not plan."""

ALGORITHM_1 = "algorithm_1"
"""The paper's own rule (Fiscato 2012, Algorithm 1)."""
POLICIES = ("fair", "random", "round_robin", "priority", ALGORITHM_1)
"""How it is chosen what is worked on when there is too much."""
COST_MODELS = ("affine", "mean")
"""Cost models, which predict the seconds of a query (`overload`)."""

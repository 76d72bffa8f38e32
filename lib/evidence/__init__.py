"""Each paper's tables and figures, ours beside theirs."""

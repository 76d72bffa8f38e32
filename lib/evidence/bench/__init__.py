"""Speed as ratios against a peer or the floor in the same run; never a pass or a failure."""

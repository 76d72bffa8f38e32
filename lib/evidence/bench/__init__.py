"""Measure speed as ratios to a peer or a lower limit in the same run; no ratio passes or fails."""

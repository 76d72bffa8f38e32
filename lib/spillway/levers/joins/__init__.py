"""Lever `joins`: join two streams over time windows within a budget of comparisons.

The method is that of Gedik, Wu, Yu and Liu (2007), "CPU Load Shedding for Binary Stream Joins". No row is dropped. Each
new row is compared only with the most productive part of the opposite window. Pairs that are missed are estimated
from a random sample, with a confidence interval.

- `controllers`: pure decision rules: the fraction r, the ranks of *basic windows*, the join direction, row types.
- `exploration`: what is remembered of earlier windows, how much to explore, and the drift test.
- `budget`: applies the controllers to one window; the result is an `Allocation`.
- `matching`, `estimates`, `operands`, `directions`: pure kernels: predicates, index, sampling, probing, counts, costs.
- `join_window`, `decision`, `lever`: the steps of one window, the tasks, and the lever itself.
"""

"""The lever `joins`: two streams are joined over time windows within a budget of comparisons (Gedik, Wu, Yu, Liu, "CPU
Load Shedding for Binary Stream Joins").

No row is dropped. Each new row is compared with the part of the opposite window that has proved worth it: how much is
`rate`, which *basic windows* first is `correlation`, which of the two windows and which types of rows is `direction`
and `utility` (with `type_worth`); how widely is looked to learn that is `exploring`, when it is forgotten `changing`.
What was not compared is estimated from what was drawn, with an interval (`missed`).

Kernels (pure): `predicates`, `operands`, `ring`, `index`, `looking`, `drawing`, `probe`, `chained`, `equals`,
`ordering`, `step_costs`, `facing`; controllers (pure): `rate`, `correlation`, `exploring`, `changing`, `direction`,
`type_worth`, `utility`, `missed`; the lever itself: `allotting`, `turn`, `calibrating`, `deciding`, `memory`, `lever`.
"""

"""Count bound violations in streams that were sent by the plan, with all measures shed, and with all rounded."""

from __future__ import annotations

from evidence.attributes.bound_violations import bound_violations
from evidence.attributes.lab import Lab


def bound_violations_every_treatment(lab: Lab, slug: str) -> dict[str, float]:
    """Return the two figures over three runs of a stream, each at the precisions that spend the most bytes."""
    total: dict[str, float] = {}
    for scheme in (None, dict.fromkeys(lab.measures, "shed"), dict.fromkeys(lab.measures, "round")):
        lab.run(scheme)
        for name, count in bound_violations(lab.lake, lab.stream, slug).items():
            total[name] = total.get(name, 0.0) + count
    return total

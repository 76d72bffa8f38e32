"""What must never be given back as something else, however a stream was sent: by the plan, all shed, all rounded."""

from __future__ import annotations

from evidence.attributes.bounds_kept import bound_violations
from evidence.attributes.lab import Lab


def bound_violations_every_treatment(lab: Lab, slug: str) -> dict[str, float]:
    """The two figures over three runs of a stream, each at the precisions that spend most."""
    total: dict[str, float] = {}
    for scheme in (None, dict.fromkeys(lab.measures, "shed"), dict.fromkeys(lab.measures, "round")):
        lab.run(scheme)
        for name, count in bound_violations(lab.lake, lab.stream, slug).items():
            total[name] = total.get(name, 0.0) + count
    return total

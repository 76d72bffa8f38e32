"""What a contract's sketches must keep beside each other, and beside the attributes they summarise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spillway.contracts.sections import Sketch
from spillway.contracts.shapes import Broken, Record, Report, plain
from spillway.errors import Refused
from spillway.sketches.kinds import SKETCH_KINDS


def sketch_problems(sketches: Sequence[Sketch], types: Mapping[str, str], stream: str) -> Iterator[Broken]:
    """Where two are the same, or one cannot be built; `types` by attribute.

    >>> [field for field, *_ in sketch_problems([Sketch(kind="distinct", attributes=("a",))] * 2, {"a": "string"}, "s")]
    ['sketches[1]']
    """
    if not sketches:
        return
    # compiled kernels take a moment to import, and few contracts need them
    from spillway.sketches.specification import SketchSpec

    asked: dict[tuple[str, tuple[str, ...]], int] = {}
    for i, sketch in enumerate(sketches):
        first = asked.setdefault((sketch.kind, tuple(sketch.attributes)), i)
        if first != i:
            rule = f"be the only {sketch.kind} of these attributes (see sketches[{first}])"
            remedy = "questions name a sketch by its kind and attributes: keep one of them"
            yield f"sketches[{i}]", rule, "+".join(map(str, sketch.attributes)), remedy
        alone = Report("")
        Record(Sketch).read(plain(sketch), "", alone)
        # what breaks a rule of its own is not built: it might be of any size
        known = sketch.kind in SKETCH_KINDS and all(name in types for name in sketch.attributes)
        if known and not alone.problems:
            try:
                SketchSpec.from_contract(sketch, types, stream)
            except Refused as problem:
                yield f"sketches[{i}]", "be one that can be built", sketch.kind, str(problem)
            except (TypeError, ValueError):
                # a field that is not even of its type has been told by its own rule
                continue

"""What became of files, told by the tasks that read them: counts by file, added up over the pieces of a large one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spillway.batch import MISSED, REFUSED, TAKEN, LandingFile
from spillway.records import counted_together


@dataclass(frozen=True)
class Dropped:
    """A file of which nothing is taken, whoever reads of it: `status` and the sentence that says why.

    `why`: field, rule, value and remedy of damage that concerns the whole file; it stands in `rejected` with the file's
    first bytes.
    """

    status: str
    reason: str
    why: tuple[str, str, str, str] | None = None


@dataclass(frozen=True)
class Fate:
    """One file: how many records are good, and by reason how many are not; `reason` is why, or the first defect."""

    file: LandingFile
    status: str = TAKEN
    good: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    whole: bool = False
    """Whether the defect is the file's, and stands in `rejected` as such."""
    header: str | None = None

    @property
    def bad(self) -> int:
        return sum(self.reasons.values())

    def with_more(self, other: Fate) -> Fate:
        """With what another piece of the file came to."""
        worst = next((s for s in (MISSED, REFUSED) if s in (self.status, other.status)), TAKEN)
        return replace(
            self,
            status=worst,
            good=self.good + other.good,
            reasons=counted_together([self.reasons, other.reasons]),
            reason=self.reason or other.reason,
            whole=self.whole or other.whole,
            header=self.header or other.header,
        )


def by_file(fates: Iterable[Fate]) -> list[Fate]:
    """One for each file, in order."""
    found: dict[int, Fate] = {}
    for one in fates:
        place = one.file.base_seq
        found[place] = found[place].with_more(one) if place in found else one
    return list(found.values())

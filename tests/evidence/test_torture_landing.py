"""What lands is neither lost nor doubled, whatever happens to files while they are read: a few zones by seed."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.torture import landing
from spillway.intake import parse

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changed", ["refuse", "new_batch"])
def test_nothing_that_has_settled_is_lost_or_doubled(seed: int, changed: str) -> None:
    counts = landing.landing_torture(seed, 50, changed=changed)
    assert counts["landing_settled_tuples"] > 0
    assert counts["landing_refused_files"] > 0
    wrong = ("landing_lost_tuples", "landing_doubled_tuples", "landing_unbalanced")
    assert {name: counts[name] for name in wrong} == dict.fromkeys(wrong, 0)


def test_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parse._add_seq

    def halved(part: Any, *of: Any) -> Any:
        made = whole(part, *of)
        return made.slice(0, max(1, made.num_rows // 2))

    monkeypatch.setattr(parse, "_add_seq", halved)
    assert landing.landing_torture(1, 30)["landing_lost_tuples"] > 0

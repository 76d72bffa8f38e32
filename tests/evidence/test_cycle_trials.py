"""The streams whose sender is known are what they say, and the verdicts on them can all be told apart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from evidence import cycle_trials
from evidence.attributes.cycles import identifiers
from evidence.book import Book
from evidence.cycle_streams import FAMILIES, KnownStream
from evidence.cycle_trials import BY_KEYS, REFUSED, RIGHT, WRONG, one_to_one, run_trials, verdict
from spillway.levers.attributes.cycle.identifier import Cycle, CycleNotFound


@pytest.mark.parametrize("family", FAMILIES)
def test_every_stream_has_whole_tuples_and_tempting_properties(family: str) -> None:
    stream = FAMILIES[family](np.random.default_rng(3), "integer")
    lengths = {len(column) for column in stream.columns.values()}
    assert len(lengths) == 1
    assert min(lengths) > 500
    assert {*stream.truth, "at", "flag", "count", "minute"} <= stream.columns.keys()
    if stream.truth == ("key",):
        kinds = {
            (key, kind) for key, kind in zip(stream.columns["key"], stream.columns["site_type"], strict=True)
        }
        assert len(kinds) == len({key for key, _ in kinds}), "a type follows from its key"


@pytest.mark.long
def test_on_every_family_with_and_without_keys_nothing_wrong_is_taken_or_proposed() -> None:
    every = list(run_trials(range(50, 53)))
    assert {one.family for one in every} == set(FAMILIES)
    assert [f"{one.family}, {one.declared}" for one in every if one.verdicts[WRONG]] == []
    total: Counter[str] = sum((one.verdicts for one in every), Counter())
    assert min(total[name] for name in (RIGHT, BY_KEYS, REFUSED)) > 20, (
        "a search that always refuses is no search"
    )
    clean = [
        one
        for one in every
        if one.family in ("clean", "5 % missing", "members come and go", "site and sensor")
    ]
    assert all(one.verdicts == {RIGHT: 3} for one in clean)
    keyed = [one for one in every if one.declared != "none"]
    assert sum(one.verdicts[REFUSED] for one in keyed) == 0, "a stream with a key is never left untrained"


def answered(
    monkeypatch: pytest.MonkeyPatch, *attributes: str, form: str = "robust", keys: tuple[str, ...] = ()
) -> str:
    stream = FAMILIES["clean"](np.random.default_rng(0), "text")
    cycle = Cycle(attributes, 3, 3, {}, form, 1.0, ())
    monkeypatch.setattr(cycle_trials, "find_cycle", lambda *_, **__: cycle)
    return verdict(stream, keys)


def test_a_property_of_the_key_is_wrong_and_so_are_other_keys_than_the_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert answered(monkeypatch, "key") == RIGHT
    assert answered(monkeypatch, "site_type") == WRONG
    assert answered(monkeypatch, "key", "flag") == WRONG
    assert answered(monkeypatch, "key", form="by keys", keys=("key",)) == BY_KEYS
    assert answered(monkeypatch, "zone", form="by keys", keys=("key",)) == WRONG
    assert answered(monkeypatch, "key", form="by keys") == WRONG, "no key was declared"


@pytest.mark.parametrize(
    ("named", "keys", "expected"),
    [(("key",), (), REFUSED), ((), (), REFUSED), (("site_type",), (), WRONG), (("key",), ("key",), WRONG)],
)
def test_an_error_is_a_refusal_where_it_names_the_key_and_none_was_declared(
    monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...], keys: tuple[str, ...], expected: str
) -> None:
    def refused(*_: object, **__: object) -> Cycle:
        raise CycleNotFound(named, 0.1, 0.8, "does not follow one order")

    monkeypatch.setattr(cycle_trials, "find_cycle", refused)
    assert verdict(FAMILIES["clean"](np.random.default_rng(0), "text"), keys) == expected


def test_one_to_one_is_as_good_as_the_key_itself() -> None:
    columns = {"key": np.arange(6) % 3, "serial": np.arange(6) % 3 + 7, "half": np.arange(6) % 2}
    stream = KnownStream(columns, ("key",))
    assert one_to_one(stream, ("serial",))
    assert not one_to_one(stream, ("half",))
    assert not one_to_one(stream, ("key", "half"))


def test_the_figures_count_what_was_tried() -> None:
    found = identifiers(Book(), 1)
    assert found["attributes.cid_streams_tried"] == 2 * len(FAMILIES) + 2
    parts = [found[f"attributes.cid_{name}"] for name in ("right", "by_keys", "refused", "wrong")]
    assert sum(parts) == found["attributes.cid_streams_tried"]
    assert found["attributes.cid_wrong"] == 0

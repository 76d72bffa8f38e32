"""A lake in memory, and a stream tried on it: rivals decide, the product's steps do the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from evidence.attributes.generated import Source
from evidence.attributes.lab import Lab, training_and_later
from evidence.attributes.nine_streams import train_and_shed
from evidence.attributes.results import read_result
from spillway.batch import DONE
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.rounding import parquet_bytes
from spillway.parquet import compressed_widths
from spillway.store import blobs

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product

NAMES = ("Router", "Current Index", "Response Time", "Packet Loss", "Minimum Delay")
ALL = ("Current_Index", "Response_Time", "Packet_Loss", "Minimum_Delay")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    # at this share rounding is not enough: attributes are shed too
    made = train_and_shed(Source("b.net", "internet", NAMES, 24), cycles=60, seed=4, share=0.5)
    yield made
    made.lake.forget()


def test_the_plan_is_what_the_products_own_steps_made_of_the_stream(lab: Lab) -> None:
    assert lab.plan.shed
    assert lab.plan.violations == 0
    assert lab.kbps(lab.plan.wire_bytes) <= lab.capacity_kbps
    assert {batch.status for batch in lab.lake.batches("b_net")} <= {DONE, "planned"}


def test_shed_again_with_nothing_changed_it_is_the_plan_again(lab: Lab) -> None:
    assert lab.run() == lab.plan


@pytest.mark.parametrize("ways", [{}, {ALL[1]: "shed"}, {ALL[0]: "round", ALL[2]: "shed"}], ids=len)
def test_a_given_scheme_is_applied_to_every_tuple_and_to_nothing_else(
    lab: Lab, ways: Mapping[str, str]
) -> None:
    found = lab.run(ways)
    assert set(found.certificates) == set(ways)
    for name, one in found.certificates.items():
        counted = one.shed_values if ways[name] == "shed" else one.rounded_values
        assert counted == one.values == lab.rows.num_rows
    assert found.violations == 0


def test_a_scheme_that_is_far_too_much_for_the_channel_stays_as_it_was_given(lab: Lab) -> None:
    found = lab.run({})
    assert lab.kbps(found.wire_bytes) > lab.capacity_kbps
    assert found.sent_bytes == found.raw_bytes


@pytest.mark.parametrize(
    "ways",
    [
        {ALL[1]: "shed"},
        dict.fromkeys(ALL, "shed"),
        {ALL[3]: "round", ALL[2]: "shed"},
        {ALL[0]: "shed", ALL[1]: "shed", ALL[3]: "round"},
    ],
    ids=["one", "all", "mixed", "most"],
)
def test_a_scheme_weighed_from_parts_of_other_runs_is_the_scheme_run_as_a_whole(
    lab: Lab, ways: Mapping[str, str]
) -> None:
    # what an attribute takes is first measured in schemes that differ in what it does not rest on
    for name in ALL:
        lab.weigh({name: ways.get(name, "keep")})
    added, whole = lab.weigh(ways), lab.run(ways)
    assert added.wire_bytes == whole.wire_bytes
    assert added.synopsis_bytes == sum(whole.synopsis_bytes.values())
    assert added == lab.cost(whole)


def test_a_scheme_is_run_when_one_of_its_parts_is_new_and_never_twice(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    monkeypatch.setattr(
        lab, "run", lambda scheme, models: [runs.append(scheme), Lab.run(lab, scheme, models)][1]
    )
    monkeypatch.setattr(lab, "_parts", {})
    monkeypatch.setattr(lab, "_runs", {})
    first = lab.weigh({ALL[0]: "shed", ALL[1]: "round"})
    assert lab.weigh({ALL[0]: "shed", ALL[1]: "round"}) == first
    assert runs == [{ALL[0]: "shed", ALL[1]: "round"}]
    lab.weigh({ALL[0]: "round"})
    assert len(runs) == 2


def test_the_papers_models_store_values_as_they_are(lab: Lab) -> None:
    everything = dict.fromkeys(ALL, "shed")
    paper = lab.run_everywhere(everything, lab.paper_models())
    assert paper.violations == 0
    assert sum(paper.synopsis_bytes.values()) > sum(lab.run_everywhere(everything).synopsis_bytes.values())
    # the trained models are in force again
    assert lab.run() == lab.plan


def test_watching_changes_nothing_of_the_plan(lab: Lab) -> None:
    watched, alone = lab.watched_plan(), lab.undrafted_plan()
    runs = [run for batch in lab.batches for run in watched.runs[batch.batch]]
    assert [replace(run, hits=-1) for run in runs] == [
        run for batch in lab.batches for run in alone.runs[batch.batch]
    ]
    assert len(watched.looks) == sum(run.windows for run in runs)
    assert sum(look.hit for look in watched.looks) == sum(run.hits for run in runs)
    assert sum(look.evaluated for look in watched.looks) == sum(run.evaluations for run in runs)


def test_what_no_table_holds_is_swept_and_nothing_else(lab: Lab) -> None:
    before = {one.path for one in blobs.list_files(lab.lake.settings.lake)}
    found = lab.run({ALL[1]: "shed"})
    blobs.write_bytes(f"{lab.lake.settings.lake}/raw/b_net/stray.parquet", b"")
    lab.lake.sweep()
    after = {one.path for one in blobs.list_files(lab.lake.settings.lake)}
    assert not any(path.endswith("stray.parquet") for path in after)
    assert {path for path in after if "/raw/" in path} == {path for path in before if "/raw/" in path}
    assert read_result(lab.lake, "b_net") == found


def test_a_lake_that_is_forgotten_leaves_nothing() -> None:
    made = train_and_shed(Source("c.net", "internet", ("Router", "Mean"), 9), cycles=30, seed=1)
    made.lake.forget()
    for root in (made.lake.settings.lake, made.lake.settings.landing):
        assert blobs.list_files(root) == []
    assert made.lake.batches("c_net") == []


def test_training_and_later_batches_together_are_the_whole(lab: Lab) -> None:
    parts = training_and_later(lab)
    assert set(parts) == {"training", "later"}
    assert [part.rows.num_rows for part in parts.values()] == [720, 720]
    assert parts["training"].rows["seq"][-1].as_py() == lab.trained_to_seq
    for ways in ({}, {ALL[1]: "shed"}, dict.fromkeys(ALL, "shed")):
        whole, mine = lab.run_everywhere(ways), [part.run_everywhere(ways) for part in parts.values()]
        assert whole.wire_bytes == sum(one.wire_bytes for one in mine)
        for name in ways:
            assert whole.synopsis_bytes[name] == sum(one.synopsis_bytes[name] for one in mine)
            assert whole.certificates[name].values == sum(one.certificates[name].values for one in mine)
            assert whole.certificates[name].stored_values == sum(
                one.certificates[name].stored_values for one in mine
            )
    assert sum(part.weigh(dict.fromkeys(ALL, "shed")).net_bytes for part in parts.values()) == (
        lab.weigh(dict.fromkeys(ALL, "shed")).net_bytes
    )


def test_what_a_part_lost_is_what_its_own_rows_lost(lab: Lab) -> None:
    found = training_and_later(lab)["later"].run({ALL[1]: "shed"})
    later = lab.batches[-1]
    given = np.asarray(
        lab.lake.rows("recovered", "b_net", later)[ALL[1]].to_numpy(zero_copy_only=False), float
    )
    truth = np.asarray(lab.lake.rows("raw", "b_net", later)[ALL[1]].to_numpy(zero_copy_only=False), float)
    known = truth != 0
    assert known.all()
    errors = 100 * np.abs(given - truth) / np.abs(truth)
    assert found.certificates[ALL[1]].mean_error_pct == pytest.approx(float(errors.mean()))


def test_a_column_is_as_wide_in_the_evidence_as_in_the_lake_and_as_training_weighs_it(lab: Lab) -> None:
    for batch in lab.batches:
        rows = lab.lake.rows("raw", "b_net", batch)
        written = lab.plan.by_batch[batch.batch].raw_bytes
        weighed = compressed_widths(rows)
        assert {name: weighed[name] for name in ("seq", *ALL)} == {
            name: written[name] for name in ("seq", *ALL)
        }
        for name in ALL:
            assert parquet_bytes(Column.from_arrow(rows[name])) == written[name]

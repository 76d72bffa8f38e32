"""One fault stays one fault: whatever breaks of one stream, at whichever step, the other one of its channel goes on.

`sites` is the one that breaks, `meters` shares its channel. Every fault is mended at the end, and then nothing is left
of it: the next run brings `sites` through as well.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway import registry
from spillway.batch import DONE, INGESTED
from spillway.contracts import load_contracts, load_usable
from spillway.engine import ProcessEngine
from spillway.errors import ConcurrentRun, ContractError, RunFailed, SpillwayError
from spillway.levers.protocol import CapacityGroup
from spillway.report.page import build_report
from spillway.report.status import status
from spillway.streams import sketch_builder
from spillway.streams.capacity import capacity_shares
from spillway.streams.faults import Faults
from spillway.streams.train import train_streams

ATTRIBUTES = SITES["levers"][0]
STEPS = ("train", "shed", "sketch", "validate")


@pytest.fixture(autouse=True)
def the_toy_has_its_line() -> Iterator[None]:
    with registry.extra_levers(failing="tests.levers.failing"):
        yield


def crashing(at: str) -> dict[str, Any]:
    """The contract of `sites`, behind a lever that crashes at this step."""
    return {**SITES, "levers": [{"lever": "failing", "at": at}, ATTRIBUTES]}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Both taken in, trained and shed once; a second batch of each has landed."""
    with registry.extra_levers(failing="tests.levers.failing"):
        world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("ready"), crashing("nowhere"), METERS)
        world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
        world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
        world.shed()
        world.train("sites", "meters")
        world.shed()
        world.validate()
        world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 130)))
        world.deliver("meters/2020-01-01/b.csv", csv_lines(meters(350, 90)))
        return world


def run(world: World, *steps: str) -> dict[str, str]:
    """These steps of a night, or all; what each that ended red said."""
    said = {}
    train = lambda: train_streams(  # noqa: E731
        world.tables, world.engine, world.contracts, list(world.contracts.streams), "r", world.said.append
    )
    for step, work in zip(STEPS, (train, world.shed, world.sketch, world.validate), strict=True):
        if steps and step not in steps:
            continue
        try:
            work()
        except SpillwayError as problem:
            said[step] = str(problem)
    return said


def statuses(world: World, stream: str) -> list[str]:
    return [batch.status for batch in world.batches(stream)]


def certified(world: World, stream: str) -> set[int]:
    return {row["batch"] for row in world.rows("certificates") if row["stream"] == stream}


@dataclass(frozen=True)
class Broken:
    """A fault: how it is brought about, and mended; the step that it shows at, and what is said then."""

    harm: Callable[[World], Any]
    mend: Callable[[World], Any]
    step: str
    said: str


def crash(at: str, step: str) -> Broken:
    return Broken(
        lambda world: world.contract_becomes(crashing(at), METERS),
        lambda world: world.contract_becomes(crashing("nowhere"), METERS),
        step,
        f"ZeroDivisionError: a crash while it should {at}",
    )


def spoil(find: Callable[[World], Path], content: bytes = b"nothing of a table") -> tuple[Any, Any]:
    """Overwrite a file, and put it back."""
    kept: list[tuple[Path, bytes]] = []

    def harm(world: World) -> None:
        path = find(world)
        kept.append((path, path.read_bytes()))
        path.write_bytes(content)

    def mend(world: World) -> None:
        path, whole = kept.pop()
        path.write_bytes(whole)

    return harm, mend


def contract_file(world: World) -> Path:
    return world.folder / "schemas" / "streams" / "sites.yaml"


def last_commit(table: str) -> Callable[[World], Path]:
    return lambda world: max(Path(world.at(table, "sites").path, "_delta_log").glob("*.json"))


def models(world: World, value: Callable[[str], str]) -> None:
    """Every value of what was learned of `sites`, changed."""
    held = world.at("models")
    rows = held.rows(stream="sites").to_pylist()
    held.replace([{**row, "value": value(row["value"])} for row in rows], stream="sites")


FAULTS = {
    "a lever crashes while it trains": crash("train", "train"),
    "a lever crashes while it offers": crash("offer", "shed"),
    "a lever crashes while it plans": crash("plan", "shed"),
    "a lever crashes in a task": crash("draft", "shed"),
    "a lever crashes while it accounts": crash("account", "shed"),
    "a lever crashes while it is published": crash("publish", "shed"),
    "a lever crashes while it recovers": crash("give back", "validate"),
    "a lever crashes while it certifies": crash("certify", "validate"),
    "a model that is no JSON": Broken(
        lambda world: models(world, lambda text: "{" + text),
        lambda world: models(world, lambda text: text.removeprefix("{")),
        "shed",
        "`value` must be JSON",
    ),
    "a log that cannot be read, of raw": Broken(
        *spoil(last_commit("raw")), "shed", "`_delta_log` must be a log that can be read"
    ),
    "a log that cannot be read, of transmitted": Broken(
        *spoil(last_commit("transmitted")), "shed", "`_delta_log` must be a log that can be read"
    ),
    "a log that cannot be read, of recovered": Broken(
        *spoil(last_commit("recovered")), "validate", "`_delta_log` must be a log that can be read"
    ),
}


@pytest.mark.parametrize(
    "fault",
    [one if at % 3 == 0 else pytest.param(one, marks=pytest.mark.long) for at, one in enumerate(FAULTS)],
)
def test_a_fault_of_one_stream_is_told_by_name_and_keeps_no_other_back(
    ready: World, tmp_path: Path, fault: str
) -> None:
    world, broken = ready.copy(tmp_path), FAULTS[fault]
    broken.harm(world)

    steps = STEPS[: STEPS.index(broken.step) + 1]

    said = run(world, *steps)

    if broken.step == "train":
        assert {r["version"] for r in world.rows("models") if r["stream"] == "meters"} == {1, 2}
    else:
        assert statuses(world, "meters") == [DONE, DONE]
    if broken.step == "validate":
        assert certified(world, "meters") == {1, 2}
    assert broken.said in said[broken.step]
    for sentences in said.values():
        for sentence in sentences.splitlines():
            assert "sites" in sentence
            assert ";" in sentence, "a remedy"
            assert "meters" not in sentence.partition(";")[0]
    broken.mend(world)
    assert run(world, *steps) == {}
    if broken.step == "train":
        assert {r["version"] for r in world.rows("models") if r["stream"] == "sites"} == {1, 2}
    else:
        assert statuses(world, "sites") == [DONE, DONE]
    if broken.step == "validate":
        assert certified(world, "sites") == {1, 2}
    assert all(row["violations"] == 0 for row in world.rows("certificates"))


def test_a_crash_names_stream_batch_and_remedy_and_leaves_its_stack_in_the_log(
    ready: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = ready.copy(tmp_path)
    world.contract_becomes(crashing("draft"), METERS)
    with caplog.at_level(logging.ERROR, "spillway"), pytest.raises(RunFailed) as caught:
        world.shed()
    (sentence,) = caught.value.sentences
    assert sentence.startswith(
        "sites, batch 2: `shed` must end without an unexpected error, got "
        "'ZeroDivisionError: a crash while it should draft'; see the traceback in the log"
    )
    # what was said, as its words depend on who else has set up logging in this process
    (logged,) = (record.exc_info for record in caplog.records if record.exc_info)
    assert ", in reach" in "".join(traceback.format_exception(logged[1])), "the stack of the task"
    assert f"not done: {sentence}" in world.said


def test_a_contract_that_does_not_parse_keeps_no_other_stream_back(ready: World, tmp_path: Path) -> None:
    world = ready.copy(tmp_path)
    path = contract_file(world)
    whole = path.read_text()
    path.write_text(whole + "mode: [\n")
    world.contracts = load_usable(world.folder / "schemas")

    said = run(world)

    assert set(said) == {"train", "shed", "validate"}
    (shortage,) = [one for one in status(world.tables.now()).shortages if one.kind == "contract"]
    assert (shortage.stream, shortage.wrong) == ("sites", True)
    assert build_report(world.tables.now(), tmp_path / "report.html").exists()
    assert all("streams/sites.yaml" in text and "`the file` must be YAML" in text for text in said.values())
    assert statuses(world, "meters") == [DONE, DONE]
    assert certified(world, "meters") == {1, 2}
    path.write_text(whole)
    world.contracts = load_contracts(world.folder / "schemas")
    assert run(world) == {}
    assert certified(world, "sites") == {1, 2}


def test_a_sketch_that_fails_keeps_not_even_its_own_stream_back_and_its_raw_is_held(
    ready: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ready.copy(tmp_path)
    sketched = {**crashing("nowhere"), "sketches": [{"attributes": ["site"], "kind": "count_min"}]}
    sketched["retain_raw"] = {"days": 30, "retire": True}
    world.contract_becomes(sketched, METERS)

    def crashes(*_: Any) -> Any:
        raise MemoryError("no room for a sketch")

    with monkeypatch.context() as patch:
        patch.setattr(sketch_builder, "build_sketch_rows", crashes)
        said = run(world)
    assert list(said) == ["sketch"]
    assert "sites: `sketch` must end" in said["sketch"]
    assert statuses(world, "sites") == statuses(world, "meters") == [DONE, DONE]
    assert world.at("raw", "sites").files() != [], "what is to be sketched is not retired"
    assert run(world) == {}
    assert world.at("raw", "sites").files() == []


def test_a_batch_without_a_rate_keeps_no_other_stream_back(tmp_path: Path) -> None:
    timeless = {**SITES, "rate": {"from": "event_time"}}
    world = World.begin(ProcessEngine(), tmp_path, timeless, METERS)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 1)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    world.shed()
    world.train("meters")
    world.contract_becomes({**timeless, "levers": []}, METERS)
    world.shed()
    assert any("sites: batch 1: its rate is not known: it waits" in said for said in world.said)
    assert statuses(world, "meters") == [DONE]
    assert statuses(world, "sites") == [INGESTED]


def test_a_stream_that_fails_has_the_place_of_what_it_last_offered(ready: World, tmp_path: Path) -> None:
    """Neither is its room given away, nor are others kept out."""
    world = ready.copy(tmp_path)
    now = world.tables.now()
    before = capacity_shares(now, CapacityGroup("narrow", world.contracts, now), {})
    for file in world.at("raw", "sites").files():
        Path(file.path).write_bytes(b"PAR1")
    harm, _ = spoil(last_commit("raw"))
    harm(world)
    now, faults = world.tables.now(), Faults()

    after = capacity_shares(now, CapacityGroup("narrow", world.contracts, now), {}, faults=faults)

    assert faults.streams == {"sites"}
    # what lies around the columns of a file of a few hundred rows is not on record to the byte
    assert after["meters"].own_kbps == pytest.approx(before["meters"].own_kbps, rel=0.2)
    contract_file(world).write_text("stream: sites\nchannel: narrow\nmode: [")
    broken = load_usable(world.folder / "schemas")
    assert broken.broken_streams("narrow") == ("sites",)
    beside = capacity_shares(now, CapacityGroup("narrow", broken, now), {})
    assert beside["meters"].own_kbps == after["meters"].own_kbps


@pytest.mark.parametrize(
    ("channel", "room"), [("narrow", {"narrow"}), ("wide", {"wide"}), ("", {"narrow", "wide"})]
)
def test_a_stream_whose_contract_names_no_channel_has_its_place_on_all(
    ready: World, tmp_path: Path, channel: str, room: set[str]
) -> None:
    world = ready.copy(tmp_path)
    world.contract_becomes(crashing("nowhere"), {**METERS, "channel": "wide"})
    line = f"channel: {channel}\n" if channel else ""
    contract_file(world).write_text(f"stream: sites\n{line}mode: [")
    broken = load_usable(world.folder / "schemas")
    assert {name for name in broken.channels if broken.broken_streams(name)} == room


def test_a_channel_that_is_broken_takes_its_own_streams_out_and_no_others(
    ready: World, tmp_path: Path
) -> None:
    world = ready.copy(tmp_path)
    world.contract_becomes(crashing("nowhere"), {**METERS, "channel": "wide"})
    path = world.folder / "schemas" / "channels.yaml"
    path.write_text("channels: {narrow: {capacity: -1 kbps}, wide: {capacity: 16 kbps}}")
    usable = load_usable(world.folder / "schemas")
    assert list(usable.streams) == ["meters"]
    assert {one.subject for one in usable.broken} == {"narrow", "sites"}
    path.write_text("channels: [")
    with pytest.raises(ContractError, match=r"channels\.yaml"):
        load_usable(world.folder / "schemas")


def test_faults_of_several_streams_are_told_one_sentence_each() -> None:
    said: list[str] = []
    faults = Faults(said.append)
    made = faults.run_each("halve", ["a", "b", "c"], lambda name: {"b": 2}[name])
    assert made == {"b": 2}
    with pytest.raises(RunFailed) as caught:
        faults.raise_all()
    assert [sentence.partition(":")[0] for sentence in caught.value.sentences] == ["a", "c"]
    assert len(said) == 2


def test_an_error_that_names_its_stream_is_raised_as_it_is() -> None:
    faults = Faults()
    faults.record("sites", "shed", SpillwayError("sites: `room` must be there, got none; make some"))
    with pytest.raises(SpillwayError, match=r"^sites: `room`") as caught:
        faults.raise_all()
    assert type(caught.value) is SpillwayError


def test_streams_in_which_another_run_was_quicker_are_told_from_those_that_failed() -> None:
    faults = Faults()
    faults.record("sites", "take in", ConcurrentRun("sites: another run has changed batch 4"))
    faults.record("meters", "take in", SpillwayError("meters: `room` must be there, got none; make some"))
    assert (faults.conflicting_streams, faults.streams) == ({"sites"}, {"sites", "meters"})


def test_what_a_task_far_away_raised_is_one_line() -> None:
    far = RuntimeError(
        "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n    1 / 0\nZeroDivisionError: division by zero\n\n\tat org.apache.spark...'
    )
    faults = Faults()
    faults.record("sites", "shed", far, [3])
    assert "got 'ZeroDivisionError: division by zero'" in faults.found[0].sentence

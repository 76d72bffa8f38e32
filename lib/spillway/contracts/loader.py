"""Load the contracts in `schemas/`, and report all problems of all files together.

`schemas/channels.yaml` has the channels. Each file of `schemas/streams/*.yaml` has the contract of one stream. Each
file of `schemas/joins/*.yaml` and `schemas/queries/*.yaml`, which are optional, has one join or query. All names of
streams, joins and queries differ. Files `*.expected.yaml` next to a contract are facts for tests, not contracts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from spillway.contracts.channel import Channel
from spillway.contracts.fields import BAD, Record, Report, Text, join_path, suggest
from spillway.contracts.levers import Subject
from spillway.contracts.stream import BrokenContract, Contracts, StreamContract
from spillway.contracts.timezone import UTC_NAME, ZoneName
from spillway.contracts.workload import Workload
from spillway.contracts.yaml import MOST_CHARACTERS, read_yaml
from spillway.errors import ContractError, Problem
from spillway.registry import LEVERS

_CHANNEL_NAME = Text(
    pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}\Z",
    means="a name of letters, digits, _ and -",
    remedy="write e.g. uplink",
)
_Subject = TypeVar("_Subject", bound=Subject)
_MOST_PARSED = 8192
_PARSED: dict[Any, tuple[Any, Mapping[str, int]]] = {}
"""Cache of the last contracts without problems, with the lines of their fields, by kind, text and known levers."""


def load_contracts(schemas_dir: str | Path) -> Contracts:
    """Return all contracts and channels, or raise a `ContractError` with all problems."""
    contracts, problems = _load(Path(schemas_dir))
    if problems:
        raise ContractError(problems)
    return contracts


def load_usable(schemas_dir: str | Path) -> Contracts:
    """Return the contracts and channels that are valid, and the others in `broken`. Nightly runs use this function.

    One invalid contract must not stop the streams of the others. If no channel is valid, or if the folder of the
    streams is missing, raise a `ContractError`.
    """
    contracts, problems = _load(Path(schemas_dir))
    told = [
        problem for one in contracts.broken for problem in one.problems
    ]  # not a set: a value may be a list, which is not hashable
    if not contracts.channels or any(problem not in told for problem in problems):
        raise ContractError(problems)
    return contracts


def find_channel_groups(schemas_dir: str | Path) -> list[str]:
    """Return the names of the channels whose streams are planned together. Invalid channels are left out.

    This reads `channels.yaml` only.
    """
    channels, *_ = _load_channels(Path(schemas_dir))
    return sorted({one.into or name for name, one in channels.items()})


def find_names(schemas_dir: str | Path, *kinds: str) -> list[str]:
    """Return the names of the contract files of these kinds (`streams`, `joins`, `queries`), valid or not.

    This opens no file.

    >>> find_names("schemas", "streams"), find_names("schemas", "joins", "queries")[:2]
    (['flights', 'network', 'stocks', 'weather'], ['lossy_polls', 'mean_response'])
    >>> find_names("no such folder", "streams")
    []
    """
    return sorted(path.stem for kind in kinds for path in _contract_files(Path(schemas_dir) / kind))


def zone_of(schemas_dir: str | Path, stream: str) -> str:
    """Return the time zone of a stream's contract, or UTC if it names none or no valid one.

    This reads no other file and checks no other field: a query needs only the time zone.
    """
    for path in _contract_files(Path(schemas_dir) / "streams"):
        if path.stem == stream:
            report = Report(f"streams/{path.name}")
            value = _read(path, report, "")
            zone = value.get("timezone", UTC_NAME) if isinstance(value, Mapping) else UTC_NAME
            return UTC_NAME if ZoneName().read(zone, "timezone", report) is BAD else str(zone)
    return UTC_NAME


def check(schemas_dir: str | Path) -> list[Problem]:
    """Return all problems of the contracts; empty if there are none."""
    return _load(Path(schemas_dir))[1]


def read_stream(value: Mapping[str, Any], where: str = "contract") -> StreamContract:
    """Return one stream contract from plain values. It is checked alone: its channel is not looked up."""
    return _read_alone(StreamContract, value, where)


def read_workload(value: Mapping[str, Any], where: str = "contract") -> Workload:
    """Return one join or query from plain values. It is checked alone: its streams are not looked up."""
    return _read_alone(Workload, value, where)


def read_channel(name: str, value: Mapping[str, Any], where: str = "channels") -> Channel:
    """Return one channel from plain values."""
    report = Report(where)
    channels = _read_channels({"channels": {name: value}}, report)
    if report.problems:
        raise ContractError(report.problems)
    return channels[name]


def _read_alone(of: type[_Subject], value: Mapping[str, Any], where: str) -> _Subject:
    report = Report(where)
    contract: _Subject = Record(of).read(value, "", report)
    if report.problems:
        raise ContractError(report.problems)
    return contract


def _load(schemas: Path) -> tuple[Contracts, list[Problem]]:
    channels, broken, known_channels, problems = _load_channels(schemas)

    files: dict[str, str] = {}

    def all_of(
        folder: str, of: type[_Subject], check: Callable[[_Subject, Report], None]
    ) -> dict[str, _Subject]:
        found: dict[str, _Subject] = {}
        for path in _contract_files(schemas / folder):
            report = Report(f"{folder}/{path.name}")
            text = _text_of(path, report, "")
            contract = BAD if text is BAD else _contract_in(of, text, report)
            if contract is not BAD:
                _check_name(contract, path, files, report)
                check(contract, report)
                if not report.problems:
                    found[contract.subject] = contract
                files.setdefault(contract.subject, report.where)
            problems.extend(report.problems)
            if report.problems:
                channel = _channel_named(path)
                broken.append(BrokenContract(folder, path.stem, tuple(report.problems), channel))
        return found

    landings = _LandingFolders()
    known_streams = [path.stem for path in _contract_files(schemas / "streams")]
    streams = all_of(
        "streams", StreamContract, lambda it, to: _check_stream(it, known_channels, landings, to)
    )
    joins = all_of("joins", Workload, lambda it, to: _check_inputs(it, known_streams, to))
    queries = all_of("queries", Workload, lambda it, to: _check_inputs(it, known_streams, to))
    if not (schemas / "streams").is_dir():
        remedy = "add it, one YAML file per stream, or set SPILLWAY_SCHEMAS"
        problems.append(Problem("streams", "the folder", "be there", str(schemas / "streams"), remedy))
    for name in [name for name, one in streams.items() if channels and one.channel not in channels]:
        one = streams.pop(name)
        lost = Problem(f"streams/{name}.yaml", "channel", "be usable", one.channel, "correct channels.yaml")
        broken.append(BrokenContract("streams", name, (lost,), one.channel))
    return Contracts(streams, channels, files, joins, queries, tuple(broken)), problems


def _load_channels(
    schemas: Path,
) -> tuple[dict[str, Channel], list[BrokenContract], list[str] | None, list[Problem]]:
    """Return the valid channels, the broken ones, the names of all channels, and all problems.

    The names are None if `channels.yaml` cannot be read.
    """
    channels: dict[str, Channel] = {}
    known: list[str] | None = None
    report = Report("channels.yaml")
    value = _read(schemas / "channels.yaml", report, "write channels: {NAME: {capacity: 120 kbps}} there")
    if value is not BAD:
        channels = _read_channels(value, report)
        if isinstance(value, Mapping) and isinstance(value.get("channels"), Mapping):
            known = [str(name) for name in value["channels"]]
    broken, usable = _usable_channels(channels, known or [], report.problems)
    return usable, broken, known, list(report.problems)


def _usable_channels(
    channels: Mapping[str, Channel], named: Sequence[str], problems: Sequence[Problem]
) -> tuple[list[BrokenContract], dict[str, Channel]]:
    """Split the channels into broken contracts and valid channels."""
    broken: list[BrokenContract] = []
    usable = dict(channels)
    for name in named:
        mine = tuple(one for one in problems if _is_below(one.field, f"channels.{name}"))
        if mine:
            usable.pop(name, None)
            broken.append(BrokenContract("channels", name, mine, name))
    for name in [name for name, one in usable.items() if one.into is not None and one.into not in usable]:
        del usable[name]
    return broken, usable


def _is_below(field: str, path: str) -> bool:
    return field == path or field.startswith((f"{path}.", f"{path}["))


def _channel_named(path: Path) -> str | None:
    """Return the channel that a contract names, also if the rest of the contract is not readable."""
    try:
        text = path.read_text("utf-8-sig", errors="replace")
    except OSError:
        return None
    found = re.search(r"^channel:[ \t]*['\"]?([A-Za-z][\w-]*)", text, re.MULTILINE)
    return found.group(1) if found else None


def _contract_files(folder: Path) -> list[Path]:
    files = [p for p in folder.glob("*.y*ml") if p.suffix in (".yaml", ".yml")] if folder.is_dir() else []
    return sorted(p for p in files if not p.stem.endswith(".expected") and not p.name.startswith("."))


def _check_name(contract: Subject, path: Path, files: Mapping[str, str], report: Report) -> None:
    field = "stream" if isinstance(contract, StreamContract) else "name"
    name = contract.subject
    if name in files:
        report.add(field, f"differ from that of {files[name]}", name, "rename one")
    elif name != path.stem and isinstance(name, str):
        remedy = f"write {field}: {path.stem}, or rename the file"
        report.add(field, "be the name of its file", name, remedy)


class _LandingFolders:
    """The landing folders of streams, and the folders above them."""

    def __init__(self) -> None:
        self._streams: dict[str, tuple[int, str]] = {}
        """The first stream that lands in a folder."""
        self._above: dict[str, tuple[int, str]] = {}
        """The first stream that lands in a folder or below it."""

    def add(self, folder: str, stream: str) -> None:
        found = len(self._streams), stream
        self._streams[folder] = found
        for above in _and_above(folder):
            self._above.setdefault(above, found)

    def stream_of(self, folder: str) -> str | None:
        """Return the first stream that lands in this folder, below it, or in one above it; None if there is none."""
        found = [self._streams[one] for one in _and_above(folder) if one in self._streams]
        found += [self._above[folder]] if folder in self._above else []
        return min(found)[1] if found else None


def _and_above(folder: str) -> Iterator[str]:
    """Yield a folder and the folders above it; each name ends with a slash.

    >>> list(_and_above("a/b/"))
    ['a/', 'a/b/']
    """
    for at, letter in enumerate(folder):
        if letter == "/":
            yield folder[: at + 1]


def _check_stream(
    contract: StreamContract, channels: list[str] | None, landings: _LandingFolders, report: Report
) -> None:
    _check_channel(contract, channels, report)
    path: object = contract.path
    if not isinstance(path, str):  # it could not be read, and the report has that problem
        return
    folder = "/".join(part for part in path.split("/") if part) + "/"
    folder = folder if not path.startswith("/") else "/" + folder
    other = landings.stream_of(folder)
    if other is not None:
        remedy = "give each stream a folder of its own: what lands there would be taken in twice"
        report.add("source.path", f"not overlap the landing folder of {other}", path, remedy)
        return
    landings.add(folder, contract.stream)


def _check_channel(contract: StreamContract, channels: list[str] | None, report: Report) -> None:
    # Without a readable channels.yaml there is nothing to compare with, and its own problem is listed.
    if channels is not None and isinstance(contract.channel, str) and contract.channel not in channels:
        remedy = suggest(contract.channel, channels)
        report.add("channel", "be a channel of channels.yaml", contract.channel, remedy)


def _check_inputs(contract: Workload, streams: list[str], report: Report) -> None:
    for i, name in enumerate(contract.inputs):
        if name not in streams:
            report.add(f"inputs[{i}]", "be a stream", name, suggest(name, streams))
    # if the list of levers could not be read, the report has that problem
    for i, entry in enumerate(contract.levers or ()):
        if hasattr(entry.settings, "input_rules"):
            for where, rule, value, remedy in entry.settings.input_rules(contract.inputs):
                report.add(join_path(f"levers[{i}]", where), rule, value, remedy)


def _contract_in(of: type[_Subject], text: str, report: Report) -> Any:
    """Return the contract that a text holds, or BAD; a text without problems is parsed once per process."""
    key = (of, text, tuple(LEVERS.items()))
    if key in _PARSED:
        contract, report.lines = _PARSED[key]
        return contract
    value = read_yaml(text, report)
    if value is None:
        remedy = "draft one (a stream's by spillway contracts new SAMPLE --output FILE), or remove the file"
        value = report.add("", "hold a contract", "nothing", remedy)
    contract = BAD if value is BAD else Record(of).read(value, "", report)
    if not report.problems:
        for oldest in list(_PARSED)[: max(0, len(_PARSED) + 1 - _MOST_PARSED)]:
            _PARSED.pop(oldest, None)
        _PARSED[key] = contract, report.lines
    return contract


def _read(path: Path, report: Report, remedy: str) -> Any:
    text = _text_of(path, report, remedy)
    return BAD if text is BAD else read_yaml(text, report)


def _text_of(path: Path, report: Report, remedy: str) -> Any:
    """Return the text of a file, or BAD."""
    try:
        with path.open("rb") as source:
            # a character has at most 4 bytes: a longer text is refused, and its rest is not read
            text = source.read(4 * MOST_CHARACTERS + 4)
        return text.decode("utf-8-sig")
    except FileNotFoundError:
        return report.add("", "be there", str(path), remedy)
    except OSError as error:
        return report.add("", "be readable", error.strerror, "check the permissions")
    except UnicodeDecodeError as error:
        return report.add("", "be UTF-8 text", f"byte {error.start}", "save it as UTF-8")


def _read_channels(value: object, report: Report) -> dict[str, Channel]:
    form = "write channels: {NAME: {capacity: 120 kbps}}"
    if not isinstance(value, Mapping):
        report.add("", "be a mapping", value, form)
        return {}
    for name in value:
        if name != "channels":
            report.add(str(name), "be a known field", value[name], suggest(name, ["channels"]))
    entries = value.get("channels")
    if not isinstance(entries, Mapping) or not entries:
        report.add("channels", "hold at least one channel", entries, form)
        return {}
    channels: dict[str, Channel] = {}
    for name, entry in entries.items():
        _CHANNEL_NAME.read(name, f"channels.{name}", report)
        channel = Record(Channel).read(entry, f"channels.{name}", report)
        if channel is not BAD:
            channels[str(name)] = dataclasses.replace(channel, name=str(name))
    for name, channel in channels.items():
        _check_trunk(name, channel, channels, report)
    return channels


def _check_trunk(name: str, channel: Channel, channels: Mapping[str, Channel], report: Report) -> None:
    if channel.into is None:
        return
    where = f"channels.{name}.into"
    if channel.into not in channels or channel.into == name:
        others = [other for other in channels if other != name]
        report.add(where, "be another channel", channel.into, suggest(channel.into, others))
    elif channels[channel.into].into is not None:
        report.add(
            where,
            "be a channel that goes into no other",
            channel.into,
            "two stages are planned, not three: let both go into the last one",
        )

"""Reads `schemas/` once and completely: every problem of every file, at once.

`schemas/channels.yaml` holds the channels, `schemas/streams/*.yaml` one contract each;
`*.expected.yaml` beside a contract are facts for tests, not contracts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.contracts.model import Channel, Contracts, StreamContract
from spillway.contracts.shapes import BAD, Record, Report, Text, suggest
from spillway.contracts.yaml_lines import read_yaml
from spillway.errors import ContractError, Problem

_CHANNEL_NAME = Text(
    pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$",
    means="a name of letters, digits, _ and -",
    remedy="write e.g. uplink",
)


def load_contracts(schemas_dir: str | Path) -> Contracts:
    """All contracts and channels, or a ContractError with everything that is wrong."""
    contracts, problems = _load(Path(schemas_dir))
    if problems:
        raise ContractError(problems)
    return contracts


def check(schemas_dir: str | Path) -> list[Problem]:
    """Everything that is wrong with the contracts; empty when nothing is."""
    return _load(Path(schemas_dir))[1]


def read_stream(value: Mapping[str, Any], where: str = "contract") -> StreamContract:
    """One contract from plain values, checked alone (its channel is not looked up)."""
    report = Report(where)
    contract = Record(StreamContract).read(value, "", report)
    if report.problems:
        raise ContractError(report.problems)
    return contract


def read_channel(name: str, value: Mapping[str, Any], where: str = "channels") -> Channel:
    """One channel from plain values."""
    report = Report(where)
    channels = _read_channels({"channels": {name: value}}, report)
    if report.problems:
        raise ContractError(report.problems)
    return channels[name]


def _load(schemas: Path) -> tuple[Contracts, list[Problem]]:
    problems: list[Problem] = []
    channels: dict[str, Channel] = {}
    known_channels: list[str] | None = None
    report = Report("channels.yaml")
    value = _read(schemas / "channels.yaml", report, "write channels: {NAME: {capacity: 120 kbps}} there")
    if value is not BAD:
        channels = _read_channels(value, report)
        if isinstance(value, Mapping) and isinstance(value.get("channels"), Mapping):
            known_channels = [str(name) for name in value["channels"]]
    problems += report.problems

    streams: dict[str, StreamContract] = {}
    files: dict[str, str] = {}
    for path in _contract_files(schemas / "streams"):
        report = Report(f"streams/{path.name}")
        value = _read(path, report, "")
        contract = BAD if value is BAD else Record(StreamContract).read(value, "", report)
        if contract is not BAD:
            _check_in_company(contract, path, known_channels, files, report)
            if not report.problems:
                streams[contract.stream] = contract
            files.setdefault(contract.stream, report.where)
        problems += report.problems
    if not (schemas / "streams").is_dir():
        remedy = "add it, one YAML file per stream, or set SPILLWAY_SCHEMAS"
        problems.append(Problem("streams", "the folder", "be there", str(schemas / "streams"), remedy))
    return Contracts(streams, channels, files), problems


def _contract_files(folder: Path) -> list[Path]:
    files = [p for p in folder.glob("*.y*ml") if p.suffix in (".yaml", ".yml")] if folder.is_dir() else []
    return sorted(p for p in files if not p.stem.endswith(".expected") and not p.name.startswith("."))


def _check_in_company(
    contract: StreamContract, path: Path, channels: list[str] | None, files: Mapping[str, str], report: Report
) -> None:
    if contract.stream in files:
        report.add("stream", f"differ from that of {files[contract.stream]}", contract.stream, "rename one")
    elif contract.stream != path.stem and isinstance(contract.stream, str):
        report.add(
            "stream",
            "be the name of its file",
            contract.stream,
            f"write stream: {path.stem}, or rename the file",
        )
    # Without a readable channels.yaml there is nothing to compare with, and its own problem is listed.
    if channels is not None and isinstance(contract.channel, str) and contract.channel not in channels:
        report.add(
            "channel", "be a channel of channels.yaml", contract.channel, suggest(contract.channel, channels)
        )


def _read(path: Path, report: Report, remedy: str) -> Any:
    try:
        return read_yaml(path.read_bytes().decode("utf-8-sig"), report)
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

"""Contracts as an attacker, or a slip of the hand, writes them: refused by name, quickly and in little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from tests.contracts.test_loader import WEATHER, changed, schemas

from spillway.contracts import check, read_channel, read_stream
from spillway.contracts import loader as loader_module
from spillway.contracts import yaml as yaml_module
from spillway.contracts.fields import BAD, Report
from spillway.contracts.yaml import MOST_CHARACTERS, MOST_NODES, read_yaml
from spillway.errors import ContractError, Problem, escape_text


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def fields(contract: dict[str, Any]) -> list[str]:
    with pytest.raises(ContractError) as caught:
        read_stream(contract)
    return [problem.field for problem in caught.value.problems]


@pytest.mark.parametrize(
    "path",
    ["/", "//", "..", "../../etc", "a/../../b", "a/..", "./a", ".", "a\nb", "a\x1b[2Jb", " a", "a ", "a\n", "a\\b",
     "s3://bucket", "s3://bucket/", "s3a://bucket/../other", ""],
)  # fmt: skip
def test_a_landing_folder_is_below_a_root_and_not_out_of_one(path: str) -> None:
    assert fields(changed(source__path=path)) == ["source.path"]


@pytest.mark.parametrize(
    "path", ["weather", "a/b c/d.e", "/srv/landing/weather", "s3://bucket/weather", "..a", "täglich"]
)
def test_a_plain_landing_folder_is_taken(path: str) -> None:
    assert read_stream(changed(source__path=path)).path == path


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/b/", "a//b"), ("/x/y", "/x")]
)
def test_no_two_streams_land_in_one_folder(tmp_path: Path, one: str, other: str) -> None:
    if other == "/x":
        other = "/x/"
    folder = schemas(
        tmp_path,
        weather=yaml.safe_dump(changed(source__path=one)),
        rain=yaml.safe_dump(changed(stream="rain", source__path=other)),
    )
    (problem,) = check(folder)
    assert (problem.field, problem.rule) == ("source.path", "not overlap the landing folder of rain")
    assert check(schemas(_made(tmp_path / "apart"), weather=yaml.safe_dump(changed(source__path="a")),
                         rain=yaml.safe_dump(changed(stream="rain", source__path="ab")))) == []  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"stream": "weather\n"}, "stream"),
        ({"attributes__2__name": "temp\n"}, "attributes[2].name"),
        ({"source": {"format": "csv", "options": {"delimiter": ",\n"}}}, "source.options.delimiter"),
    ],
)
def test_a_name_ends_where_its_pattern_does(change: dict[str, Any], field: str) -> None:
    assert field in fields(changed(**change))
    with pytest.raises(ContractError):
        read_channel("uplink\n", {"capacity": "1 kbps\n\n;"})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"duplicates": {"rows": "filter", "within": 1 << 40}}, "duplicates.within"),
        (
            {"sketches": [{"kind": "count_min", "attributes": ["origin"], "memory_kib": 1 << 31}]},
            "sketches[0].memory_kib",
        ),
        ({"frame": {"tuples": 1 << 40}}, "frame.tuples"),
        ({"retain_raw": {"days": 10**9}}, "retain_raw.days"),
        ({"retain_raw": {"days": 10**400}}, "retain_raw.days"),
        ({"unknown_fields": "drop"}, "unknown_fields"),
        ({"non_finite": "zero"}, "non_finite"),
    ],
)  # fmt: skip
def test_what_takes_memory_has_a_most(change: dict[str, Any], field: str) -> None:
    assert field in fields(changed(**change))


def test_what_is_unknown_or_not_finite_is_noted_and_kept_unless_a_contract_says_otherwise() -> None:
    contract = read_stream(WEATHER)
    assert (contract.unknown_fields, contract.non_finite) == ("note", "keep")


BILLION = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (BILLION, "hold at most 20,000 values"),
        ("[" * 5000, "levels deep"),
        ("- " * 3000 + "x", "levels deep"),
        ("{a: " * 3000, "levels deep"),
        ("[" + "x," * (MOST_NODES + 1) + "]", "hold at most 20,000 values"),
        ("x" * (MOST_CHARACTERS + 1), "have at most 524,288 characters"),
        ("9" * 5000, "be a plain value"),
    ],
)
def test_yaml_that_grows_is_refused_before_it_is_built(text: str, rule: str) -> None:
    report = Report("a.yaml")
    assert read_yaml(text, report) is BAD
    assert rule in str(report.problems[0])
    assert len(str(report.problems[0])) < 1000


def test_a_contract_file_without_end_is_not_read(tmp_path: Path) -> None:
    folder = schemas(tmp_path, weather="")
    (folder / "streams" / "weather.yaml").write_bytes(b"# " + b"x" * (5 * MOST_CHARACTERS))
    assert "characters" in check(folder)[0].rule


@pytest.mark.parametrize(
    "evil", ["a\x1b[31mb", "two\nlines", "back\x08space", "\u202eright to left", "a\x00b", "\x9b1m"]
)
def test_what_data_says_reaches_no_terminal_as_it_is(evil: str) -> None:
    for problem in (
        Problem(evil, "mode", "be shed", 1, "write shed"),
        Problem("a", evil, "be shed", 1, "write shed"),
        Problem("a", "mode", evil, 1, "write shed"),
        Problem("a", "mode", "be shed", evil, "write shed"),
        Problem("a", "mode", "be shed", [evil], "write shed"),
    ):
        assert str(problem).isprintable()
    assert escape_text(evil).isprintable()
    assert len(str(Problem("a", "x" * 10**6, "be shed", "y" * 10**6, "z" * 10**6))) < 4000


def test_the_compiled_loader_reads_every_contract_as_the_other_one_does() -> None:
    for path in [*Path("schemas").rglob("*.yaml"), *Path("expectations").rglob("*.yaml")]:
        text, found = path.read_text(encoding="utf-8"), []
        for loader in (yaml_module._CompiledCore, yaml_module._Core):
            report = Report(path.name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(yaml_module, "_CompiledCore", loader)
                found.append((read_yaml(text, report), report.lines, report.problems))
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "text", ["a: [1", "a: b: c", "\ta: 1", "a: \x00", "a: *b", "%YAML 9", "a: 'b", "- a\nb: 1"]
)
def test_what_is_no_yaml_is_refused_in_the_words_of_one_loader(text: str) -> None:
    found = []
    for loader in (yaml_module._CompiledCore, yaml_module._Core):
        report = Report("a.yaml")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_module, "_CompiledCore", loader)
            read_yaml(text, report)
            found.append([str(problem) for problem in report.problems])
    assert found[0] == found[1] != []


FOLDERS = some.lists(some.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map("/".join)


@given(some.lists(some.builds(str.__add__, some.sampled_from(["", "/"]), FOLDERS), max_size=6))
def test_the_first_stream_with_an_overlapping_folder_is_named(paths: list[str]) -> None:
    landings, known = loader_module._LandingFolders(), dict[str, str]()
    for number, path in enumerate(paths):
        folder = f"{path}/"
        overlapping = [
            name for one, name in known.items() if folder.startswith(one) or one.startswith(folder)
        ]
        assert landings.stream_of(folder) == next(iter(overlapping), None)
        if not overlapping:
            known[folder] = f"s{number}"
            landings.add(folder, f"s{number}")

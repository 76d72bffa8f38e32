"""The documentation agrees with the product: generated pages, examples in YAML, links."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from spillway.contracts.fields import Report
from spillway.contracts.yaml import read_yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "infra"))

from reference_pages import pages  # noqa: E402

PAGES = sorted([ROOT / "README.md", ROOT / "llms.txt", *(ROOT / "docs").rglob("*.md")])
NAVIGATION = (ROOT / "zensical.toml").read_text(encoding="utf-8")
BASE = {
    "stream": "example",
    "source": {},
    "channel": "link",
    "attributes": [{"name": "at", "type": "timestamp", "role": "order"}, {"name": "x", "type": "double"}],
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)


def schema_for(document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the schema that an example must satisfy, and the example as a whole document."""
    if "channels" in document:
        return "channels", document
    if "inputs" in document:
        return "workload", document
    return "contract", BASE | document


EXAMPLES = [
    pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, text in enumerate(blocks(page, "yaml"), 1)
    if not text.startswith("table:")  # a column contract or a suite of a lever, not a contract
]


@pytest.mark.parametrize("path", sorted(pages()))
def test_generated_page_is_up_to_date(path: str) -> None:
    committed = (ROOT / path).read_text(encoding="utf-8")
    assert committed == pages()[path], "run `make docs` and commit the page"


@pytest.mark.parametrize("text", EXAMPLES)
def test_yaml_example_satisfies_the_published_schema(text: str) -> None:
    name, document = schema_for(read_yaml(text, Report("example")))
    schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)


def test_wrong_example_is_found() -> None:
    schema = json.loads((ROOT / "schemas" / "contract.schema.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(schema_for({"mode": "drop"})[1], schema)


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith(("http", "#")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve()
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", one).strip().lower().replace(" ", "-") for one in headings}
            assert heading in slugs, link


def test_llms_txt_links_to_every_page_of_the_site() -> None:
    """Format: llmstxt.org. A heading, a summary, and lists of links."""
    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    heading, _, summary = text.partition("\n")
    assert heading == "# Spillway"
    assert summary.lstrip().startswith("> ")
    linked = {link for link in re.findall(r"\]\(([^)\s]+)\)", text) if link.startswith("docs/")}
    pages_of_the_site = {f"docs/{link}" for link in re.findall(r'"([\w/-]+\.md)"', NAVIGATION)}
    assert linked >= pages_of_the_site - {"docs/index.md"}
    assert len(text.splitlines()) <= 60

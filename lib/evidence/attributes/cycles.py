"""Find the cycle identifier on the demo streams, and on streams with a known sender in every order of arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from evidence.attributes.lab import Lab
from evidence.book import Book
from evidence.cycle_trials import BY_KEYS, REFUSED, RIGHT, WRONG, run_trials
from evidence.cycles import hit_rate
from spillway.levers.attributes.training.train import plain_values

NOISY_TUPLES = 12_500
"""Enough that the youngest member of the demo's stocks has joined."""


def cycles(book: Book, labs: Mapping[str, Lab], schemas: Path, seeds: int) -> dict[str, float]:
    """Return the CID, the members and when they join, and the share of noisy streams with the same result."""
    book.section(
        "Cycle identifiers",
        "Found without being told, on the clean streams and with 5 % of tuples removed, 1 % doubled and 2 % of "
        "neighbours swapped.",
    )
    rows: list[tuple[Any, ...]] = []
    figures: dict[str, float] = {}
    for name, lab in labs.items():
        cycle, contract = lab.cycle, lab.contract
        facts = yaml.safe_load((schemas / "streams" / f"{name}.expected.yaml").read_text(encoding="utf-8"))
        stated = _stated(facts)
        ours = _joins(lab)
        noisy = hit_rate(
            cycle_columns(lab),
            {a.name: a.declared_bits for a in contract.attributes},
            order=contract.order,
            attributes=tuple(facts["cycle"]["attributes"]),
            seeds=range(seeds),
            tuples=NOISY_TUPLES,
        )
        rows.append(
            (
                name, "+".join(cycle.attributes), cycle.length, cycle.form, round(cycle.confidence, 4),
                list(cycle.attributes) == facts["cycle"]["attributes"], ours == stated, noisy.streams,
                noisy.found_pct, noisy.members_pct,
            )
        )  # fmt: skip
        figures[f"attributes.cid_found_pct.{name}"] = noisy.found_pct
        figures[f"attributes.cid_members_found_pct.{name}"] = noisy.members_pct
        figures[f"attributes.cid_members_and_joins_right.{name}"] = float(ours == stated)
    book.table(
        "Cycle identifiers of the demo streams",
        ("stream", "CID", "length", "form", "confidence", "right CID", "right members and joins", "noisy streams",
         "CID found %", "members found too %"),
        rows,
        ["The text found all CIDs on training and test data (Table 4.2, where A33 applies: Symbol, not Company Name)."],
    )  # fmt: skip
    return figures


def identifiers(book: Book, seeds: int) -> dict[str, float]:
    """Return the results on every family of streams with a known sender, with and without declared keys."""
    book.section(
        "Identifiers where there is no cycle, and where there seems to be one",
        "Streams whose sender is known, in the orders that feeds arrive in, beside attributes that tempt: properties "
        "of the key, labels in turn, counters, clocks. Right: the sender. By keys: the declared keys. Refused: an "
        "error that names the sender. Wrong: anything else.",
    )
    every = list(run_trials(range(seeds)))
    book.table(
        "Identifiers by family",
        ("family", "keys declared", "streams", RIGHT, BY_KEYS, REFUSED, WRONG, "longest, s"),
        [
            (one.family, one.declared, one.streams, *(one.verdicts[name] for name in (RIGHT, BY_KEYS, REFUSED, WRONG)),
             round(one.longest_seconds, 2))
            for one in every
        ],
        ["A wrong key is worse than none: of what is found on the first three quarters, nothing is taken that the last "
         "quarter does not confirm, or that is a property of what sends."],
    )  # fmt: skip
    count: Counter[str] = sum((one.verdicts for one in every), Counter())
    names = {RIGHT: "right", BY_KEYS: "by_keys", REFUSED: "refused", WRONG: "wrong"}
    return {
        "attributes.cid_streams_tried": count.total(),
        **{f"attributes.cid_{name}": count[verdict] for verdict, name in names.items()},
    }


def cycle_columns(lab: Lab) -> dict[str, Any]:
    """Return all raw tuples in the form in which the cycle is searched."""
    return {name: plain_values(lab.rows[name]) for name in lab.contract.names}


def _stated(facts: dict[str, Any]) -> dict[str, str]:
    """Return since when each member exists, by the facts that come with the contract."""
    found: dict[str, str] = {}
    for membership in facts["members"]:
        for value in membership["values"]:
            found.setdefault(str(value), str(membership["from"])[:10])
    return found


def _joins(lab: Lab) -> dict[str, str]:
    """Return since when each member exists, as found: the day of the first tuple under its membership."""
    seq = np.asarray(lab.rows["seq"])
    order = lab.rows[lab.contract.order]
    return {
        str(member.values[0]): str(
            order[int(np.searchsorted(seq, max(member.from_seq, int(seq[0]))))].as_py()
        )[:10]
        for member in lab.cycle.members
    }

"""What `explain` and the report show of a join: comparisons, pairs found and missed, and where matches lie.

Only the last `SHOWN_BATCHES` windows are read, so that the cost does not grow with the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from spillway.batch import SHOWN_BATCHES
from spillway.contracts.workload import Workload
from spillway.errors import format_count, format_number
from spillway.ledger import Row
from spillway.levers.joins.estimates import MissedPairs, estimate_total_missed_pairs
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.protocol import LeverExplanation, Picture, Views

_TABLE = "join_windows"


def explain_join(contract: Workload, tables: Views) -> LeverExplanation | None:
    """Return the figures and reasons for the last windows; None before the first window."""
    rows = _windows(contract, tables)
    if not rows:
        return None
    settings: JoinSettings = contract.lever_settings("joins")
    reach = _windows_of_a_row(contract, settings)
    last, missed = rows[-1], total_missed_pairs(rows, reach)
    possible, compared, pairs = (sum(row[name] for row in rows) for name in ("possible", "compared", "pairs"))
    share = 100.0 * compared / possible if possible else 100.0
    what = (
        f"compared in full: {pairs:,} pairs"
        if compared == possible
        else f"compared within its budget: {format_number(share, 3)} % of the comparisons found {pairs:,} pairs"
    )
    if compared < possible or missed.low < missed.high:
        what += f", {missed_pairs_sentence(rows, reach)}"
    inexact = sum(row.get("inexact_rows") or 0 for row in rows)
    if inexact:
        what += (
            f"; {inexact:,} rows match nothing, because a value of the join key was rounded, or recovered within a "
            "bound"
        )
    older = windows_without_losses(rows)
    if older:
        what += (
            f"; {older:,} of these windows are of an older Spillway, which did not count pairs of rows that were lost "
            "before the join (dropped by sifters, or refused): more may be missed in them"
        )
    bound = max((row["bound_pct"] for row in rows if row["bound_pct"] is not None), default=None)
    given_back = sum(row["inexact_pairs"] for row in rows)
    if bound is not None:
        what += (
            f"; {given_back:,} of these pairs use values that were rounded or recovered (within "
            f"{format_number(bound, 3)} %): the true values may give other pairs"
        )
    budget = settings.budget
    unit = "steps (entries read from the index, and lookups)" if settings.index else "comparisons"
    said = (
        "it has no budget"
        if budget is None
        else f"its budget is {budget.comparisons_per_second * contract.window.seconds:,.10g} {unit} in each window"
        if budget.comparisons_per_second is not None
        else f"its budget is {format_number(budget.core_pct or 0.0)} % of a core"
    )
    numbers: dict[str, Any] = {
        "last windows": len(rows),
        "comparisons possible": possible,
        "comparisons made": compared,
        **({"steps they took, with the index": sum(row["steps"] for row in rows)} if settings.index else {}),
        "pairs found": pairs,
        "... of rounded or recovered values": given_back,
        "source information content used (sic)": _sic(rows),
        "pairs missed, estimated": round(missed.estimate),
        **_lost_before(rows),
        "... at least, with 95 % confidence": round(missed.low),
        "... at most": round(missed.high) if math.isfinite(missed.high) else None,
        "utility": sum(row["utility"] for row in rows),
        "comparisons chosen at random, in addition": sum(row["sampled"] for row in rows),
        "rows skipped": sum(row["passed_over"] for row in rows),
        "rows of other types": sum(row["other_types"] for row in rows),
    }
    basic = settings.basic_window_seconds
    for name, stream in zip(("left", "right"), contract.inputs, strict=True):
        kinds = [one.name for one in settings.types]
        each = last[f"{name}_shares"]
        named = [*kinds, "others"] if len(each) == len(kinds) + 1 and kinds else [""] * len(each)
        shares = ", ".join(
            f"{kind} {format_number(100 * one, 3)} %".strip() for kind, one in zip(named, each, strict=True)
        )
        by = ", by the type of the row that it is compared with" if kinds else ""
        numbers[f"share of the {name} window ({stream}) that is compared now{by}"] = shares
        best = ", ".join(f"{rank * basic:g}" for rank in last[f"{name}_ranks"][:3])
        numbers[f"best seconds back in the {name} window"] = best
    exact = (
        ()
        if bound is None
        else (
            "join by values as they came: let the contracts of "
            + " and ".join(sorted(set(contract.inputs)))
            + " keep what is joined by",
        )
    )
    remedies = exact + (
        ()
        if compared == possible
        else (
            f"miss less: raise the budget, which now makes {format_number(share, 3)} % of the comparisons",
            "see what another budget would miss: spillway join-advice",
        )
    )
    return LeverExplanation(
        what,
        f"{said}; that was enough for {format_number(100 * last['r'], 3)} % of the last window",
        numbers,
        remedies,
    )


def windows_without_losses(rows: Sequence[Row]) -> int:
    """Return how many windows were worked out before rows were counted that were lost before the join.

    >>> windows_without_losses([{"pairs": 3}, {"unweighted_rows": None}, {"unweighted_rows": 0}])
    2
    """
    return sum(row.get("unweighted_rows") is None for row in rows)


def _lost_before(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the figures about rows that were lost before the join; empty if none were."""
    weighted = [row for row in rows if row.get("missed_here") is not None]
    if not weighted:
        return {}
    return {
        "... of them pairs of rows that came and were not compared": round(
            sum(row["missed_here"] for row in weighted)
        ),
        "rows that came": sum(row["left_rows"] + row["right_rows"] for row in weighted),
        "rows that were produced (estimate)": round(
            sum(row["left_produced"] + row["right_produced"] for row in weighted)
        ),
        "rows lost before the join that no weight represents (at most)": max(
            row["unweighted_rows"] or 0 for row in weighted
        ),
    }


def _windows_of_a_row(contract: Workload, settings: JoinSettings) -> int:
    """Return in how many windows a row is searched for. If the row is lost, all of them miss its pairs."""
    lasts = max(settings.left.lasts_seconds, settings.right.lasts_seconds)
    return 1 + math.ceil(lasts / contract.window.seconds)


def _sic(rows: Sequence[Row]) -> float:
    """Return the mean sic of these windows, weighted by the rows that were produced in each."""
    came = [
        row["left_rows"] + row["right_rows"]
        if row.get("left_produced") is None
        else row["left_produced"] + row["right_produced"]
        for row in rows
    ]
    part = sum(row["sic"] * many for row, many in zip(rows, came, strict=True))
    return float(part / sum(came)) if sum(came) else 1.0


def total_missed_pairs(rows: Sequence[Row], windows_of_a_row: int = 1) -> MissedPairs:
    """Return the pairs that these windows missed in total. Counts are added; samples are merged into one sample.

    Windows of older versions of Spillway sampled rows; their half-widths are added in quadrature. If rows were lost
    before the join, several windows miss pairs of the same rows: the variance of the sum over windows of which n share
    a row is at most n times the sum of the variances.
    """
    found, samples, can = MissedPairs(0.0, 0.0, 0.0), [], 0.0
    weighted = MissedPairs(0.0, 0.0, 0.0)
    for row in rows:
        if row.get("missed_here") is not None:
            weighted += MissedPairs(row["missed"], row["missed_low"], row["missed_high"])
            continue
        mine = [row[f"{side}_learned"]["sample"] for side in ("left", "right")]
        if row["missed_low"] < row["missed_high"] and all(len(one) == 2 and one[0] > 0 for one in mine):
            samples.append((sum(many for _, many in mine), mine[0][0]))
            can += row["possible"] - row["compared"]
        else:
            found += MissedPairs(row["missed"], row["missed_low"], row["missed_high"])
    wider = math.sqrt(windows_of_a_row)
    found += MissedPairs(
        weighted.estimate,
        max(0.0, weighted.estimate - wider * (weighted.estimate - weighted.low)),
        weighted.estimate + wider * (weighted.high - weighted.estimate),
    )
    return found + estimate_total_missed_pairs(samples).capped_at(can) if samples else found


def missed_pairs_sentence(rows: Sequence[Row], windows_of_a_row: int = 1) -> str:
    """Return a sentence with the number of missed pairs, and the number of windows in which nothing was compared."""
    missed = total_missed_pairs(rows, windows_of_a_row)
    if missed.low == missed.high:
        return f"{missed.estimate:,.0f} are missed, by count"
    unseen = sum(row["compared"] == 0 < row["possible"] for row in rows)
    beside = (
        f"; in {unseen:,} of {len(rows):,} windows nothing was compared, and the estimate leaves them out"
        if unseen
        else ""
    )
    if math.isinf(missed.high):
        return (
            f"about {missed.estimate:,.0f} are missed (at least {missed.low:,.0f} with 95 % confidence; no upper end: "
            f"{_why_open(rows)}{beside})"
        )
    if any(row.get("unweighted_rows") for row in rows):
        beside += (
            "; no weight represents some of the rows that were lost before: the upper end uses their count"
        )
    between = f"{missed.low:,.0f} to {missed.high:,.0f} with 95 % confidence"
    return f"about {missed.estimate:,.0f} are missed ({between}{beside})"


def _why_open(rows: Sequence[Row]) -> str:
    """Return why the number of missed pairs has no upper end."""
    if any(row.get("inexact_rows") for row in rows):
        return "rows with inexact values match nothing"
    if any(row.get("unweighted_rows") for row in rows):
        return "the times of refused rows are not known"
    return "the number of rows lost before is not recorded"


def join_pictures(contract: Workload, tables: Views) -> Iterable[Picture]:
    """Yield pictures of pairs found and missed, where matches lie, and the share of each window that was compared."""
    rows = _windows(contract, tables)
    if not rows:
        return
    settings: JoinSettings = contract.lever_settings("joins")
    yield _pairs(rows, contract, settings)
    yield _curves(rows[-1], contract, settings)
    if any(row["compared"] < row["possible"] for row in rows):
        yield _shares(rows, contract)


def _windows(contract: Workload, tables: Views) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        tables.at(_TABLE).last("window", SHOWN_BATCHES, subject=contract.subject).to_pylist()
    )
    return sorted(found, key=lambda row: int(row["window"]))


def _pairs(rows: Sequence[Row], contract: Workload, settings: JoinSettings) -> Picture:
    at = [float(row["window"] * contract.window.seconds) for row in rows]
    found = [(x, float(row["pairs"])) for x, row in zip(at, rows, strict=True)]
    whole = [(x, float(row["pairs"] + row["missed"])) for x, row in zip(at, rows, strict=True)]
    band = [
        (x, float(row["pairs"] + row["missed_low"]), float(row["pairs"] + row["missed_high"]))
        for x, row in zip(at, rows, strict=True)
        if math.isfinite(row["missed_high"])
    ]
    if len(band) < 2 or all(low == high for _, low, high in band):
        band = []
    missed = missed_pairs_sentence(rows, _windows_of_a_row(contract, settings))
    return Picture(
        f"{contract.subject}: {sum(row['pairs'] for row in rows):,} pairs found",
        "lines",
        {
            "lines": [
                {"name": "found", "points": found, "style": "c0", "dots": len(rows) < 40},
                {"name": "found and missed, estimated", "points": whole, "style": "c1"},
            ],
            "x": f"windows of {_duration(contract.window.seconds)}",
            "y": "pairs in a window",
            "from_zero": True,
            "band": band,
            "is_time": True,
        },
        f"{contract.description} {missed[0].upper()}{missed[1:]}.".strip()
        + " Shaded: the 95 % interval of each window." * bool(band),
        section="answers",
    )


def _duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is whole.

    >>> _duration(86_400), _duration(1_800), _duration(2.5)
    ('1 day', '30 minutes', '2.5 s')
    """
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return format_count(int(seconds // size), unit)
    return f"{seconds:g} s"


def _curves(last: Row, contract: Workload, settings: JoinSettings) -> Picture:
    basic = settings.basic_window_seconds
    lines = [
        {
            "name": f"{contract.inputs[side]} ({name}) came first",
            "points": [(j * basic, 100.0 * o) for j, o in enumerate(last[f"{name}_curve"])],
            "style": f"c{side}",
        }
        for side, name in enumerate(("left", "right"))
    ]
    return Picture(
        "Where matches lie",
        "lines",
        {
            "lines": lines,
            "x": "seconds between the two rows",
            "y": "comparisons that are a pair, %",
            "from_zero": True,
        },
        "Learned from all comparisons that were made: basic windows are used in this order.",
    )


def _shares(rows: Sequence[Row], contract: Workload) -> Picture:
    first = rows[0]["window"]
    lines = [
        {
            "name": f"{name} window ({contract.inputs[side]})",
            "points": [
                (
                    float(row["window"] - first),
                    100.0 * sum(row[f"{name}_shares"]) / len(row[f"{name}_shares"]),
                )
                for row in rows
            ],
            "style": f"c{side}",
            "steps": True,
        }
        for side, name in enumerate(("left", "right"))
    ]
    return Picture(
        "How much of either window is compared",
        "lines",
        {
            "lines": lines,
            "x": f"windows of {contract.window.seconds:g} s",
            "y": "share, %",
            "from_zero": True,
        },
        "The window that yields more a comparison comes first.",
    )

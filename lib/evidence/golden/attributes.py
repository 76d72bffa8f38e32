"""Recompute every cell of the attribute-shedding thesis that can be recomputed.

A *group* is a function from the directory of golden files to cells; `recompute` runs all of them. A cell
compares what the thesis prints (with the errata of `ERRATA.md` applied: `erratum` names the one) with what the
kernels give, as text at the precision that is printed, so that equal means equal.

>>> sorted(GROUPS)[:3]
['capacity', 'categories', 'counts']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, ROUND_UP, Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np

from evidence.golden.categories import categories
from evidence.golden.cells import ARITHMETIC, RECOMPUTED, Cell, numbers, read_csv, read_json
from evidence.golden.hamming import hamming
from spillway.contracts.capacity import shannon_kbps
from spillway.errors import InvalidValue
from spillway.levers import loss_curve
from spillway.levers.attributes.capacity import fit as capacity
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.cycle.identifier import find_cycle
from spillway.levers.attributes.ranking import reevaluation as scheme
from spillway.levers.attributes.ranking.rank import population_std, rank
from spillway.levers.attributes.ranking.smoothing import (
    Smoothing,
    exponential_moving_average,
    simple_moving_average,
)
from spillway.levers.attributes.synopsis.entries import shed
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold import curve as thresholds
from spillway.levers.exact import exact_fraction

Group = Callable[[Path], Iterable[Cell]]


def rounded_up(value: float, decimals: int) -> Decimal:
    """Return `value` as Tables 3.3 and 3.6 print it: rounded away from zero to `decimals` places (erratum A11).

    The value is first rounded to twelve significant digits. Otherwise the last bit of a float64 would turn 63.7 into
    63.71.

    >>> rounded_up(61.593, 2), rounded_up(-0.0341, 2), rounded_up(63.7, 2)
    (Decimal('61.60'), Decimal('-0.04'), Decimal('63.70'))
    """
    return Decimal(f"{value:.12g}").quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_UP)


def recompute(directory: Path) -> list[Cell]:
    """Return all cells of all groups, from the golden files (000_*) in `directory`."""
    return [cell for group in GROUPS.values() for cell in group(directory)]


def table_3_3(directory: Path) -> Iterable[Cell]:
    """Weather smoothed with m = 0.7 from the first value; the print is rounded up (A10, A11)."""
    yield from _smoothing_cells(directory, "3.3", "3_2", "3_3", 0.7, "first")


def table_3_6(directory: Path) -> Iterable[Cell]:
    """Stocks smoothed with m = 0.2 from zero; one sign is misprinted (A12)."""
    yield from _smoothing_cells(directory, "3.6", "3_5", "3_6", 0.2, "zero")


def _smoothing_cells(
    directory: Path, table: str, raw: str, printed: str, multiplier: float, seed: str
) -> Iterable[Cell]:
    rows = read_csv(directory, f"000_table{raw}_raw.csv")
    checks = read_csv(directory, f"000_table{printed}_check.csv")
    smoothed = {
        name: exponential_moving_average(numbers(rows, name), multiplier, seed)
        for name in dict.fromkeys(check["attribute"] for check in checks)
    }
    for check in checks:
        attribute, row = check["attribute"], int(check["row"]) - 1
        value = float(smoothed[attribute][row])
        expected, erratum, got = Decimal(check["printed"]), "A11", f"{rounded_up(value, 2)}"
        if attribute == "Share Volume":
            # the only attribute printed with one decimal: the two decimals rounded once more, to the nearest
            got = f"{Decimal(got).quantize(Decimal('0.1'), rounding=ROUND_HALF_UP)}"
        if (table, check["key"], attribute) == ("3.6", "AMGN", "NASDAQ 100 Index"):
            expected, erratum = -expected, "A12"
        places = len(got.partition(".")[2])
        name = f"{check['key']}, {attribute}"
        yield Cell(f"table {table}", name, f"{expected:.{places}f}", got, erratum)


def table_b(directory: Path) -> Iterable[Cell]:
    """Closing prices under SMA over ten days and EMA with 2/11, seeded by it (A8, A9, A30)."""
    rows = read_csv(directory, "000_tableB_sma_ema.csv")
    closing = numbers(rows, "close")
    simple = simple_moving_average(closing, 10)
    exponential = exponential_moving_average(closing, 2 / 11, "sma", 10)
    for i, row in enumerate(rows):
        if row["sma10_printed"]:
            yield Cell("table B.1", f"day {row['day']}", row["sma10_printed"], f"{simple[i]:.3f}", "A8")
            yield Cell("table B.2", f"day {row['day']}", row["ema10_printed"], f"{exponential[i]:.3f}", "A9")


def deviations(directory: Path) -> Iterable[Cell]:
    """Population deviations over the printed rows (A13 to A15), the lists of 3.2.3.2, and the rankings."""
    examples = read_json(directory, "000_std_examples.json")
    for one in examples["lists"]:
        got = population_std(np.array(one["values"], dtype=np.float64))
        yield Cell("section 3.2.3.2", str(one["values"]), f"{one['population_std']:.6f}", f"{got:.6f}")
    for table, raw, smoothed in (("3_4", "3_2", "3_3"), ("3_7", "3_5", "3_6")):
        stated = read_csv(directory, f"000_table{table}_std.csv")
        window = {}
        for row in stated:
            # Share Volume is in millions: only then is the printed 5.68 of the right size
            unit = 1e6 if row["attribute"] == "Share Volume" else 1.0
            for which, source in (("raw", f"{raw}_raw"), ("ema", f"{smoothed}_ema")):
                values = numbers(read_csv(directory, f"000_table{source}.csv"), row["attribute"]) / unit
                expected = row[f"{which}_shown_rows_population"]
                name = f"{row['attribute']}, {which} rows"
                yield Cell(
                    f"table {_dotted(table)}",
                    name,
                    expected,
                    f"{population_std(values):.6f}",
                    "A13, A15",
                    RECOMPUTED,
                )
                window[row["attribute"]] = values
        ranking = rank(window, list(window), smoothing=Smoothing(kind="none"))
        rows = "31" if table == "3_4" else "18"
        expected = examples["rankings"][f"table{table}"][f"ranking_from_shown_{rows}_ema_rows"]
        found = ", ".join(one.attribute for one in ranking)
        yield Cell(f"table {_dotted(table)}", "ranking", ", ".join(expected), found, "A14", RECOMPUTED)


def capacities(directory: Path) -> Iterable[Cell]:
    """Examples 2 and 3, Figure 3.1, and all of Table 4.6 with n counting the key."""
    examples = read_json(directory, "000_examples.json")
    second, third = examples["example_2"], examples["example_3"]
    kbps = shannon_kbps(second["BW_kHz"], second["SN_dB"])
    yield Cell("example 2", "C in kbps", f"{second['C_kbps_printed']:.2f}", f"{kbps:.2f}")
    shed_count = capacity.count_to_shed(third["R"], third["C"], third["n"])
    yield Cell("example 3", "attributes to shed", str(third["n_shed_printed"]), str(shed_count))
    for row in read_csv(directory, "000_fig3_1_grid.csv"):
        got = capacity.count_to_shed(float(row["R_kbps"]), float(row["C_kbps"]), int(row["n"]))
        name = f"{row['R_kbps']} over {row['C_kbps']} kbps"
        yield Cell("figure 3.1", name, row["n_shed"], str(got), against=RECOMPUTED)
    for row in read_csv(directory, "000_table4_6_n_shed.csv"):
        name = f"{row['source']}, {row['D_kbps']} over {row['C_kbps']} kbps"
        count = int(row["n_attributes_with_CID"])
        got = capacity.count_to_shed(float(row["D_kbps"]), float(row["C_kbps"]), count)
        yield Cell("table 4.6", name, row["N_printed"], str(got))


def synopses(directory: Path) -> Iterable[Cell]:
    """Example 4 and the trace of Algorithm 3 with |sv| (A17 to A21)."""
    example = read_json(directory, "000_examples.json")["example_4"]
    steps = example["steps"]
    codes = {key: code for code, key in enumerate(dict.fromkeys(step["CID"] for step in steps))}
    keys = [codes[step["CID"]] for step in steps]
    stored, recovered = _stored([step["value"] for step in steps], keys, example["E_percent"])
    for i, step in enumerate(steps):
        place = f"{step['CID']}@{step['timestamp']}"
        yield Cell("example 4", f"{place} stored", str(step["stored"]), str(stored[i]), "A17", RECOMPUTED)
        expected = f"{example['recovered'][place]:.2f}"
        yield Cell("example 4", f"{place} recovered", expected, f"{recovered[i]:.2f}", "A20, A21", RECOMPUTED)
    trace = read_json(directory, "000_algorithm3_traces.json")
    stored, recovered = _stored(trace["values"], [0] * len(trace["values"]), trace["E_percent"])
    for i, step in enumerate(trace["variants"]["abs_sv"]):
        name = f"timestamp {step['timestamp']}"
        yield Cell("algorithm 3", f"{name} stored", str(step["stored"]), str(stored[i]), "A18", RECOMPUTED)
        expected = f"{step['recovered']:.2f}"
        yield Cell("algorithm 3", f"{name} recovered", expected, f"{recovered[i]:.2f}", "A18", RECOMPUTED)


def _stored(values: Sequence[float], keys: Sequence[int], error_pct: float) -> tuple[list[bool], list[float]]:
    rows = len(values)
    frame = Frame(np.arange(rows), np.array(keys), {"a": Column.real(np.array(values, dtype=np.float64))})
    kept = shed(AttributeModel("a", "real", float(error_pct)), frame, np.ones(rows, np.bool_))
    positions = set(kept.positions.tolist())
    return [i in positions for i in range(rows)], [float(value) for value in kept.reconstructed.values]


def algorithm_2(directory: Path) -> Iterable[Cell]:
    """The trace of Algorithm 2: its evaluations, and the interval after each (A16)."""
    trace = read_json(directory, "000_algorithm2_trace.json")["trace"]
    controller = scheme.Reevaluation()
    lowest = {"a": 1.0, "b": 2.0}
    state = controller.evaluate(scheme.ReevaluationState(), 0, lowest, lambda ranking: {ranking[0]: "shed"})
    for step in trace:
        expected, got = str(step["evaluated_at_s"]), str(state.next_window)
        yield Cell("algorithm 2", "evaluated at", expected, got, "A16", RECOMPUTED)
        if not step["scheme_same"]:
            lowest = dict(zip(lowest, reversed(lowest.values()), strict=True))
        state = controller.evaluate(state, state.next_window, lowest, lambda ranking: {ranking[0]: "shed"})
        expected, got = str(step["next_interval_s"]), f"{state.interval_windows:g}"
        name = f"interval from {step['evaluated_at_s']}"
        yield Cell("algorithm 2", name, expected, got, "A16", RECOMPUTED)


@dataclass(frozen=True)
class ProportionalShares:
    """The proportional share (Ahuja 2006): one drop rate for all; by stream the kbps and the attributes to give up."""

    drop_rate: Fraction
    kbps_to_shed: tuple[Fraction, ...]
    attributes_to_shed: tuple[int, ...]


def proportional_shares(
    rates_kbps: Sequence[float], attributes: Sequence[int], capacity_kbps: float
) -> ProportionalShares:
    """Return the shares where every stream gives up the same share of its rate (equations 3.8 and 3.9).

    >>> proportional_shares([64.4, 80.6, 76.6, 72.2], [6, 8, 10, 9], 256.6).attributes_to_shed
    (1, 2, 2, 2)
    """
    if len(rates_kbps) != len(attributes) or any(count < 0 for count in attributes):
        raise InvalidValue(
            "attributes",
            f"count the attributes of each of {len(rates_kbps)} streams",
            list(attributes),
            "give one count of 0 or more a stream",
        )
    share = loss_curve.drop_rate(rates_kbps, capacity_kbps)
    return ProportionalShares(
        drop_rate=share,
        kbps_to_shed=tuple(share * exact_fraction(rate) for rate in rates_kbps),
        attributes_to_shed=tuple(
            math.ceil(share * count) if rate else 0
            for rate, count in zip(rates_kbps, attributes, strict=True)
        ),
    )


def inter_stream(directory: Path) -> Iterable[Cell]:
    """Example 6: four streams on one channel (A27)."""
    example = read_json(directory, "000_examples.json")["example_6"]
    got = proportional_shares(example["R_n"], example["N"], example["C"])
    rate_dropped = f"{float(got.drop_rate):.9f}"
    yield Cell("example 6", "drop rate", f"{example['drop_rate']:.9f}", rate_dropped, against=RECOMPUTED)
    for i, rate in enumerate(example["R_n"]):
        kbps, count = got.kbps_to_shed[i], got.attributes_to_shed[i]
        expected = f"{example['R_n_shed'][i]:.9f}"
        yield Cell("example 6", f"kbps off {rate}", expected, f"{float(kbps):.9f}", against=RECOMPUTED)
        yield Cell(
            "example 6", f"attributes off {rate}", str(example["N_shed_printed"][i]), str(count), "A27"
        )


def error_thresholds(directory: Path) -> Iterable[Cell]:
    """Thresholds of 3.2.4.3, deviations of Table 4.3 (A37), errors of Tables 4.7 to 4.10 (A40)."""
    for one in read_json(directory, "000_examples.json")["error_threshold_section_3_2_4_3"]:
        taken = thresholds.threshold(one["fixed_point"], one["CRER"]).error_pct
        yield Cell("section 3.2.4.3", one["stream"], f"{one['threshold_printed']:.2f}", f"{taken:.2f}")
    for row in read_csv(directory, "000_table4_3_fixed_points.csv"):
        name = f"{row['source']} set {row['set']}"
        moved = thresholds.threshold_drift(float(row["fixed_point_train"]), float(row["fixed_point_test"]))
        printed = f"{float(row['deviation_printed']):.2f}"
        yield Cell("table 4.3", f"{name}, deviation", printed, f"{moved.deviation_points:.2f}")
        stated, got = row["deviation_percent"], f"{moved.deviation_pct:.4f}"
        yield Cell("table 4.3", f"{name}, deviation %", stated, got, "A37", RECOMPUTED)
    for row in read_csv(directory, "000_tables4_7_4_8_4_9.csv"):
        original, recovered = float(row["original"]), float(row["recovered"])
        error = f"{abs(original - recovered) / abs(original) * 100.0:.4f}"
        name = f"{original} recovered as {recovered}"
        stated = row["error_percent_by_original"]
        yield Cell(f"table {row['table']}", name, stated, error, against=ARITHMETIC)
    rows = read_csv(directory, "000_table4_10.csv")
    for row in rows:
        left = 100.0 - float(row["accuracy_percent"])
        printed = row["error_percent_100_minus_accuracy"]
        yield Cell("table 4.10", f"{row['source']}, error", printed, f"{left:.2f}", "A40", ARITHMETIC)
    means = read_json(directory, "000_check_summary.json")["table4_10"]
    accuracy = sum(float(row["accuracy_percent"]) for row in rows) / len(rows)
    threshold = sum(float(row["error_threshold"]) for row in rows) / len(rows)
    for what, mean, found, erratum in (
        ("mean accuracy", means["mean_accuracy"], accuracy, ""),
        ("mean error", means["printed_mean_error"], 100 - accuracy, "A40"),
        ("mean threshold", means["printed_mean_threshold"], threshold, ""),
    ):
        yield Cell("table 4.10", what, f"{mean:.2f}", f"{found:.2f}", erratum, ARITHMETIC)


def cycle_cells(directory: Path) -> Iterable[Cell]:
    """Table 3.1 and the constructed cases of the cycle identifier (A1 to A7)."""
    for name, case in read_json(directory, "000_cid_cases.json")["cases"].items():
        columns = {
            attribute: np.array([row[i] for row in case["tuples"]], dtype=object)
            for i, attribute in enumerate(case["attributes"])
        }
        widths = {a: 8 * size for a, size in case.get("bit_length_bytes", {}).items()}
        found = find_cycle(columns, np.arange(len(case["tuples"])), widths)
        expected = case["expected"]
        wanted = next(
            (expected[k] for k in ("CID", "CID_that_is_a_key", "CID_minimal") if k in expected), None
        )
        if wanted is not None:
            got = ", ".join(found.attributes)
            yield Cell("cycle", f"{name}, CID", ", ".join(wanted), got, "A3, A4, A7", RECOMPUTED)
        length = next(
            (
                expected[k]
                for k in ("cycle_length_of_stream_lcm", "lcm_true_joint_period", "true_period")
                if k in expected
            ),
            None,
        )
        if length is not None:
            yield Cell("cycle", f"{name}, length", str(length), str(found.length), "A5, A6", RECOMPUTED)


def counts(directory: Path) -> Iterable[Cell]:
    """Windows of Table 4.1, hits of Table 4.4, averages of Tables 3.8 and 3.9 (A22)."""
    for row in read_csv(directory, "000_table4_1_sources.csv"):
        windows = int(row["tuples_per_set"]) // int(row["window"])
        yield Cell(
            "table 4.1", f"{row['source']}, windows", row["windows_printed"], str(windows), against=ARITHMETIC
        )
    rows = read_csv(directory, "000_table4_4_hits.csv")
    hits = [int(row[f"hits_s{i}"]) for row in rows for i in (1, 2, 3)]
    misses = [int(row[f"misses_s{i}"]) for row in rows for i in (1, 2, 3)]
    printed = read_json(directory, "000_check_summary.json")["table4_4"]["printed"]
    for what, stated, every in (("mean hits", printed[0], hits), ("mean misses", printed[1], misses)):
        got = f"{sum(every) / len(every):.1f}"
        yield Cell("table 4.4", what, f"{stated:.1f}", got, against=ARITHMETIC)
    for row in read_csv(directory, "000_table3_8_3_9.csv"):
        values = [int(value) for value in row["eight_printed_values"].split("|")]
        name = f"at {row['accuracy_percent']} %"
        if row["ninth_rounded"]:
            mean = (sum(values) + int(row["ninth_rounded"])) / 9
            # the print cuts 4.8889 to 4.88 and rounds 42.6667 down to 42.66: it cuts everywhere
            cut = f"{int(mean * 100) / 100:.2f}"
            yield Cell("table 3.9", name, f"{float(row['printed_average']):.2f}", cut, "A22", ARITHMETIC)
        else:
            yield Cell("table 3.8", name, row["mean_of_eight"], f"{sum(values) / 8:.4f}", "A23", ARITHMETIC)


GROUPS: dict[str, Group] = {
    "smoothing, weather": table_3_3,
    "smoothing, stocks": table_3_6,
    "smoothing, closing prices": table_b,
    "ranking": deviations,
    "capacity": capacities,
    "synopsis": synopses,
    "re-evaluation": algorithm_2,
    "several streams": inter_stream,
    "thresholds": error_thresholds,
    "categories": categories,
    "cycles": cycle_cells,
    "protected training": hamming,
    "counts": counts,
}


def _dotted(table: str) -> str:
    return table.replace("_", ".")

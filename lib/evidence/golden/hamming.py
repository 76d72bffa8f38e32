"""Recompute Appendix A: the worked words, and every single and double error of the sample word."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from evidence.golden.cells import RECOMPUTED, Cell, read_json
from spillway.records.parity import bits_of, check_words, encode_words


def hamming(directory: Path) -> Iterable[Cell]:
    """Decode by plain Hamming as printed; the overall parity bit detects two flips, which it decodes wrongly (A28)."""
    golden = read_json(directory, "000_hamming.json")
    plain = encode_words(bits_of(golden["data"]), extended=False)
    yield Cell("table A.1", "code word", golden["table_A1_codeword"], _text(plain))
    for table in ("table_A2", "table_A3"):
        checked = check_words(bits_of(golden[table]["received"]), extended=False)
        name = table.replace("_A", " A.")
        yield Cell(
            name, "error position", str(golden[table]["error_position"]), str(int(checked.position)), "A29"
        )
        yield Cell(name, "corrected data", golden["data"], _text(checked.data))
    for single in golden["all_single_errors"]:
        checked = check_words(bits_of(single["word"]), extended=False)
        name = f"flipped {single['flipped']}"
        for what, stated, got in (
            ("position", str(single["syndrome"]), str(int(checked.position))),
            ("data", single["decoded"], _text(checked.data)),
        ):
            yield Cell("single errors", f"{name}, {what}", stated, got, against=RECOMPUTED)
    extended = encode_words(bits_of(golden["data"]))
    for double in golden["double_errors"]:
        flipped = np.array(double["flipped"]) - 1
        name = f"flipped {double['flipped']}"
        damaged = plain.copy()
        damaged[flipped] ^= 1
        lost = bool(check_words(damaged, extended=False).uncorrectable)
        yield Cell(
            "double errors", f"{name}, plain", double["outcome"].split(" ")[0],
            "uncorrectable" if lost else "miscorrected", "A28", RECOMPUTED,
        )  # fmt: skip
        damaged = extended.copy()
        damaged[flipped] ^= 1
        found = str(bool(check_words(damaged).uncorrectable))
        yield Cell("double errors", f"{name}, detected with overall parity", "True", found, "A28", RECOMPUTED)


def _text(bits: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    return "".join(map(str, bits.tolist()))

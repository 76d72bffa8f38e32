"""Training tuples that carry parity (3.2.1.1): serialised, checked, corrected, and turned back into columns.

The sensor serialises a tuple to bytes of fixed width, attribute by attribute in contract order: one bit a null flag,
numbers as 8 bytes, text in its declared width, and sends the parity of those bytes (`hamming`, one flipped bit is
corrected, two are detected) as a hexadecimal text attribute of the tuple. `with_parity` is the sensor's side.

>>> from spillway.contracts import read_stream
>>> contract = read_stream({
...     "stream": "net", "channel": "up", "source": {"format": "csv"},
...     "attributes": [
...         {"name": "router", "type": "string", "role": "key", "bits": 16},
...         {"name": "at", "type": "integer", "role": "order"},
...         {"name": "delay", "type": "double"},
...         {"name": "check", "type": "string", "role": "protected"},
...     ],
... })
>>> rows = pa.table({"router": ["r1", "r2"], "at": [1, 2], "delay": [1.5, None], "check": pa.nulls(2, pa.string())})
>>> sent = with_parity(contract, "check", rows)
>>> sound, report = sound_training_set(contract, "check", [sent])
>>> sound["delay"].to_pylist(), report["corrected_tuples"], report["discarded_sets"]
([1.5, None], 0, [])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import Attribute, StreamContract
from spillway.errors import Refused
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.training.hamming import (
    TrainingSetCheck,
    check_training_set,
    merge_parity,
    parity_of_tuples,
)


def with_parity(contract: StreamContract, parity_attribute: str, rows: pa.Table) -> pa.Table:
    """The tuples as the sensor sends them: the parity attribute filled in."""
    parity = parity_of_tuples(_serialised(contract, parity_attribute, rows))
    texts = pa.array([bytes(row).hex() for row in parity], pa.string())
    return rows.set_column(rows.column_names.index(parity_attribute), parity_attribute, texts)


def sound_training_set(
    contract: StreamContract, parity_attribute: str, candidates: Iterable[pa.Table]
) -> tuple[pa.Table, dict[str, Any]]:
    """The first candidate without an uncorrectable tuple, corrected, and what was found on the way to it."""
    tried: list[pa.Table] = []

    def words() -> Iterator[np.ndarray]:
        for rows in candidates:
            tried.append(rows)
            yield merge_parity(
                _serialised(contract, parity_attribute, rows), _parity(contract, parity_attribute, rows)
            )

    found: TrainingSetCheck = check_training_set(words())
    report = {
        "parity": "secded",
        "corrected_tuples": found.corrected_tuples,
        "discarded_sets": list(found.discarded),
        "retried_sets": found.index,
    }
    return _restored(contract, parity_attribute, tried[found.index], found.tuples), report


def _covered(contract: StreamContract, parity_attribute: str) -> list[Attribute]:
    return [a for a in contract.attributes if a.name != parity_attribute]


def _width(attribute: Attribute) -> int:
    return -(-attribute.declared_bits // 8) if attribute.type == "string" else 8


def _serialised(contract: StreamContract, parity_attribute: str, rows: pa.Table) -> np.ndarray:
    covered = _covered(contract, parity_attribute)
    valid = np.column_stack([np.asarray(rows[a.name].combine_chunks().is_valid()) for a in covered])
    parts = [np.packbits(valid, axis=1)]
    for attribute in covered:
        column = Column.from_arrow(rows[attribute.name])
        if attribute.type == "string":
            parts.append(_text_bytes(contract, attribute, rows[attribute.name].to_pylist()))
        else:
            values = column.values.astype(">f8" if column.kind == "real" else ">i8")
            parts.append(values.view(np.uint8).reshape(rows.num_rows, 8))
    return np.ascontiguousarray(np.hstack(parts))


def _text_bytes(contract: StreamContract, attribute: Attribute, texts: list[str | None]) -> np.ndarray:
    width = _width(attribute)
    encoded = [(text or "").encode() for text in texts]
    longest = max(encoded, key=len, default=b"")
    if len(longest) > width:
        raise Refused(
            attribute.name,
            f"fit its {width} bytes where tuples carry parity",
            longest.decode(),
            f"declare bits: {8 * len(longest)}",
            where=contract.stream,
        )
    return np.frombuffer(b"".join(text.ljust(width, b"\0") for text in encoded), np.uint8).reshape(-1, width)


def _parity(contract: StreamContract, name: str, rows: pa.Table) -> np.ndarray:
    width = parity_of_tuples(_serialised(contract, name, rows.slice(0, 1))).shape[1]
    found = []
    for index, text in enumerate(rows[name].to_pylist()):
        try:
            parity = bytes.fromhex(text or "")
        except ValueError:
            parity = b""
        if len(parity) != width:
            place = f"seq {rows['seq'][index]}" if "seq" in rows.column_names else f"row {index}"
            raise Refused(
                name,
                f"hold {2 * width} hexadecimal digits of parity at {place}",
                text,
                "encode tuples with with_parity",
                where=contract.stream,
            )
        found.append(np.frombuffer(parity, np.uint8))
    return np.vstack(found)


def _restored(
    contract: StreamContract, parity_attribute: str, rows: pa.Table, tuples: np.ndarray
) -> pa.Table:
    covered = _covered(contract, parity_attribute)
    flags = -(-len(covered) // 8)
    valid = np.unpackbits(np.ascontiguousarray(tuples[:, :flags]), axis=1)[:, : len(covered)].astype(bool)
    at = flags
    for index, attribute in enumerate(covered):
        width = _width(attribute)
        field = np.ascontiguousarray(tuples[:, at : at + width])
        at += width
        kind = rows.schema.field(attribute.name).type
        if attribute.type == "string":
            texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in field]
            values = pa.array(texts, kind, mask=~valid[:, index])
        else:
            real = attribute.type == "double"
            numbers = field.view(">f8" if real else ">i8").ravel().astype(np.float64 if real else np.int64)
            values = Column("real" if real else "integer", numbers, valid[:, index]).to_arrow(kind)
        rows = rows.set_column(rows.column_names.index(attribute.name), attribute.name, values)
    return rows

"""Compare the bytes that are sent of a batch, without loss and within the bounds, with files of lossless compressors.

`dry_run` sends the batch alone, once without loss and once within the bounds, through a channel that has room for
everything and is paid by the byte (`minimize: bytes`). The levers send as few bytes as they can and keep nothing at the
source (`Lever.with_fewest_bytes`). A lever that drops rows cannot do so, and is left out. The bytes are those of the
ledger: whole files, `seq`, footers, schemes and log entries.

Compressors get the same rows (`spillway.lossless`). If a batch has more than `MOST_ROWS` rows, they get the first
`MOST_ROWS`, so that xz does not take minutes; sizes are then compared per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from spillway.contracts import Contracts, StreamContract, read_channel
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.ledger import TOTAL
from spillway.levers.protocol import Say
from spillway.lossless import lossless_sizes
from spillway.pipeline.accounting import SENT
from spillway.pipeline.dry_run import DryRun, chosen_batch, dry_run
from spillway.registry import lever
from spillway.store.files import read_rows
from spillway.store.tables import Tables

MOST_ROWS = 50_000
_PLENTY_KBPS = "1000000000 kbps"


@dataclass(frozen=True)
class Size:
    """The bytes of one form of the batch, and its number of rows."""

    form: str
    """`gzip`, `xz`, `parquet`: files of a compressor. `exact`, `bound`, `planned`: what Spillway sends without loss,
    within the bounds, and by the plan for the present capacity. `offered`: what it would send without any lever."""
    bytes: int
    rows: int

    @property
    def bytes_per_row(self) -> float:
        return self.bytes / self.rows


@dataclass(frozen=True)
class Comparison:
    """One batch of a stream in every form."""

    stream: str
    batch: int
    batch_date: date
    rows: int
    sizes: tuple[Size, ...]
    notes: tuple[str, ...] = ()

    @property
    def compressed_rows(self) -> int:
        """The number of rows that compressors were given."""
        return self.sizes[0].rows


def compare_with_lossless(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    stream: str,
    batch: int | None = None,
    say: Say = lambda _: None,
    most_rows: int = MOST_ROWS,
) -> Comparison | None:
    """Compare a batch of the stream (default: the newest whose raw rows are there); None if there is none."""
    tables = tables.now()
    contract = contracts.stream(stream)
    found = chosen_batch(tables, stream, batch)
    if found is None:
        return None
    files = tables.at("raw", stream).files(batch_date=found.batch_date, batch=found.batch)
    rows = read_rows(files, ["seq", *contract.names], found.first_seq, found.last_seq)
    rows = rows.sort_by("seq").select(list(contract.names)).slice(0, most_rows)
    say(f"{stream}: compressing {rows.num_rows:,} rows with gzip, xz and Parquet")
    compressed = lossless_sizes(rows, contract.keys, contract.order)
    sizes = [Size(form, size, rows.num_rows) for form, size in compressed.items()]
    notes = []
    for form, stated in _restated(contract).items():
        say(
            f"{stream}: sending batch {found.batch} {'without loss' if form == 'exact' else 'within its bounds'}"
        )
        try:
            sizes.append(Size(form, _crossing(tables, engine, stated, found.batch), found.rows or 0))
        except SpillwayError as problem:
            notes.append(str(problem))
    return Comparison(stream, found.batch, found.batch_date, found.rows or 0, tuple(sizes), tuple(notes))


def _restated(contract: StreamContract) -> dict[str, StreamContract]:
    """Return the contract that loses nothing (`exact`) and, if a lever uses bounds, the one within them (`bound`)."""
    exact = bound = contract
    for name in contract.lever_names:
        stated = lever(name).with_fewest_bytes(exact, exact=True)
        exact = _without(exact, name) if stated is None else stated
        stated = lever(name).with_fewest_bytes(bound, exact=False)
        bound = _without(bound, name) if stated is None else stated
    return {"exact": exact, "bound": bound} if bound.lever_names else {"exact": exact}


def _without(contract: StreamContract, name: str) -> StreamContract:
    return replace(contract, levers=tuple(one for one in contract.levers if one.lever != name))


def _crossing(tables: Tables, engine: Engine, contract: StreamContract, batch: int) -> int:
    """Return the bytes that a contract sends of a batch through a channel with room for everything."""
    stream = contract.stream
    channel = read_channel(contract.channel, {"capacity": _PLENTY_KBPS, "minimize": "bytes"})
    alone = Contracts({stream: contract}, {contract.channel: channel})
    with dry_run(tables, engine, alone, contract.channel, (stream, batch)) as run:
        if stream not in run.batches:
            why = run.waiting.get(stream, "it did not go through")
            raise SpillwayError(f"{stream}: batch {batch} cannot be compared: {why}")
        return _sent(run, stream)["bytes_kept"]


def planned_sizes(run: DryRun, stream: str) -> tuple[Size, Size]:
    """Return the bytes that a batch of a dry run offered, and the bytes that the plan sends."""
    rows, sent = run.batches[stream].rows or 0, _sent(run, stream)
    return Size("offered", sent["bytes_offered"], rows), Size("planned", sent["bytes_kept"], rows)


def _sent(run: DryRun, stream: str) -> Mapping[str, int]:
    """Return the bytes that the ledger of a dry run counts for a stream's batch."""
    where = {"subject": stream, "batch": run.batches[stream].batch, "stage": SENT, "unit": "rows"}
    rows = run.tables.at("ledger").rows(["bytes_offered", "bytes_kept"], dimension_kind=TOTAL, **where)
    (row,) = rows.to_pylist()
    return row

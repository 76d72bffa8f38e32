"""What the report shows of a stream, read from the tables and told by its levers.

Figures come from `spillway.show.summary`, which `build/run.json` uses too, so that the page and the file cannot
disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spillway.batch import RETIRED, Batch
from spillway.contracts import StreamContract
from spillway.contracts.workload import Workload
from spillway.ledger import Row
from spillway.levers.protocol import Picture
from spillway.levers.windows import WindowLever
from spillway.registry import lever
from spillway.show.compared import kept_comparison
from spillway.show.recent import last_windows, read_recent
from spillway.show.summary import StreamFigures, last_stages, recent_figures
from spillway.store.tables import Tables
from spillway.streams.dry_run import Comparison
from spillway.streams.facts import newest_facts


@dataclass(frozen=True)
class StreamFacts:
    """All the report says of a stream: of its last batches, and what was counted all along."""

    contract: StreamContract
    figures: StreamFigures
    batches: tuple[Batch, ...]
    ledger: tuple[Row, ...]
    certificates: tuple[Row, ...]
    pictures: tuple[Picture, ...]
    comparison: Comparison | None = None
    """A batch next to files of lossless compressors, if `spillway plan --compare` measured it."""

    @property
    def sent(self) -> list[Row]:
        """The ledger's rows that say how many bytes there were, and how many went over the wire."""
        return list(last_stages(self.ledger).values())

    @property
    def retired_bytes(self) -> int:
        """Bytes of raw that were deleted, as what happened beside the way recorded it."""
        gone = {batch.batch for batch in self.batches if batch.status == RETIRED}
        beside = [row for row in self.ledger if row["ordinal"] < 0 and row["batch"] in gone]
        return sum(row["bytes_offered"] - row["bytes_kept"] for row in beside)


def gather_facts(tables: Tables, streams: Sequence[StreamContract]) -> list[StreamFacts]:
    """The facts of every stream, by name."""
    found = []
    for contract in sorted(streams, key=lambda item: item.stream):
        recent = read_recent(tables, contract.stream)
        found.append(
            StreamFacts(
                contract,
                recent_figures(recent),
                recent.batches,
                recent.ledger,
                recent.certificates,
                tuple(_pictures(tables, contract)),
                kept_comparison(tables.settings, contract.stream),
            )
        )
    return found


@dataclass(frozen=True)
class WorkloadFacts:
    """All the report says of a join or a query."""

    name: str
    description: str
    ledger: tuple[Row, ...]
    pictures: tuple[Picture, ...] = ()


def workload_facts(tables: Tables, workloads: Mapping[str, Workload]) -> list[WorkloadFacts]:
    """The facts of every join and query that did anything, by name."""
    known = tables.at("ledger").rows(["subject"], scope=["join", "query"])["subject"].unique().to_pylist()
    found = []
    for name in sorted(known):
        contract, ledger = workloads.get(name), last_windows(tables, name)
        pictures = [] if contract is None else list(_workload_pictures(tables, contract))
        said = "" if contract is None else f"{contract.description} From {', '.join(contract.inputs)}."
        found.append(WorkloadFacts(name, said.strip(), ledger, tuple(pictures)))
    return found


def _workload_pictures(tables: Tables, contract: Workload) -> Iterator[Picture]:
    for name in contract.lever_names:
        one = lever(name)
        if isinstance(one, WindowLever):
            yield from one.pictures(contract, tables)


def _pictures(tables: Tables, contract: StreamContract) -> Iterator[Picture]:
    """What every lever of the stream shows, in the order in which they work on it."""
    for name in contract.lever_names:
        yield from lever(name).pictures(contract, newest_facts(tables, contract.stream, name), tables)

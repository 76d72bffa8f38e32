"""List the live files of one version of a table, and find those that may hold rows of a filter by partition value.

A shared table has at least one file per stream. If each question compared all files with its filter, the work of a run
would grow with the square of the number of streams. So files are indexed by the value of each partition column, and a
file becomes a `DataFile` only when a filter selects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from spillway.store.files import DataFile
from spillway.store.filters import Between, Filter, may_match, values_of

MakeFiles = Callable[[Sequence[int]], list[DataFile]]


class Listing:
    """The live files of a table at one version, in path order; it does not change.

    >>> files = [DataFile(f"t/{name}", 1, (("stream", name),)) for name in ("a", "b", "c")]
    >>> listing = Listing.of(files)
    >>> [file.path for file in listing.matching({"stream": ["c", "a", "z"]})], len(listing)
    (['t/a', 't/c'], 3)
    """

    def __init__(
        self, paths: Sequence[str], partitions: Mapping[str, Sequence[Any]], make: MakeFiles
    ) -> None:
        """`paths` and the `partitions` (by column) are in path order; `make` returns the files at some places."""
        self._paths, self._partitions, self._make = paths, partitions, make
        self._made: dict[int, DataFile] = {}
        self._places: dict[str, dict[Any, list[int]]] = {}
        self._place_of: dict[str, int] | None = None

    @staticmethod
    def of(files: Iterable[DataFile]) -> Listing:
        """Return the listing of files that are known already."""
        known = sorted(files, key=lambda file: file.path)
        columns = dict.fromkeys(name for file in known for name, _ in file.partition)
        partitions = {name: [file.value(name) for file in known] for name in columns}
        return Listing([file.path for file in known], partitions, lambda places: [known[at] for at in places])

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the files."""
        return self._paths

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, path: str) -> bool:
        return self.place_of(path) is not None

    def place_of(self, path: str) -> int | None:
        """Return the place of a file in path order; None if the file is not live."""
        if self._place_of is None:
            self._place_of = {path: place for place, path in enumerate(self._paths)}
        return self._place_of.get(path)

    def files(self) -> list[DataFile]:
        """Return all files."""
        return self._files(range(len(self._paths)))

    def matching(self, where: Filter) -> list[DataFile]:
        """Return the files that may hold rows that match a filter."""
        return [file for file in self._files(self._candidates(where)) if may_match(file, where)]

    def changed(self, gone: Iterable[DataFile], added: Iterable[DataFile]) -> Listing:
        """Return the listing without some files and with others."""
        left = {file.path: file for file in self.files()}
        for file in gone:
            left.pop(file.path, None)
        return Listing.of((left | {file.path: file for file in added}).values())

    def _files(self, places: Sequence[int]) -> list[DataFile]:
        missing = [place for place in places if place not in self._made]
        if missing:
            self._made.update(zip(missing, self._make(missing), strict=True))
        return [self._made[place] for place in places]

    def _candidates(self, where: Filter) -> Sequence[int]:
        """Return the places of the files whose partition may match; a file without a partition value may."""
        best: Sequence[int] = range(len(self._paths))
        for name, value in where.items():
            if name not in self._partitions or isinstance(value, Between):
                continue
            wanted = values_of(value)
            if None in wanted:
                continue
            index = self._index(name)
            found = [place for one in (*wanted, None) for place in index.get(one, ())]
            if len(found) < len(best):
                best = found
        return sorted(best)

    def _index(self, name: str) -> dict[Any, list[int]]:
        if name not in self._places:
            index: dict[Any, list[int]] = {}
            for place, value in enumerate(self._partitions[name]):
                index.setdefault(value, []).append(place)
            self._places[name] = index
        return self._places[name]

    def __iter__(self) -> Iterator[DataFile]:
        return iter(self.files())

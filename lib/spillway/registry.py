"""List the levers: the name of each in contracts, and its package.

The package of a lever has a module `settings` and a module `lever`. `settings.SETTINGS` is the record of what a
contract may state about the lever (see `contracts.fields`). `lever.LEVER` is the lever (see `levers.protocol`).
Its own tables and expectations are in folders `tables/` and `expectations/`. To add a lever, add its package
and one line here.

Many programs that read contracts do not shed. So settings are loaded by name, and loading them imports no
kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from spillway.errors import InvalidValue

LEVERS: dict[str, str] = {
    "attributes": "spillway.levers.attributes",
    "joins": "spillway.levers.joins",
    "quality": "spillway.levers.quality",
    "sifters": "spillway.levers.sifters",
}


def settings_of(name: str) -> type[Any]:
    """Return the record of what a contract may state about the lever."""
    found: type[Any] = import_module(f"{LEVERS[name]}.settings").SETTINGS
    return found


def columns_of(name: str) -> tuple[tuple[str, str, str], ...]:
    """Return the columns that the lever adds to rows: name, type, meaning (`COLUMNS` of its module `settings`).

    >>> [name for name, _, _ in columns_of("attributes")]
    ['scheme']
    """
    found: tuple[tuple[str, str, str], ...] = getattr(
        import_module(f"{LEVERS[name]}.settings"), "COLUMNS", ()
    )
    return found


def loses_rows(name: str) -> bool:
    """Return whether the lever may shed rows for good (`LOSES_ROWS` of its module `settings`)."""
    return bool(getattr(import_module(f"{LEVERS[name]}.settings"), "LOSES_ROWS", False))


def needs_every_row(name: str) -> bool:
    """Return whether the lever needs every row that it passed on to recover values (`NEEDS_EVERY_ROW`)."""
    return bool(getattr(import_module(f"{LEVERS[name]}.settings"), "NEEDS_EVERY_ROW", False))


def lever(name: str) -> Any:
    """Return the lever; raise `InvalidValue` if its attribute `name` is not the registered name."""
    found = import_module(f"{LEVERS[name]}.lever").LEVER
    if found.name != name:
        raise InvalidValue(
            f"{LEVERS[name]}.lever.LEVER.name", "be the registered name", found.name, f"set it to {name!r}"
        )
    return found


def product_folder(kind: str) -> Path:
    """Return the product's folder `tables` or `expectations`, which is next to this module.

    In a checkout it has links to `schemas/tables` and `expectations`; an installed package has the files. So
    `SPILLWAY_HOME` and `SPILLWAY_SCHEMAS` need not contain them.

    >>> (product_folder("tables") / "batches.yaml").is_file()
    True
    """
    return Path(__file__).parent / "product" / kind


def folders(kind: str) -> Mapping[str, Path]:
    """Return the folder of this kind (`tables`, `expectations`) of each lever that has one.

    >>> sorted(folders("nothing"))
    []
    """
    found = {}
    for name, package in LEVERS.items():
        folder = Path(str(import_module(package).__file__)).parent / kind
        if folder.is_dir():
            found[name] = folder
    return found


@contextmanager
def extra_levers(**packages: str) -> Iterator[None]:
    """Register more levers until the block ends, for tests."""
    before = dict(LEVERS)
    LEVERS.update(packages)
    try:
        yield
    finally:
        LEVERS.clear()
        LEVERS.update(before)

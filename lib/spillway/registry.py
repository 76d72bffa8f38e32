"""The levers there are: a name in contracts, and the package that is the lever.

A lever's package has a module `settings` with a record, named by `SETTINGS`, (what a contract may say of it, see
`contracts.fields`), a module `lever` with `LEVER` (see `levers.protocol`), and, where it has tables or expectations of
its own, folders `tables/` and `expectations/`. Adding a lever is adding its package and its line here.

Contracts are read by more than those that shed, so a lever's settings are looked up by name and import no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

LEVERS: dict[str, str] = {
    "attributes": "spillway.levers.attributes",
    "joins": "spillway.levers.joins",
    "quality": "spillway.levers.quality",
    "sifters": "spillway.levers.sifters",
}


def settings_of(name: str) -> type[Any]:
    """The record of what a contract may say of the lever."""
    found: type[Any] = import_module(f"{LEVERS[name]}.settings").SETTINGS
    return found


def columns_of(name: str) -> tuple[tuple[str, str, str], ...]:
    """The columns that the lever adds to rows: name, type, meaning (`COLUMNS` of its module `settings`).

    >>> [name for name, _, _ in columns_of("attributes")]
    ['scheme']
    """
    found: tuple[tuple[str, str, str], ...] = getattr(
        import_module(f"{LEVERS[name]}.settings"), "COLUMNS", ()
    )
    return found


def loses_rows(name: str) -> bool:
    """Whether rows that the lever sheds may be gone for good (`LOSES_ROWS` of its module `settings`)."""
    return bool(getattr(import_module(f"{LEVERS[name]}.settings"), "LOSES_ROWS", False))


def needs_every_row(name: str) -> bool:
    """Whether what the lever gives back rests on rows that it handed on (`NEEDS_EVERY_ROW`)."""
    return bool(getattr(import_module(f"{LEVERS[name]}.settings"), "NEEDS_EVERY_ROW", False))


def lever(name: str) -> Any:
    """The lever itself."""
    return import_module(f"{LEVERS[name]}.lever").LEVER


def product_folder(kind: str) -> Path:
    """The product's own `tables` or `expectations`: beside this module, however it was installed.

    A checkout has them as links to `schemas/tables` and `expectations`, an installed package as files; nobody's
    `SPILLWAY_HOME` or `SPILLWAY_SCHEMAS` has to hold them.

    >>> (product_folder("tables") / "batches.yaml").is_file()
    True
    """
    return Path(__file__).parent / "product" / kind


def folders(kind: str) -> Mapping[str, Path]:
    """Each lever's own folder of this kind (`tables`, `expectations`), where it has one.

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
def registered(**packages: str) -> Iterator[None]:
    """With more levers for a while, as tests have them."""
    before = dict(LEVERS)
    LEVERS.update(packages)
    try:
        yield
    finally:
        LEVERS.clear()
        LEVERS.update(before)

"""Where things are: the roots of the lake, the destination, the landing zone and the contracts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path


def _rooted(home: Path, value: str) -> str:
    """A URI stays as it is; a path is made absolute from `home`."""
    return value if "://" in value else str((home / value).resolve())


@dataclass(frozen=True)
class Settings:
    """The roots, read once from the environment.

    `SPILLWAY_HOME` (default: the working directory) holds `schemas/` and `build/`;
    `SPILLWAY_LAKE`, `SPILLWAY_DESTINATION`, `SPILLWAY_LANDING` and `SPILLWAY_SCHEMAS` overrule single roots; below
    `SPILLWAY_OUTPUT` (default: `output` of the build) lies what a job was asked to write.

    >>> Settings.from_environment({"SPILLWAY_HOME": "/srv", "SPILLWAY_LAKE": "s3a://bucket/lake"}).destination
    's3a://bucket/lake'
    """

    home: str
    lake: str
    destination: str
    landing: str
    schemas: str
    build: str
    output: str

    @staticmethod
    def in_memory(name: str, home: str = ".") -> Settings:
        """Roots that live no longer than this process, for what-ifs, evidence and tests; contracts are `home`'s.

        >>> Settings.in_memory("trial").lake
        'memory://trial/lake'
        """
        found = Settings.from_environment({"SPILLWAY_HOME": home})
        root = f"memory://{name}"
        return replace(found, lake=f"{root}/lake", destination=f"{root}/lake", landing=f"{root}/landing")

    def with_roots(self, roots: Mapping[str, str]) -> Settings:
        """With other roots, by field; paths are taken from the home."""
        return replace(self, **{name: _rooted(Path(self.home), root) for name, root in roots.items()})

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
        env = os.environ if environment is None else environment
        home = Path(env.get("SPILLWAY_HOME", ".")).resolve()
        lake = _rooted(home, env.get("SPILLWAY_LAKE", "lake"))
        return Settings(
            home=str(home),
            lake=lake,
            destination=_rooted(home, env.get("SPILLWAY_DESTINATION") or lake),
            landing=_rooted(home, env.get("SPILLWAY_LANDING", "landing")),
            schemas=_rooted(home, env.get("SPILLWAY_SCHEMAS", "schemas")),
            build=(build := _rooted(home, env.get("SPILLWAY_BUILD", "build"))),
            output=_rooted(home, env.get("SPILLWAY_OUTPUT", f"{build}/output")),
        )

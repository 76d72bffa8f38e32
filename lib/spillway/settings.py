"""Read the roots of the lake, the destination, the landing zone and the contracts from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.errors import InvalidValue

ROOT_VARIABLES = (
    "SPILLWAY_HOME",
    "SPILLWAY_LAKE",
    "SPILLWAY_DESTINATION",
    "SPILLWAY_LANDING",
    "SPILLWAY_SCHEMAS",
    "SPILLWAY_BUILD",
    "SPILLWAY_OUTPUT",
)
"""The environment variables with the roots."""
HOOK_PREFIX = "SPILLWAY_HOOK_"
"""Prefix of the variables with the hooks' addresses, which may contain passwords."""
LOCAL_ROOTS = ("home", "schemas", "build", "output")
"""Roots that must be folders of a file system, not URIs."""
_PASSWORD = re.compile(r"://[^/?#@]*:(?!\d+/).*@")
"""Matches a password in a URI, also one with slashes, as S3 keys have them; it does not match a port and a path."""
_QUERY = re.compile(r"(?<=://)([^?#]*)[?#].*", re.DOTALL)
_ONE_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")


def _rooted(home: Path, name: str, value: str, said_in: str | None = None) -> str:
    """Return a root: a URI unchanged, a path made absolute from `home`.

    `said_in`: where the value was given (default: the root's environment variable).

    >>> _rooted(Path("/srv"), "build", "s3://bucket/build")
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `SPILLWAY_BUILD` must be a path of a file system, got 's3://bucket/build'; write a \
path: only the lake, the destination and the landing zone may be URIs
    """
    variable = said_in or f"SPILLWAY_{name.upper()}"
    if _PASSWORD.search(value):
        shown = _PASSWORD.sub("://...@", value)
        remedy = "remove it, and set the store's own variables (AWS_ACCESS_KEY_ID, ...)"
        raise InvalidValue(variable, "hold no password, because it is shown and logged", shown, remedy)
    if _QUERY.search(value):
        # table paths are appended to a root, so nothing may follow its path; keys and signatures (SAS)
        # are often there
        remedy = "end the URI with its path, and give the store's keys and settings in its own variables"
        raise InvalidValue(variable, "have no query and no fragment", _QUERY.sub(r"\1?...", value), remedy)
    if _ONE_SLASH.match(value):
        remedy = "write two slashes for a URI, or ./ before a folder of that name"
        raise InvalidValue(variable, "be a path or a URI", value.partition(":/")[0] + ":/...", remedy)
    if "://" not in value:
        return str((home / value).resolve())
    if name in LOCAL_ROOTS:
        refuse_uri(variable, value)
    return value


def refuse_uri(field: str, value: str) -> None:
    """Refuse a URI if only a path is allowed."""
    if "://" in value:
        remedy = "write a path: only the lake, the destination and the landing zone may be URIs"
        raise InvalidValue(field, "be a path of a file system", value, remedy)


@dataclass(frozen=True)
class Settings:
    """The roots, read once from the environment.

    `SPILLWAY_HOME` (default: the working directory) contains `schemas/` and `build/`. Single roots are set by
    `SPILLWAY_LAKE`, `SPILLWAY_DESTINATION` and `SPILLWAY_LANDING` (paths or URIs), and by `SPILLWAY_SCHEMAS`
    and `SPILLWAY_BUILD` (paths). Jobs write requested output below `SPILLWAY_OUTPUT` (a path; default: `output`
    in the build folder). If only a path is allowed, a URI is rejected with an error that names the variable.

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

    @property
    def tasks_folder(self) -> str:
        """The folder with the inputs of tasks of running jobs; `spillway keep` removes what killed jobs left there."""
        return f"{self.lake}/.tasks"

    @staticmethod
    def in_memory(name: str, home: str = ".") -> Settings:
        """Return roots in the memory of this process; the contracts are those of `home`.

        What-if runs, evidence and tests use them.

        >>> Settings.in_memory("trial").lake
        'memory://trial/lake'
        """
        found = Settings.from_environment({"SPILLWAY_HOME": home})
        root = f"memory://{name}"
        return replace(found, lake=f"{root}/lake", destination=f"{root}/lake", landing=f"{root}/landing")

    def with_roots(self, roots: Mapping[str, str]) -> Settings:
        """Return the settings with other roots, by field; paths are relative to the home."""
        return replace(
            self, **{name: _rooted(Path(self.home), name, root, name) for name, root in roots.items()}
        )

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
        env = os.environ if environment is None else environment
        home = _rooted(Path(), "home", env.get("SPILLWAY_HOME", "."))
        root = Path(home)
        lake = _rooted(root, "lake", env.get("SPILLWAY_LAKE", "lake"))
        build = _rooted(root, "build", env.get("SPILLWAY_BUILD", "build"))
        return Settings(
            home=home,
            lake=lake,
            destination=_rooted(root, "destination", env.get("SPILLWAY_DESTINATION") or lake),
            landing=_rooted(root, "landing", env.get("SPILLWAY_LANDING", "landing")),
            schemas=_rooted(root, "schemas", env.get("SPILLWAY_SCHEMAS", "schemas")),
            build=build,
            output=_rooted(root, "output", env.get("SPILLWAY_OUTPUT", f"{build}/output")),
        )

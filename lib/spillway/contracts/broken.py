"""A contract that cannot be used, while the others are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.contracts.channel import Channel
from spillway.errors import Problem


@dataclass(frozen=True)
class BrokenContract:
    """Whose contract it is, by folder and file, what is wrong, and the channel it names if any.

    >>> broken = BrokenContract("streams", "weather", ())
    >>> broken.may_go_through("uplink", {"uplink": Channel(capacity="1 kbps", name="uplink")})
    True
    """

    folder: str
    subject: str
    problems: tuple[Problem, ...]
    channel: str | None = None

    def may_go_through(self, channel: str, channels: Mapping[str, Channel]) -> bool:
        """Whether a stream of it has room on the channel: where it names none that there is, it may be any."""
        if self.folder != "streams":
            return False
        own = channels.get(self.channel or "")
        return own is None or channel in (own.name, own.into)

"""What a contract may say of the toy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spillway.contracts.fields import Broken, Number, Text, rule

COLUMNS = (("tenth", "boolean", "whether the row is a tenth one"),)


@dataclass(frozen=True, kw_only=True)
class ToySettings:
    every: int = rule(Number(least=2, whole=True), "which rows go")
    aside: str = rule(Text(), "the attribute to look at", "temp")

    def rules(self) -> Iterator[Broken]:
        if self.every == 13:
            yield "every", "bring no bad luck", self.every, "write 12"

    def stream_rules(self, contract: Any) -> Iterator[Broken]:
        if self.aside not in contract.names:
            yield "aside", "be an attribute of the stream", self.aside, "name one"


SETTINGS = ToySettings

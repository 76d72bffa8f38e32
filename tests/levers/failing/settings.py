"""Where the toy crashes."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.contracts.fields import Choice, Number, OptionalValue, rule

STEPS = ("nowhere", "train", "offer", "plan", "draft", "account", "publish", "give back", "certify")


@dataclass(frozen=True, kw_only=True)
class FailingSettings:
    """At which step."""

    at: str = rule(Choice(STEPS), "the step that crashes", "nowhere")
    batch: int | None = rule(
        OptionalValue(Number(whole=True)), "plan: the batch that crashes; null: every one", None
    )


SETTINGS = FailingSettings

"""A channel that is a little too narrow costs a little: what is lost follows what is lacking."""

from __future__ import annotations

import pytest

from evidence.attributes.cliff import CASES, SHORTFALLS_PCT, CliffTrial, Loss, small_trial
from evidence.attributes.generated import Source

each_case = pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[pytest.mark.long] if place else []) for place, one in enumerate(CASES)]
)
"""The default settings, and the others in `make test-long`."""
ROUTERS = Source(
    "miq.net", "internet", ("Router", "Response Time", "Packet Loss", "Minimum Delay", "Average Delay"), 50
)
WEATHER = Source("w.net", "weather", ("Location", "Temperature", "Humidity", "Wind", "Pressure"), 60)
QUOTES = Source("q.net", "stock", ("Symbol", "Last Sale", "Net Change", "Share Volume"), 100)

POLLED = Source(
    "weather.yahoo.com",
    "weather",
    (
        "Location",
        "Temperature",
        "Dew Point",
        "Humidity",
        "Sun Rise",
        "Visibility",
        "Sun Set",
        "Barometer",
        "Wind",
    ),
    75,
)


@pytest.mark.long
@each_case
@pytest.mark.parametrize(
    "source",
    [ROUTERS, *(pytest.param(one, marks=pytest.mark.long) for one in (WEATHER, QUOTES))],
    ids=lambda one: one.domain,
)
def test_loss_is_at_most_twice_the_shortfall_and_one_frame(source: Source, case: str) -> None:
    trial = small_trial(source, CASES[case], f"test-{source.domain}-{case}")
    losses = trial.losses()
    assert trial.fixed_bytes < trial.lossless_bytes
    assert list(losses) == list(SHORTFALLS_PCT)
    assert losses[50.0] > 0, "half of what may be shed is missing"
    assert trial.excess_points(losses) == 0, losses
    trial.lake.forget()


@each_case
def test_batch_of_6_kb_loses_no_whole_attribute_for_a_small_shortfall(case: str) -> None:
    trial = small_trial(POLLED, CASES[case], f"test-polled-{case}")
    losses = trial.losses((0.1, 1.0, 3.0))
    assert trial.lossless_bytes < 8_000
    assert trial.excess_points(losses) == 0, losses
    assert max(losses.values()) < 100.0 / len(trial.measures)
    trial.lake.forget()


def test_batch_that_exceeds_its_channel_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that sheds nothing loses nothing; it must not pass."""
    trial = CliffTrial(None, "net", None)  # type: ignore[arg-type]
    for name, size in (("lossless_bytes", 900), ("fixed_bytes", 100)):
        monkeypatch.setattr(CliffTrial, name, size)
    monkeypatch.setattr(CliffTrial, "send_through", lambda *_: Loss(900, 0.0))
    assert set(trial.losses().values()) == {100.0}
    monkeypatch.setattr(CliffTrial, "send_through", lambda *_: Loss(500, 2.0))
    assert set(trial.losses().values()) == {2.0}

"""`python -m evidence --only adaptive`: what each adaptive mechanism gains over simple rules, on every real stream."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.adaptive.gains import LEAST_GAIN_PCT, Contest, below_least_gain, gain_figures, tell_contests
from evidence.adaptive.partitions import STREAMS, partition_contests
from evidence.adaptive.reevaluation import TRAINED_CHEAPLY, evaluations, planned_labs, reevaluation_contests
from evidence.adaptive.streams import LEFT_OUT, demo_lake, samples
from evidence.adaptive.values import (
    ERROR_PCT,
    category_contest,
    coder_contests,
    cycle_contests,
    lossless_contests,
    predictor_contest,
)
from evidence.attributes.real_streams import TRIED_REAL
from evidence.book import Book
from spillway.contracts import load_contracts
from spillway.settings import Settings

TITLES = {
    "predictors": f"Search over all predictors: bytes of later rows at E {ERROR_PCT:g} %, including the models",
    "coder": "Our coder on the same residuals: bytes",
    "coder_cpu": "Our coder on the same residuals: CPU seconds",
    "synopsis": f"Synopsis at E {ERROR_PCT:g} % instead of columns in their best lossless encoding: bytes",
    "synopsis_exact": "Synopsis without any error instead of columns in their best lossless encoding: bytes",
    "category": "The class recognised by names: bytes within the bounds of the class",
    "cycle_search": "Search for the sender's key under noise, with a declared key: bytes",
    "cycle_search_without_key": "Search for the sender's key under noise, with no declared key: bytes",
    "reevaluation": "Re-evaluation, thesis's settings (shortest prefix, ranked by deviation): points lost",
    "reevaluation_by_default": "Re-evaluation, default plan: points lost",
    "partition": "Choice among partitioners (`auto`), rows that no query asks for first: share lost",
    "partition_cpu": "Choice among partitioners (`auto`): CPU seconds of learning and sifting",
    "partition_by_region": "Choice among partitioners (`auto`), all rows by region: share lost",
    "partition_by_region_cpu": "Choice among partitioners (`auto`), all rows by region: CPU seconds",
}


def adaptive_figures(book: Book, settings: Settings, seeds: int = 20) -> dict[str, float]:
    """Return `adaptive.<mechanism>.gain_pct.<stream>`, with `_low` and `_high`, for every mechanism and stream."""
    book.section(
        "What adapting gains",
        "Each adaptive mechanism is compared with never adapting and with a simple rule, on the same blocks of every "
        "real stream. Gains are over the best rival, with 95 % intervals from a block bootstrap.",
    )
    contests: list[Contest] = []
    found: dict[str, float] = {}
    demo = demo_lake(load_contracts(settings.schemas), TRAINED_CHEAPLY)
    for sample in samples(demo):
        predictors, trained = predictor_contest(sample)
        of_cycle, cycle_extras = cycle_contests(sample)
        of_class, class_extras = category_contest(sample)
        contests += [predictors, *coder_contests(sample, trained), *lossless_contests(sample, trained)]
        contests += [of_class, *of_cycle]
        found |= cycle_extras | class_extras
    for lab in planned_labs(demo, [name for name in TRIED_REAL if name not in LEFT_OUT]):
        contests += reevaluation_contests(lab)
        found |= evaluations(lab)
    demo.forget()
    for make in STREAMS.values():
        contests += partition_contests(make())
    tell(book, contests)
    return found | gain_figures(contests) | verdicts(book, contests)


def tell(book: Book, contests: Sequence[Contest]) -> None:
    """Write a table for every mechanism."""
    for mechanism, title in TITLES.items():
        tell_contests(book, title, [one for one in contests if one.mechanism == mechanism])


def verdicts(book: Book, contests: Sequence[Contest]) -> dict[str, float]:
    """Name the mechanisms that gain less than the least gain on every stream."""
    below = below_least_gain(contests)
    rows = []
    for mechanism in dict.fromkeys(one.mechanism for one in contests):
        gains = {one.stream: one.gain for one in contests if one.mechanism == mechanism}
        stream = max(gains, key=lambda name: gains[name].pct)
        best = gains[stream]
        reaches = best.pct >= LEAST_GAIN_PCT
        rows.append((mechanism, len(gains), stream, best.pct, best.low, best.high, reaches))
    book.table(
        f"Largest gain over the best rival, and whether it reaches {LEAST_GAIN_PCT:g} %",
        ("mechanism", "streams", "largest on", "gain %", "low", "high", "reaches it"),
        rows,
    )
    return {
        f"adaptive.{name}.below_{LEAST_GAIN_PCT:g}_pct_everywhere": float(one) for name, one in below.items()
    }

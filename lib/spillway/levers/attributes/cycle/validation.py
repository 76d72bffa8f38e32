"""Check a candidate cycle: doubts because of a sender's name, and confirmation by held-back tuples.

*Doubts.* Two feeds that take turns give their label a perfect cycle of two, but the label does not identify a sender.
Suppose a candidate does not determine an attribute that looks like a sender's name (`codes.looks_like_a_key`). The
candidate is doubted if one of these holds:

- One of its attributes is a *property* of that name: the name determines it (a sensor determines its site).
- It consists of clocks only, or repeats only because of a clock in it.
- The values of the name are about equally frequent, at least as many attributes follow from it as from an attribute of
  the candidate, and the measures are closer to the previous tuple of the name than to that of the candidate, or than to
  the previous tuple of the stream.

A name that stays the same from one tuple of a member to its next is an attribute of the member, and raises no doubt.

*Held-back confirmation.* The last part of the training set must confirm what the first part shows. The ring is learned
on the first three quarters (on more rows if these have less than two cycles). It then predicts the last quarter,
including first visits. Members that join in between are skipped, members that left are not expected, and values that
belong to no ring count as failures. Both parts must reach the confidence required of the whole, less two standard
errors for their number of steps. The held-back steps must not be explained by guessing (Chernoff bound). So a cycle
that only the first part has is rejected, and so is an order that the search overfitted to its rows.

>>> import numpy as np
>>> steady = np.arange(400) % 5
>>> refuted = np.where(np.arange(400) < 330, steady, np.random.default_rng(0).integers(0, 5, 400))
>>> [confirm_on_held_back_rows(codes, trace_cycle(codes), 0.8).confirmed for codes in (steady, refuted)]
[True, False]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

import numpy as np

from spillway.levers.attributes.cycle.codes import (
    RECURRENCES,
    Codes,
    change_share,
    comes_evenly,
    determines,
    looks_like_a_key,
)
from spillway.levers.attributes.cycle.ring import conforming_steps
from spillway.levers.attributes.cycle.trace import EDGE_CYCLES, Trace, is_chance, trace_cycle
from spillway.levers.attributes.cycle.training_set import CodedTrainingSet, Set

CLOSENESS_ROWS = 10_000
MOST_NAMES = 8
"""Number of names that a candidate is compared with, those with most values first."""
OFTEN = 50
RARELY = 0.25
"""A name that changes in a smaller share of the steps from one tuple of a member to its next is its attribute."""

Votes = Callable[[Codes, Codes, Set, int], tuple[int, int]]
"""Returns how many measures are closer to the previous tuple of the second key, and how many to that of the first."""


class Doubts:
    """The doubts about the candidates of one training set; results are cached."""

    def __init__(self, coded: CodedTrainingSet, votes: Votes, comes_round: Callable[[Set], bool]) -> None:
        self._coded, self._votes, self._comes_round = coded, votes, comes_round
        self._known: dict[Set, str | None] = {}
        self._followed: dict[str, set[str]] = {}

    def doubtful_name(self, chosen: Set) -> str | None:
        """Return the attribute name that makes a candidate set doubtful; None if there is none."""
        if chosen not in self._known:
            self._known[chosen] = self._find_doubtful_name(chosen)
        return self._known[chosen]

    def _find_doubtful_name(self, chosen: Set) -> str | None:
        coded = self._coded
        joint = coded.joint(chosen)
        core = tuple(name for name in chosen if not coded.tells_time(name))
        if core and len(core) < len(chosen) and not self._comes_round(core):
            # only the hours repeat, the site stays the same
            return next(name for name in chosen if name not in core)
        for name in self.names[:MOST_NAMES]:
            key = coded.codes[name]
            if name in chosen or determines(joint, key):
                continue
            if not core and comes_evenly(key):
                return name
            if change_share(key, joint) < RARELY:
                continue
            if any(self.is_property(part, name) for part in chosen):
                return name
            # an attribute with properties of its own is a name, even if measures follow a status
            nobler = len(self._followers(name)) >= max(len(self._followers(part)) for part in chosen)
            if (
                nobler
                and comes_evenly(key)
                and self._goes_by(key, coded.joint(core or chosen), (*chosen, name))
            ):
                return name
        return None

    def _goes_by(self, key: Codes, rival: Codes, judged: Set) -> bool:
        """Return whether measures follow the key: they are closer to its previous tuple than to that of the rival.

        No measure may be closer to the rival's tuple. Measures must also be closer to the key's previous tuple than to
        the previous tuple of the stream, which is the closest one if all senders drift together.
        """
        anyone = np.zeros(len(key), dtype=np.int64)
        mine, others = self._votes(rival, key, judged, CLOSENESS_ROWS)
        return mine > 0 and not others and self._votes(anyone, key, judged, CLOSENESS_ROWS)[0] > 0

    @cached_property
    def names(self) -> list[str]:
        """Return the attributes that look like a sender's name, most values first; the values of a quantity must be
        about equally frequent."""
        coded = self._coded
        found = [
            name
            for name in coded.names
            if coded.may_repeat(name)
            and looks_like_a_key(coded.codes[name], quantity=False)
            and (not coded.is_quantity(name) or self._comes_evenly(name))
            and not coded.tells_time(name)
        ]
        return sorted(found, key=lambda name: (-coded.distinct(name), coded.names.index(name)))

    def _comes_evenly(self, name: str) -> bool:
        """Return whether the values are about equally frequent, overall or under another attribute (as in two
        feeds)."""
        coded = self._coded
        codes, values = coded.codes[name], coded.distinct(name)
        return comes_evenly(codes) or any(
            1 < coded.distinct(other) < values
            and determines(codes, coded.codes[other])
            and comes_evenly(codes, coded.codes[other])
            for other in coded.names
        )

    def is_property(self, name: str, key: str) -> bool:
        """Return whether the name `key` determines the attribute `name`, and not the other way round."""
        short, long = self._coded.codes[name], self._coded.codes[key]
        if not determines(long, short) or determines(short, long):
            return False
        return not self._coded.is_quantity(key) or comes_evenly(long, short)

    def likeliest_name(self, closest: Sequence[Set]) -> Set | None:
        """Return the attributes that an error message should propose as key; None if there are none.

        First choice is an attribute that determines others and is no property itself. Second are the names, and among
        them the one that most measures follow. Last is the first of `closest`, the candidates nearest to a cycle.
        """
        pool = [name for name in self._coded.names if self._may_name(name)]
        follow = {name: self._followers(name) for name in pool}
        leading = [name for name in pool if follow[name]]
        own = [name for name in leading if not any(name in follow[key] for key in leading)]
        if not own:
            own = [name for name in self.names if comes_evenly(self._coded.codes[name])] or list(self.names)
        if own:
            own.sort(key=lambda name: (-len(follow.get(name, ())), -self._coded.distinct(name)))
            own = own[:MOST_NAMES]
            places = {name: k for k, name in enumerate(own)}
            return (max(own, key=lambda n: (len(follow.get(n, ())), self._margin(n, own), -places[n])),)
        return closest[0] if closest else None

    def _may_name(self, name: str) -> bool:
        """Return whether an attribute may be a name: it recurs and is no clock.

        Reals must also be as frequent as names, or about equally frequent.
        """
        coded = self._coded
        codes = coded.codes[name]
        if (
            not coded.may_repeat(name)
            or coded.rows < RECURRENCES * coded.distinct(name)
            or coded.tells_time(name)
        ):
            return False
        often = coded.rows >= OFTEN * coded.distinct(name)
        return coded.columns[name].dtype.kind != "f" or often or comes_evenly(codes)

    def _followers(self, name: str) -> set[str]:
        """Return the attributes that this one determines and that do not determine it."""
        if name not in self._followed:
            self._followed[name] = self._found_followers(name)
        return self._followed[name]

    def _found_followers(self, name: str) -> set[str]:
        coded = self._coded
        codes = coded.codes[name]
        return {
            other
            for other in coded.names
            if 1 < coded.distinct(other) < coded.distinct(name)
            and determines(codes, coded.codes[other])
            and not determines(coded.codes[other], codes)
        }

    def _margin(self, name: str, rivals: Sequence[str]) -> int:
        """Return the number of measures that follow this name, less the number that follow a rival, over all rivals."""
        margin = 0
        for other in rivals:
            if other != name:
                mine, others = self._votes(
                    self._coded.codes[other], self._coded.codes[name], (name, other), CLOSENESS_ROWS
                )
                margin += mine - others
        return margin


HELD_BACK_SHARE = 0.25
KNOWN_SHARE = 0.5
"""Least share of the held-back tuples that belong to members of the first part."""
AHEAD = 3
MOVING = 0.5
"""Least share of the steps of each attribute that go a few places ahead; in short cycles every step does."""
STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class Confirmation:
    """Whether the held-back part confirms a cycle, and the share of its steps that conform."""

    confirmed: bool
    share: float


def first_rows(rows: int, length: float) -> int:
    """Return the number of rows to learn from: three quarters, or 2.1 cycles if that is more.

    >>> first_rows(1000, 10), first_rows(1000, 450)
    (750, 945)
    """
    return min(rows, max(rows - int(rows * HELD_BACK_SHARE), ceil(2.1 * length)))


def confirm_on_held_back_rows(codes: Codes, whole: Trace, confidence: float) -> Confirmation:
    """Return whether the last part of the rows confirms the ring that is learned from the first part."""
    cut = first_rows(len(codes), whole.mean_length)
    first = trace_cycle(codes[:cut], confidence=_less_error(confidence, cut))
    if not first.accepted:
        return Confirmation(False, first.confidence)
    later = codes[cut:]
    place = np.full(int(codes.max(initial=0)) + 2, -1, dtype=np.int64)
    joined = np.zeros(len(place), dtype=np.bool_)
    place[first.order] = np.arange(len(first.order))
    joined[whole.order] = True
    positions = place[later]
    known = positions >= 0
    strays = int((~known & ~joined[later] & (later >= 0)).sum())
    present = int((later >= 0).sum())
    if not present or known.sum() < KNOWN_SHARE * present:
        return Confirmation(False, 0.0)
    kept, counted = _count_predicted_steps(positions[known], first, whole.mean_length)
    share = kept / (counted + strays) if counted + strays else 0.0
    enough = share >= _less_error(confidence, counted + strays)
    return Confirmation(
        enough and not is_chance(kept, counted + strays, 1 / max(whole.mean_length, 2.0)), share
    )


def share_in_order(codes: Codes, trace: Trace, part: Codes) -> float:
    """Return the share of the steps that go a few places ahead, among those at which one attribute changes.

    Example: senders report at random, each with its eight readings in a row. Then seven of eight steps conform, but
    few of those at which the sender changes.

    >>> sender = np.repeat(np.random.default_rng(2).integers(0, 20, 100), 8)
    >>> both = 8 * sender + np.arange(800) % 8
    >>> trace = trace_cycle(both)
    >>> round(trace.confidence, 2), round(share_in_order(both, trace, sender), 2)
    (0.89, 0.18)
    """
    places = trace.positions(codes)
    known = np.flatnonzero(places >= 0)
    moved = part[known[1:]] != part[known[:-1]]
    members = len(trace.order)
    ahead = np.diff(places[known])[moved] % members
    few = AHEAD * members / max(trace.mean_length, 1.0)
    return float(np.mean((ahead >= 1) & (ahead <= few))) if len(ahead) else 1.0


def _count_predicted_steps(positions: Codes, first: Trace, length: float) -> tuple[int, int]:
    """Return the number of steps that follow the ring of the first part, and the number of steps that count."""
    members, n = len(first.order), len(positions)
    last = np.full(members, -1, dtype=np.int64)
    last[positions] = np.arange(n)
    stays = np.zeros(members, dtype=np.bool_)
    stays[first.interval_position[first.to_end]] = True
    edge = EDGE_CYCLES * length
    # a member that left before, or is absent for whole cycles, is not expected; one that returns is
    active = np.flatnonzero((last >= 0) | (stays & (n < edge)))
    gone = n - 1 - last[active] >= edge
    stops = np.where(gone & (last[active] >= 0), last[active] + 1, n + 1)
    starts = np.zeros(len(active), dtype=np.int64)
    kept, counted, _, _ = conforming_steps(positions, members, starts, stops, active, first_visits=True)
    return kept, counted


def _less_error(confidence: float, steps: int) -> float:
    return confidence - STANDARD_ERRORS * sqrt(confidence * (1 - confidence) / max(steps, 1))

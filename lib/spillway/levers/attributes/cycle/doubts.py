"""What speaks against a candidate that comes round: there is a sender's name that it does not determine.

Two feeds that take turns give their label a perfect cycle of two, and identify nobody. A candidate that does not
determine an attribute which looks like a sender's name (`identity`) is doubted where

- an attribute of it is a *property* of that name: it follows from the name (a site from its sensor);
- it is nothing but a clock, or comes round for the sake of a clock in it only;
- the name's values come about equally often, as many attributes follow from it, and the measures are closer to the
  previous tuple of the name than to the candidate's, or to the last of all.

A name that stays the same from one tuple of a member to its next is an attribute of the member, and no doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from spillway.levers.attributes.cycle.coded import CodedSet, Set
from spillway.levers.attributes.cycle.identity import (
    RECURRENCES,
    change_share,
    comes_evenly,
    determines,
    looks_like_a_key,
)
from spillway.levers.attributes.cycle.value_codes import Codes

CLOSENESS_ROWS = 10_000
MOST_NAMES = 8
"""Names held against a candidate, most values first."""
OFTEN = 50
RARELY = 0.25
"""A name that changes more seldom from one tuple of a member to its next is an attribute of the member."""

Votes = Callable[[Codes, Codes, Set, int], tuple[int, int]]
"""How many measures are closer to the previous tuple of the second key than of the first, how many of the first."""


class Doubts:
    """The doubts about one training set's candidates; what was judged is remembered."""

    def __init__(self, coded: CodedSet, votes: Votes, comes_round: Callable[[Set], bool]) -> None:
        self._coded, self._votes, self._comes_round = coded, votes, comes_round
        self._known: dict[Set, str | None] = {}
        self._followed: dict[str, set[str]] = {}

    def of(self, chosen: Set) -> str | None:
        """The name that speaks against a set that came round; None: none does."""
        if chosen not in self._known:
            self._known[chosen] = self._of(chosen)
        return self._known[chosen]

    def _of(self, chosen: Set) -> str | None:
        coded = self._coded
        joint = coded.joint(chosen)
        core = tuple(name for name in chosen if not coded.tells_time(name))
        if core and len(core) < len(chosen) and not self._comes_round(core):
            # the hours go round above a site that stays
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
            # what has properties of its own names something, whatever a status does to the measures
            nobler = len(self._followers(name)) >= max(len(self._followers(part)) for part in chosen)
            if (
                nobler
                and comes_evenly(key)
                and self._goes_by(key, coded.joint(core or chosen), (*chosen, name))
            ):
                return name
        return None

    def _goes_by(self, key: Codes, rival: Codes, judged: Set) -> bool:
        """Whether measures are closer to the previous tuple of the key than of the rival, none the other way round, and
        closer than to the last tuple of all, which is closest where they drift together.
        """
        anyone = np.zeros(len(key), dtype=np.int64)
        mine, others = self._votes(rival, key, judged, CLOSENESS_ROWS)
        return mine > 0 and not others and self._votes(anyone, key, judged, CLOSENESS_ROWS)[0] > 0

    @cached_property
    def names(self) -> list[str]:
        """Attributes that look like a sender's name, most values first; quantities only where they come evenly."""
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
        """Evenly as a whole, or under another attribute, as the members of two feeds do."""
        coded = self._coded
        codes, values = coded.codes[name], coded.distinct(name)
        return comes_evenly(codes) or any(
            1 < coded.distinct(other) < values
            and determines(codes, coded.codes[other])
            and comes_evenly(codes, coded.codes[other])
            for other in coded.names
        )

    def is_property(self, name: str, key: str) -> bool:
        """Whether a sender's name determines this attribute, which does not determine it in turn."""
        short, long = self._coded.codes[name], self._coded.codes[key]
        if not determines(long, short) or determines(short, long):
            return False
        return not self._coded.is_quantity(key) or comes_evenly(long, short)

    def likeliest_name(self, closest: Sequence[Set]) -> Set | None:
        """What an error should propose: the attribute that others follow from and that is nobody's property, else of
        the names the one that most measures go by, else the `closest` to a cycle that is free of properties.
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
        """Anything that recurs, save clocks, and fractions unless they come as evenly or as often as names."""
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
        """The attributes that follow from this one, and it not from them."""
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
        """How many measures go by this name and not by its rivals, less those the other way round."""
        margin = 0
        for other in rivals:
            if other != name:
                mine, others = self._votes(
                    self._coded.codes[other], self._coded.codes[name], (name, other), CLOSENESS_ROWS
                )
                margin += mine - others
        return margin

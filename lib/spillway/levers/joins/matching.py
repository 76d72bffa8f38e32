"""Kernels of a join: compare rows with the selected part of the opposite window, with an index or without.

**Probing** (Gedik, Wu, Yu and Liu, 2007, Algorithm 3). For each probing row, `take` rows of the window are selected.
Basic windows are used whole in the order of their ranks until `take` is spent; of the last one the newest rows are
used. In addition the row looks at random whole basic windows, from which ranks are learned, and at single sampled rows,
from which missed pairs are estimated. Each pair records whether the selection found it, or in which basic window
chance did.

Guarantees: every pair found is a pair of the full join (each is tested completely), and is found at most once. If
`take` is the whole window, the pairs are exactly those of the full join. With and without an index the same rows are
compared and the same pairs are found, with inner products summed in the same order.

Work is counted in *steps*. Without an index a step is a compared row. With an index it is an entry that is read, or a
list that is looked up: each further basic window costs look-ups, however few rows it has (5.1.1). A sampled row is
a step too, unless it is compared anyway.

**Predicates.** There are five, over sets of items. The items of each row are in ascending order.

    equality        L = R               (a single value is a set of one)
    subset          L in R              superset: R in L
    overlap         |L and R| >= theta
    inner product   sum over common items of weight_L weight_R >= theta

All of them depend on the common items, so an inverted index can answer them (4.2). A row without items (a null, an
empty text) matches nothing, even though in set theory the empty set is a subset of every set.

>>> import numpy as np
>>> a, b = np.array([1, 4, 9]), np.array([4, 9, 12])
>>> left, right = (ItemSets(np.array([0, 3]), items, np.ones(3)) for items in (a, b))
>>> int(shared(left, 0, 3, right, 0, 3)[0])
2
>>> bool(makes_pair(OVERLAP, 2.0, 2, 0.0, 3, 3)), bool(makes_pair(SUBSET, 0.0, 2, 0.0, 3, 3))
(True, False)

**Inverted index**: for each item the rows that have it, in the order of time (4.2.2).

Because lists are in the order of time, rows are appended at the end and expire at the other end, a basic window is a
range of each list, and a merge can stop at any moment: two binary searches find the range. For single values it is a
hash index. One list per item serves all basic windows, whereas the paper has one per basic window: neighbouring basic
windows are looked up together.

Lists that are not looked up need not exist: a list outside `asked` (the items of the probing rows) is empty. The index
of a window is rebuilt for the rows that probe it. That costs one pass over the window, less than maintaining all lists.

>>> import numpy as np
>>> from spillway.levers.joins.operands import ItemSets
>>> sets = ItemSets(np.array([0, 2, 3]), np.array([0, 1, 1]), np.ones(3))
>>> index = inverted(sets, 3)
>>> index.rows[index.first[1] : index.first[2]].tolist()
[0, 1]
>>> inverted(sets, 3, asked=np.array([False, False, True])).rows.tolist()
[]

**Order of pairs.** Pairs are sorted by their rows with two passes of counting, whatever order they were found in. Rows
are in the order of time, mostly that of seq, and each row has few pairs, so no comparison is needed: pairs are placed
by their right row and then, stably, by their left row (radix sort, least significant digit first).

**Looking (exploration).** A row compares all of a random basic window, to learn where matches lie.

The unit is a *cell*: a probing row and a basic window. A cell is looked at whole with the probability p_j of its basic
window,

    u(seq, j) < p_j,    u in [0, 1) by the row's seq, the basic window and a seed

so that a look is a range of neighbouring rows, which takes a fifth of the time of the same number of scattered rows.
Looks are spread over many rows, because the matches of one row come together, and go where little is known
(`exploration`). With an index one look-up serves a whole window, so a row looks at all of its window or at none
(`together`). The paper always uses whole rows, with one probability gamma r. A row that was not fetched (`who`) looks
at nothing.

**Sampling.** The estimate of missed pairs rests on comparisons that are drawn one by one.

Every comparison of the full join is drawn with the same probability q, independently of all others (Bernoulli sample).
The gap to the next drawn comparison is geometric,

    gap = floor(log(u) / log(1 - q)),    u in (0, 1] uniform by the probing row's seq and a seed,

so that the cost is proportional to the sample, and the sample depends on the row alone: every process draws the same.
Draws are independent, whatever the streams are like, so the number of pairs found is binomial (`estimates`). The paper
compares the share gamma of the rows with everything, but the matches of a row come together (a popular item, one heavy
row in hundreds). For learning, looks are as good and cheaper.

With an index the entries of the looked-up lists are drawn instead, so that rows without a common item cost nothing. A
pair of rows with k common items has k entries. The entry of the first common item stands for the pair, so each pair is
still drawn with probability q.

>>> low, high = np.zeros(1000, np.int64), np.full(1000, 500)
>>> some = drawn_comparisons(low, high, np.arange(1000), 0.01, 7)
>>> bool(abs(some.many - 5000) < 4 * 5000**0.5), int(some.rows.max()) < 500
(True, True)

**Basic windows.** A window of w seconds is n = 1 + ceil(w / b) basic windows of b seconds, the newest partly full
(5.1).

They lie on multiples of b, so a row never moves from one to another; the whole ring slides by one when time passes a
multiple. Rows are in the order of time, so the ring is given by the index of each basic window's first row
(`slot_starts`), and a row's basic window j (0 is the newest) is `slot - j`. The oldest basic window is partly expired:
a row is in the window of another as long as

    T(probe) - w <= T(row), and it is before the probe (equal times: left before right).

So every pair is searched for exactly once, by the later of its two rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.sketches.kernels import mix64

inner = njit(cache=True, _nrt=False)
"""Compile a function that allocates nothing: numba then counts no references to the arrays that it gets."""
inlined = njit(cache=True, _nrt=False, forceinline=True)
"""The same, for a function that LLVM would not inline but should: what it takes would be copied at each call."""
EQUALITY, SUBSET, SUPERSET, OVERLAP, INNER_PRODUCT = range(5)
PREDICATES = {
    "equality": EQUALITY,
    "subset": SUBSET,
    "superset": SUPERSET,
    "overlap": OVERLAP,
    "inner_product": INNER_PRODUCT,
}
"""Predicates by their name in contracts."""


@inner
def shared(  # type: ignore[no-untyped-def]
    left: ItemSets, begin, end, right: ItemSets, from_, to_
) -> tuple[int, float]:
    """Return how many items `begin..end - 1` and `from_..to_ - 1` have in common, and the sum of products of weights.

    It is one merge of two sorted lists.
    """
    i, j, common, product = begin, from_, 0, 0.0
    while i < end and j < to_:
        if left.items[i] == right.items[j]:
            common += 1
            product += left.weights[i] * right.weights[j]
            i += 1
            j += 1
        elif left.items[i] < right.items[j]:
            i += 1
        else:
            j += 1
    return common, product


@inner
def makes_pair(
    predicate: int, threshold: float, common: int, product: float, left_size: int, right_size: int
) -> bool:
    """Return whether two rows are a pair, from the number and product of their common items, and their sizes."""
    if common == 0:
        return False
    if predicate == EQUALITY:
        return bool(common == left_size and common == right_size)
    if predicate == SUBSET:
        return bool(common == left_size)
    if predicate == SUPERSET:
        return bool(common == right_size)
    if predicate == OVERLAP:
        return bool(common >= threshold)
    return bool(product >= threshold)


def oriented(predicate: int) -> int:
    """Return the predicate with exchanged sides, for a right row that probes left ones.

    >>> oriented(SUBSET) == SUPERSET, oriented(OVERLAP) == OVERLAP
    (True, True)
    """
    return {SUBSET: SUPERSET, SUPERSET: SUBSET}.get(predicate, predicate)


class InvertedIndex(NamedTuple):
    """The rows with item i, ascending, at `rows[first[i]..first[i + 1]]`, and the weight of the item in each."""

    first: Array
    rows: Array
    weights: Array


def inverted(sets: ItemSets, items: int, asked: Array | None = None) -> InvertedIndex:
    """Return the index of rows in the order of time. One pass counts, one appends: O(1) per item, as in 4.2.2."""
    wanted = np.ones(items, np.bool_) if asked is None else asked
    return InvertedIndex(*_appended(sets.first, sets.items, sets.weights, wanted))


def index_for(probes: ItemSets, window: ItemSets, rows: Array | None = None) -> InvertedIndex:
    """Return the index of a window with the lists that these rows look up (`rows`: a mask; None: all rows)."""
    items = max((int(one.items.max()) + 1 for one in (probes, window) if len(one.items)), default=0)
    asked = np.zeros(items, np.bool_)
    asked[probes.items if rows is None else probes.items[np.repeat(rows, np.diff(probes.first))]] = True
    return inverted(window, items, asked)


@njit(cache=True)
def _appended(first: Array, items: Array, weights: Array, wanted: Array) -> tuple[Array, Array, Array]:
    many = len(wanted)
    starts = np.zeros(many + 1, np.int64)
    for at in range(len(items)):
        if wanted[items[at]]:
            starts[items[at] + 1] += 1
    for item in range(many):
        starts[item + 1] += starts[item]
    ends = starts.copy()
    rows, worth = np.empty(starts[many], np.int64), np.empty(starts[many], np.float64)
    for row in range(len(first) - 1):
        for at in range(first[row], first[row + 1]):
            if wanted[items[at]]:
                place = ends[items[at]]
                rows[place], worth[place] = row, weights[at]
                ends[items[at]] = place + 1
    return starts, rows, worth


def pairs_in_order(*keys: tuple[Array, Array]) -> Array:
    """Return the order of pairs by the seq of their left row, then of their right row.

    `keys`: for each side, the seq of its rows and the row of each pair. Rows are in the order of time, mostly that of
    seq, so two passes of counting suffice.

    >>> pairs_in_order((np.array([7, 9]), np.array([1, 0, 1])), (np.array([4, 3, 5]), np.array([2, 0, 1]))).tolist()
    [1, 2, 0]
    """
    order: Array = np.arange(len(keys[0][1]))
    for seq, at in reversed(keys):
        place = at
        if (seq[1:] < seq[:-1]).any():
            ranks = np.empty(len(seq), np.int64)
            ranks[np.argsort(seq, kind="stable")] = np.arange(len(seq))
            place = ranks[at]
        if (place[order][1:] < place[order][:-1]).any():
            order = _by_place(place, order, len(seq))
    return order


@njit(cache=True)
def _by_place(places: Array, order: Array, many: int) -> Array:
    """Return the pairs sorted by place (stable counting sort)."""
    begins = np.zeros(many + 1, np.int64)
    for place in places:
        begins[place + 1] += 1
    for place in range(many):
        begins[place + 1] += begins[place]
    found = np.empty(len(order), np.int64)
    for pair in order:
        place = places[pair]
        found[begins[place]] = pair
        begins[place] += 1
    return found


_FAR = float(2**62)
"""A gap beyond any window."""
_SAMPLE_SALT, _SAMPLE_STEP = np.uint64(0xD1B54A32D192ED03), np.uint64(0x9E3779B97F4A7C15)


class Drawn(NamedTuple):
    """The sampled rows of each probing row's window: those of row k are at `first[k]..`."""

    first: Array
    rows: Array
    read: int = 0
    """Number of list entries that were read to draw them."""

    @property
    def many(self) -> int:
        """Return the number of sampled comparisons."""
        return len(self.rows)

    def cut(self, low: int, high: int, begin: int) -> Drawn:
        """Return the sample of some probing rows, for a window that begins at row `begin`."""
        span = slice(self.first[low], self.first[high])
        return Drawn(self.first[low : high + 1] - self.first[low], self.rows[span] - begin)


def nothing_drawn(rows: int) -> Drawn:
    """Return an empty sample for this number of probing rows."""
    return Drawn(np.zeros(rows + 1, np.int64), np.zeros(0, np.int64))


def drawn_comparisons(low: Array, high: Array, seq: Array, chance: float, seed: int) -> Drawn:
    """Draw a sample of all comparisons of each row with its window, `low..high - 1`."""
    if chance <= 0:
        return nothing_drawn(len(low))
    return Drawn(*_comparisons(low, high, seq.astype(np.uint64), float(chance), np.uint64(seed)))


def drawn_entries(
    probes: ItemSets,
    window: ItemSets,
    index_rows: Array,
    stretches: tuple[Array, Array],
    seq: Array,
    chance: float,
    seed: int,
) -> Drawn:
    """Draw a sample of all list entries within each row's window.

    `stretches`: the range of entries, by item of a probing row.
    """
    if chance <= 0:
        return nothing_drawn(len(seq))
    return Drawn(
        *_entries(
            probes.first, probes.items, window.first, window.items, index_rows, *stretches, seq.astype(np.uint64),
            float(chance), np.uint64(seed),
        )
    )  # fmt: skip


@njit(cache=True)
def _begun(seq: np.uint64, seed: np.uint64) -> np.uint64:
    return mix64(seq + np.uint64(1), mix64(seed, _SAMPLE_SALT))


@njit(cache=True)
def _gap(state: np.uint64, scale: float) -> int:
    """Return how many are skipped before the next one that is drawn; scale = 1 / log(1 - q)."""
    u = float((mix64(state, _SAMPLE_SALT) >> np.uint64(11)) + np.uint64(1)) / 9007199254740992.0
    return int(min(np.log(u) * scale, _FAR))


@njit(cache=True)
def _scale(chance: float) -> float:
    return 1.0 / np.log1p(-chance) if chance < 1 else 0.0


@njit(cache=True)
def _larger(rows: Array) -> Array:
    found = np.empty(2 * len(rows), np.int64)
    found[: len(rows)] = rows
    return found


@njit(cache=True)
def _comparisons(low, high, seq, chance, seed):  # type: ignore[no-untyped-def]
    scale = _scale(chance)
    first, rows, many = np.zeros(len(low) + 1, np.int64), np.empty(1024, np.int64), 0
    for k in range(len(low)):
        state, there = _begun(seq[k], seed), high[k] - low[k]
        place = _gap(state, scale)
        while place < there:
            if many == len(rows):
                rows = _larger(rows)
            rows[many] = high[k] - 1 - place
            many += 1
            state += _SAMPLE_STEP
            place += 1 + _gap(state, scale)
        first[k + 1] = many
    return first, rows[:many].copy()


@njit(cache=True)
def _entries(p_first, p_items, o_first, o_items, ix_rows, begins, ends, seq, chance, seed):  # type: ignore[no-untyped-def]
    scale = _scale(chance)
    first, rows, many, read = np.zeros(len(seq) + 1, np.int64), np.empty(1024, np.int64), 0, 0
    for k in range(len(seq)):
        there = 0
        for at in range(p_first[k], p_first[k + 1]):
            there += ends[at] - begins[at]
        state = _begun(seq[k], seed)
        place = _gap(state, scale)
        at, before = p_first[k], 0
        while place < there:
            while place >= before + ends[at] - begins[at]:
                before += ends[at] - begins[at]
                at += 1
            row = ix_rows[begins[at] + place - before]
            read += 1
            # the entry stands for the pair if no earlier item of the probing row is in the other row
            if _is_first(p_items[p_first[k] : at], o_items[o_first[row] : o_first[row + 1]]):
                if many == len(rows):
                    rows = _larger(rows)
                rows[many] = row
                many += 1
            state += _SAMPLE_STEP
            place += 1 + _gap(state, scale)
        first[k + 1] = many
    return first, rows[:many].copy(), read


@njit(cache=True)
def _is_first(earlier: Array, other: Array) -> bool:
    i, j = 0, 0
    while i < len(earlier) and j < len(other):
        if earlier[i] == other[j]:
            return False
        if earlier[i] < other[j]:
            i += 1
        else:
            j += 1
    return True


def basic_windows(seconds: float, basic_seconds: float) -> int:
    """Return n = 1 + ceil(w / b); both lengths are measured in whole microseconds.

    >>> basic_windows(20, 1), basic_windows(1.5, 1), basic_windows(1, 1 / 3)
    (21, 3, 5)
    """
    micros, basic = round(seconds * 1_000_000), max(1, round(basic_seconds * 1_000_000))
    return 1 - (-micros // basic)


def slots_of(at: Array, basic_micros: int) -> Array:
    """Return the basic window of each moment, counted from 1970."""
    return np.floor_divide(at, basic_micros)


def slot_starts(at: Array, basic_micros: int, first_slot: int, slots: int) -> Array:
    """Return the index of the first row of each basic window, and the end of the last.

    Rows are in the order of time.
    """
    edges = (first_slot + np.arange(slots + 1, dtype=np.int64)) * basic_micros
    return np.searchsorted(at, edges, side="left").astype(np.int64)


def drawn_together(mine: Array, window: Array, n: int) -> tuple[Array, Array]:
    """Renumber the slots of both sides so that a gap without rows counts as at most n + 1 basic windows.

    Rows further apart than n were never in one window and still are not. All other distances are unchanged.

    >>> drawn_together(np.array([5, 9_000_000]), np.array([3, 4, 9_000_000]), 10)
    (array([ 2, 13]), array([ 0,  1, 13]))
    """
    there, places = np.unique(np.concatenate([mine, window]), return_inverse=True)
    gaps = np.minimum(np.diff(there, prepend=there[:1]), n + 1)
    found = np.cumsum(gaps)[places]
    return found[: len(mine)], found[len(mine) :]


def reach_of(probe: Operand, other: Operand, micros: int, probe_is_left: bool) -> tuple[Array, Array]:
    """Return, by probing row, the rows of the other side in its window: `low..high - 1`."""
    low = np.searchsorted(other.at, probe.at - micros, side="left")
    high = np.searchsorted(other.at, probe.at, side="left" if probe_is_left else "right")
    return low.astype(np.int64), np.maximum(high, low).astype(np.int64)


@njit(cache=True)
def volumes(
    low: Array, high: Array, slots: Array, kinds: Array, starts: Array, first_slot: int, n: int, types: int
) -> Array:
    """Return the number of possible comparisons, by basic window and type of the probing row."""
    found = np.zeros((n, types), np.int64)
    last = len(starts) - 2
    for k in range(len(low)):
        if low[k] >= high[k]:
            continue
        for j in range(n):
            s = slots[k] - j - first_slot
            if s < 0 or s > last:
                continue
            begin, end = max(low[k], starts[s]), min(high[k], starts[s + 1])
            if end > begin:
                found[j, kinds[k]] += end - begin
    return found


class Selection(NamedTuple):
    """The arrays of a `Probing`, for kernels."""

    low: Array
    high: Array
    slots: Array
    take: Array
    order: Array
    starts: Array
    first_slot: int


@inner
def newest_taken(k: int, selection: Selection, taken: Array) -> None:
    """Write the number of rows used of each basic window to `taken`, `take[k]` in all, for probing row k.

    Basic windows are used in `order`. Of the last one that is needed, the newest rows are used.
    """
    low, high, starts = selection.low[k], selection.high[k], selection.starts
    left, last = min(selection.take[k], high - low), len(starts) - 2
    taken[:] = 0
    for j in selection.order:
        if left <= 0:
            break
        s = selection.slots[k] - j - selection.first_slot
        if s < 0 or s > last:
            continue
        there = min(high, starts[s + 1]) - max(low, starts[s])
        if there > 0:
            taken[j] = min(there, left)
            left -= taken[j]


@njit(cache=True)
def taken_whole(wanted: Array, draws: Array, selection: Selection) -> Array:
    """Return, by probing row, how many rows `newest_taken` should take so that no basic window is taken in part.

    Basic windows are used in `order` until `wanted` is reached. The last one is taken as a whole or not at all. Its
    probability is the part of it that is wanted, so the expected number is `wanted`. It is taken if the row's draw, in
    [0, 1), is below that probability. `take` is not read.
    """
    found, last = np.zeros(len(wanted), np.int64), len(selection.starts) - 2
    for k in range(len(wanted)):
        low, high = selection.low[k], selection.high[k]
        if wanted[k] >= high - low:
            found[k] = high - low
            continue
        for j in selection.order:
            s = selection.slots[k] - j - selection.first_slot
            if s < 0 or s > last:
                continue
            there = min(high, selection.starts[s + 1]) - max(low, selection.starts[s])
            if there <= 0:
                continue
            left = wanted[k] - found[k]
            if left >= there or draws[k] * there < left:
                found[k] += there
            if left <= there:
                break
    return found


_SALT, _STEP = np.uint64(0x2545F4914F6CDD1D), np.uint64(0x9E3779B97F4A7C15)


class Looking(NamedTuple):
    """By basic window, the probability that a row looks at all of it; `who`: the probing rows that look at all."""

    chances: Array = np.zeros(0)
    who: Array = np.zeros(0, np.bool_)
    together: bool = False
    seed: int = 0


@inner
def with_looks(  # type: ignore[no-untyped-def]
    k, seq, selection: Selection, looking: Looking, chosen, used
) -> None:
    """Write the number of rows used of each basic window to `used`, for probing row k.

    All rows of a basic window that the row looks at are used, else `chosen`.
    """
    starts, last = selection.starts, len(selection.starts) - 2
    state = mix64(np.uint64(seq) + np.uint64(1), mix64(np.uint64(looking.seed), _SALT))
    if looking.together:
        state = mix64(state, _SALT)
    for j in range(len(chosen)):
        used[j] = chosen[j]
        s = selection.slots[k] - j - selection.first_slot
        if s < 0 or s > last or looking.chances[j] <= 0:
            continue
        drawn = state if looking.together else mix64(state + np.uint64(j) * _STEP, _SALT)
        if float(drawn >> np.uint64(11)) / 9007199254740992.0 < looking.chances[j]:
            used[j] = max(0, min(selection.high[k], starts[s + 1]) - max(selection.low[k], starts[s]))


@inner
def _looks(k, looking: Looking) -> bool:  # type: ignore[no-untyped-def]
    return len(looking.who) > 0 and looking.who[k]


@njit(cache=True)
def made_by(seq: Array, kinds: Array, types: int, selection: Selection, looking: Looking):  # type: ignore[no-untyped-def]
    """Return comparisons by basic window and type (selected; selected or looked at), and the latter by row."""
    n, rows = len(selection.order), len(selection.low)
    selected, made = np.zeros((n, types), np.int64), np.zeros((n, types), np.int64)
    by_row = np.zeros(rows, np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for k in range(rows):
        looks = _looks(k, looking)
        if selection.high[k] <= selection.low[k] or (selection.take[k] <= 0 and not looks):
            continue
        newest_taken(k, selection, chosen)
        if looks:
            with_looks(k, seq[k], selection, looking, chosen, used)
        for j in range(n):
            selected[j, kinds[k]] += chosen[j]
            mine = used[j] if looks else chosen[j]
            made[j, kinds[k]] += mine
            by_row[k] += mine
    return selected, made, by_row


NO_INDEX = InvertedIndex(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))
SELECTED = -1
_COUNT = 1 << 24
"""More than the number of items of a row. One integer holds the probing row and its number of common items."""
_ROOM = 1024
"""Number of pairs for which there is room at first."""


@dataclass(frozen=True)
class Probing:
    """All decisions about one direction, made before a row is compared."""

    low: Array
    high: Array
    """By probing row, its window: the rows `low..high - 1` of the other side."""
    slots: Array
    """By probing row, the basic window that contains it."""
    take: Array
    """By probing row, the number of rows of its window that are selected."""
    order: Array
    """Basic windows by rank, the best first (s_i)."""
    starts: Array
    first_slot: int
    looking: Looking = field(default_factory=Looking)

    @property
    def selection(self) -> Selection:
        """Return the arrays for kernels."""
        return Selection(self.low, self.high, self.slots, self.take, self.order, self.starts, self.first_slot)


@dataclass(frozen=True)
class FoundPairs:
    """Pairs, and counts of the work."""

    probe: Array
    row: Array
    behind: Array
    """By pair: `SELECTED`, or the basic window in which chance found a pair that the selection left out."""
    compared: Array
    inside: Array
    everything: Array
    """By probing row: rows compared, pairs that the selection finds, pairs found."""
    by_lag: Array
    """Pairs by basic window."""
    drawn: int
    """Pairs that only the sample found."""
    steps: int


class _Side(NamedTuple):
    """The rows of one side."""

    sets: ItemSets
    seq: Array


class _Match(NamedTuple):
    """What makes a pair, and how pairs are searched."""

    predicate: int
    threshold: float
    with_itself: bool
    indexed: bool


class _Spans(NamedTuple):
    """The ranges of rows that the present probing row is compared with, and from which basic windows they come."""

    chosen: Array
    """By basic window, the number of rows that are selected."""
    used: Array
    """By basic window, the number of rows that are selected or looked at."""
    begins: Array
    ends: Array


class _Hits(NamedTuple):
    """The rows that match the present probing row, and what the search in an index needs by row of the window."""

    rows: Array
    common: Array
    """The last probing row that reached the row, with the number of common items."""
    product: Array
    """The weighted sum of common items."""
    touched: Array


def probe(
    mine: Operand,
    other: Operand,
    how: Probing,
    predicate: int,
    threshold: float,
    index: InvertedIndex | None = None,
    probe_is_left: bool = True,
    with_itself: bool = False,
    drawn: Drawn | None = None,
) -> FoundPairs:
    """Compare each row of `mine` with the selected part of `other`, and with the sample."""
    side = predicate if probe_is_left else oriented(predicate)
    found = _probe(
        _Side(mine.sets, mine.seq),
        _Side(other.sets, other.seq),
        how.selection,
        how.looking,
        nothing_drawn(mine.rows) if drawn is None else drawn,
        NO_INDEX if index is None else index,
        _Match(side, float(threshold), with_itself, index is not None),
    )
    return FoundPairs(*found)


@inlined
def _spans_of(k, seq, selection, looking, spans):  # type: ignore[no-untyped-def]
    """Write the ranges of rows that row k is compared with; return their number, and whether all rows are selected.

    Of each basic window the newest rows are used if it is selected, and all if it is looked at.
    """
    begins, ends = spans.begins, spans.ends
    if selection.take[k] >= selection.high[k] - selection.low[k]:
        begins[0], ends[0] = selection.low[k], selection.high[k]
        return 1, True
    newest_taken(k, selection, spans.chosen)
    used = spans.chosen
    if _looks(k, looking):
        used = spans.used
        with_looks(k, seq, selection, looking, spans.chosen, spans.used)
    count, n = 0, len(selection.order)
    for back in range(n):
        j = n - 1 - back
        if used[j] == 0:
            continue
        end = min(selection.high[k], selection.starts[selection.slots[k] - j - selection.first_slot + 1])
        begin = end - used[j]
        if count and ends[count - 1] == begin:
            ends[count - 1] = end
        else:
            begins[count], ends[count] = begin, end
            count += 1
    return count, False


@inner
def _size_of(sets, row):  # type: ignore[no-untyped-def]
    return sets.first[row + 1] - sets.first[row]


@inlined
def _look_up(k, count, spans, mine, other, index, match, found):  # type: ignore[no-untyped-def]
    """Search the spans in the lists of row k's items; return the numbers of hits and of steps."""
    sets, predicate, weighted = mine.sets, match.predicate, match.predicate == INNER_PRODUCT
    p_begin, p_end = sets.first[k], sets.first[k + 1]
    size, mark = p_end - p_begin, (k + 1) * _COUNT
    hits, touches, steps = 0, 0, 0
    # number of common items that makes a pair; for superset and equality the size of the other row counts too
    enough = int(np.ceil(max(1.0, match.threshold))) if predicate == OVERLAP else size
    for at in range(p_begin, p_end):
        item = sets.items[at]
        if item + 1 >= len(index.first):
            steps += count
            continue
        begin, end = index.first[item], index.first[item + 1]
        for span in range(count):
            place = begin + np.searchsorted(index.rows[begin:end], spans.begins[span])
            steps += 1 - place
            while place < end and index.rows[place] < spans.ends[span]:
                row, both = index.rows[place], 1
                if size > 1:  # another list may contain the row too
                    both = max(1, found.common[row] - mark + 1)
                    found.common[row] = mark + both
                if weighted:
                    if both == 1:
                        found.touched[touches], found.product[row] = row, 0.0
                        touches += 1
                    found.product[row] += sets.weights[at] * index.weights[place]
                else:
                    if predicate == SUPERSET:
                        enough = _size_of(other.sets, row)
                    if both == enough and (predicate != EQUALITY or _size_of(other.sets, row) == size):
                        found.rows[hits] = row
                        hits += 1
                place += 1
            steps += place
    for touch in range(touches):
        row = found.touched[touch]
        if found.product[row] >= match.threshold:
            found.rows[hits] = row
            hits += 1
    return hits, steps


@inlined
def _is_pair(k, row, mine, other, match):  # type: ignore[no-untyped-def]
    begin, end = mine.sets.first[k], mine.sets.first[k + 1]
    from_, to_ = other.sets.first[row], other.sets.first[row + 1]
    both, product = shared(mine.sets, begin, end, other.sets, from_, to_)
    return both > 0 and makes_pair(match.predicate, match.threshold, both, product, end - begin, to_ - from_)


@inlined
def _compare(k, count, spans, mine, other, match, found):  # type: ignore[no-untyped-def]
    """Compare row k with all rows of the spans; return the numbers of hits and of steps."""
    hits, steps = 0, 0
    for span in range(count):
        for row in range(spans.begins[span], spans.ends[span]):
            if _is_pair(k, row, mine, other, match):
                found.rows[hits] = row
                hits += 1
        steps += spans.ends[span] - spans.begins[span]
    return hits, steps


@inlined
def _is_within(row, count, spans):  # type: ignore[no-untyped-def]
    """Return whether a row is in one of the spans, which ascend."""
    for span in range(count):
        if row < spans.ends[span]:
            return row >= spans.begins[span]
    return False


@inlined
def _slot_of(row, starts, before):  # type: ignore[no-untyped-def]
    """Return the basic window of a row: most often that of the row before, or the next one."""
    s = before
    if row >= starts[s + 1]:
        s += 1
    if not (starts[s] <= row < starts[s + 1]):
        s = np.searchsorted(starts, row, side="right") - 1
    return s


@njit(cache=True)
def _probe(mine, other, selection, looking, drawn, index, match):  # type: ignore[no-untyped-def]
    # an array that is read from a tuple is counted as one more reference, which is slow: read each once
    low, high, slots, take, starts = (
        selection.low, selection.high, selection.slots, selection.take, selection.starts,
    )  # fmt: skip
    seq, other_seq, drawn_first, drawn_rows = mine.seq, other.seq, drawn.first, drawn.rows
    rows, n, others, weighted = (
        len(low),
        len(selection.order),
        len(other_seq),
        match.predicate == INNER_PRODUCT,
    )
    pair_probe, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
    pair_behind = np.empty(_ROOM, np.int64)
    chosen, begins, ends = np.zeros(n, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    spans = _Spans(chosen, np.zeros(n, np.int64), begins, ends)
    hit_rows, summed = np.empty(others, np.int64), others if weighted else 0
    found = _Hits(hit_rows, np.zeros(others, np.int64), np.zeros(summed), np.empty(summed, np.int64))
    compared, inside = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    everything, by_lag = np.zeros(rows, np.int64), np.zeros(n, np.int64)
    many, only_drawn, steps, s = 0, 0, 0, 0
    for k in range(rows):
        unused = take[k] <= 0 and drawn_first[k + 1] == drawn_first[k] and not _looks(k, looking)
        if high[k] <= low[k] or unused:
            continue
        count, all_selected = _spans_of(k, seq[k], selection, looking, spans)
        for span in range(count):
            compared[k] += ends[span] - begins[span]
        if match.indexed:
            hits, more = _look_up(k, count, spans, mine, other, index, match, found)
        else:
            hits, more = _compare(k, count, spans, mine, other, match, found)
        steps += more
        spanned = hits
        for at in range(drawn_first[k], drawn_first[k + 1]):
            row = drawn_rows[at]
            if _is_within(row, count, spans):  # it is compared already
                continue
            compared[k] += 1
            steps += 1
            if _is_pair(k, row, mine, other, match):
                hit_rows[hits] = row
                hits += 1
        for hit in range(hits):
            row = hit_rows[hit]
            if match.with_itself and other_seq[row] == seq[k]:
                continue
            s = _slot_of(row, starts, s)
            j = slots[k] - selection.first_slot - s
            beyond = not all_selected and row < min(high[k], starts[s + 1]) - chosen[j]
            if many == len(pair_row):
                pair_probe, pair_row = _larger(pair_probe), _larger(pair_row)
                pair_behind = _larger(pair_behind)
            pair_probe[many], pair_row[many], pair_behind[many] = k, row, j if beyond else SELECTED
            many += 1
            everything[k] += 1
            by_lag[j] += 1
            inside[k] += not beyond
            only_drawn += hit >= spanned
    return (
        pair_probe[:many], pair_row[:many], pair_behind[:many], compared, inside, everything, by_lag, only_drawn,
        steps,
    )  # fmt: skip

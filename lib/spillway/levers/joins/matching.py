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
>>> ones = np.ones(3)
>>> int(shared(a, ones, 0, 3, b, ones, 0, 3)[0])
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

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.sketches.kernels import mix64

EQUALITY, SUBSET, SUPERSET, OVERLAP, INNER_PRODUCT = range(5)
PREDICATES = {
    "equality": EQUALITY,
    "subset": SUBSET,
    "superset": SUPERSET,
    "overlap": OVERLAP,
    "inner_product": INNER_PRODUCT,
}
"""Predicates by their name in contracts."""
THRESHOLDED = ("overlap", "inner_product")


@njit(cache=True)
def shared(  # type: ignore[no-untyped-def]
    left, left_weights, begin, end, right, right_weights, from_, to_
) -> tuple[int, float]:
    """Return how many items `left[begin:end]` and `right[from_:to_]` have in common, and the sum of products of
    weights.

    It is one merge of two sorted lists.
    """
    i, j, common, product = begin, from_, 0, 0.0
    while i < end and j < to_:
        if left[i] == right[j]:
            common += 1
            product += left_weights[i] * right_weights[j]
            i += 1
            j += 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return common, product


@njit(cache=True)
def makes_pair(
    predicate: int, threshold: float, common: int, product: float, left_size: int, right_size: int
) -> bool:
    """Return whether two rows are a pair, from the number and product of their common items, and their sizes."""
    if common == 0:
        return False
    if predicate == 0:
        return bool(common == left_size and common == right_size)
    if predicate == 1:
        return bool(common == left_size)
    if predicate == 2:
        return bool(common == right_size)
    if predicate == 3:
        return bool(common >= threshold)
    return bool(product >= threshold)


def oriented(predicate: int) -> int:
    """Return the predicate with exchanged sides, for a right row that probes left ones.

    >>> oriented(SUBSET) == SUPERSET, oriented(OVERLAP) == OVERLAP
    (True, True)
    """
    return {SUBSET: SUPERSET, SUPERSET: SUBSET}.get(predicate, predicate)


@dataclass(frozen=True)
class InvertedIndex:
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


@dataclass(frozen=True)
class Drawn:
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


@njit(cache=True)
def newest_taken(  # type: ignore[no-untyped-def]
    low, high, slot, take, order, starts, first_slot, taken
) -> None:
    """Write the number of rows used of each basic window to `taken`, `take` in all, for one probing row.

    Basic windows are used in `order`. Of the last one that is needed, the newest rows are used.
    """
    left, last = min(take, high - low), len(starts) - 2
    taken[:] = 0
    for at in range(len(order)):
        if left <= 0:
            break
        j = order[at]
        s = slot - j - first_slot
        if s < 0 or s > last:
            continue
        there = min(high, starts[s + 1]) - max(low, starts[s])
        if there > 0:
            taken[j] = min(there, left)
            left -= taken[j]


@njit(cache=True)
def taken_whole(  # type: ignore[no-untyped-def]
    wanted, draws, low, high, slots, order, starts, first_slot
):
    """Return, by probing row, how many rows `newest_taken` should take so that no basic window is taken in part.

    Basic windows are used in `order` until `wanted` is reached. The last one is taken as a whole or not at all. Its
    probability is the part of it that is wanted, so the expected number is `wanted`. It is taken if the row's draw, in
    [0, 1), is below that probability.
    """
    found, last = np.zeros(len(wanted), np.int64), len(starts) - 2
    for k in range(len(wanted)):
        if wanted[k] >= high[k] - low[k]:
            found[k] = high[k] - low[k]
            continue
        for at in range(len(order)):
            s = slots[k] - order[at] - first_slot
            if s < 0 or s > last:
                continue
            there = min(high[k], starts[s + 1]) - max(low[k], starts[s])
            if there <= 0:
                continue
            left = wanted[k] - found[k]
            if left >= there or draws[k] * there < left:
                found[k] += there
            if left <= there:
                break
    return found


_SALT, _STEP = np.uint64(0x2545F4914F6CDD1D), np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Looking:
    """By basic window, the probability that a row looks at all of it; `who`: the probing rows that look at all."""

    chances: Array = field(default_factory=lambda: np.zeros(0))
    who: Array = field(default_factory=lambda: np.zeros(0, np.bool_))
    together: bool = False
    seed: int = 0


@njit(cache=True)
def with_looks(  # type: ignore[no-untyped-def]
    low, high, slot, seq, chances, together, seed, starts, first_slot, chosen, used
) -> None:
    """Write the number of rows used of each basic window to `used`, for one probing row.

    All rows of a basic window that the row looks at are used, else `chosen`.
    """
    state, last = mix64(seq + np.uint64(1), mix64(seed, _SALT)), len(starts) - 2
    if together:
        state = mix64(state, _SALT)
    for j in range(len(chosen)):
        used[j] = chosen[j]
        s = slot - j - first_slot
        if s < 0 or s > last or chances[j] <= 0:
            continue
        drawn = state if together else mix64(state + np.uint64(j) * _STEP, _SALT)
        if float(drawn >> np.uint64(11)) / 9007199254740992.0 < chances[j]:
            used[j] = max(0, min(high, starts[s + 1]) - max(low, starts[s]))


@njit(cache=True)
def made_by(  # type: ignore[no-untyped-def]
    low, high, slots, seq, take, kinds, order, starts, first_slot, types, chances, who, together, seed
):
    """Return comparisons by basic window and type (selected; selected or looked at), and the latter by row."""
    n = len(order)
    selected, made = np.zeros((n, types), np.int64), np.zeros((n, types), np.int64)
    by_row = np.zeros(len(low), np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for k in range(len(low)):
        looks = len(who) > 0 and who[k]
        if high[k] <= low[k] or (take[k] <= 0 and not looks):
            continue
        newest_taken(low[k], high[k], slots[k], take[k], order, starts, first_slot, chosen)
        if looks:
            with_looks(
                low[k], high[k], slots[k], seq[k], chances, together, seed, starts, first_slot, chosen, used
            )
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
    ix = NO_INDEX if index is None else index
    by_chance, looking = nothing_drawn(mine.rows) if drawn is None else drawn, how.looking
    found = _probe(
        mine.sets.first, mine.sets.items, mine.sets.weights, mine.seq,
        how.low, how.high, how.slots, how.take, how.order, how.starts, how.first_slot,
        looking.chances, looking.who, looking.together, np.uint64(looking.seed),
        by_chance.first, by_chance.rows,
        other.sets.first, other.sets.items, other.sets.weights, other.seq,
        ix.first, ix.rows, ix.weights, index is not None,
        predicate if probe_is_left else oriented(predicate), float(threshold), with_itself,
    )  # fmt: skip
    return FoundPairs(*found)


@njit(cache=True)
def _probe(  # type: ignore[no-untyped-def]
    p_first, p_items, p_weights, p_seq,
    low, high, slots, take, order, starts, first_slot,
    chances, who, together, seed,
    drawn_first, drawn_rows,
    o_first, o_items, o_weights, o_seq,
    ix_first, ix_rows, ix_weights, indexed,
    predicate, threshold, with_itself,
):  # fmt: skip
    rows, n, weighted = len(low), len(order), predicate == INNER_PRODUCT
    room = 1024
    out_probe, out_row = np.empty(room, np.int64), np.empty(room, np.int64)
    out_behind = np.empty(room, np.int64)
    pairs, drawn, steps = 0, 0, 0
    compared, inside = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    everything, by_lag = np.zeros(rows, np.int64), np.zeros(n, np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(n, np.int64)
    from_, to_ = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    # by row of the window: the last probing row that reached it with the number of common items; their weighted sum
    common, product = np.zeros(len(o_seq), np.int64), np.zeros(len(o_seq) if weighted else 0)
    touched, matching = np.empty(len(o_seq) if weighted else 0, np.int64), np.empty(len(o_seq), np.int64)
    s = 0
    for k in range(rows):
        p_begin, p_end = p_first[k], p_first[k + 1]
        size = p_end - p_begin
        whole, by_chance = high[k] - low[k], drawn_first[k + 1] - drawn_first[k]
        looks = len(who) > 0 and who[k]
        if whole <= 0 or (take[k] <= 0 and by_chance == 0 and not looks):
            continue
        # rows used of each basic window: the newest `chosen[j]` if it is selected, all if it is looked at
        all_selected, spans = take[k] >= whole, 0
        if all_selected:
            from_[0], to_[0], spans = low[k], high[k], 1
        else:
            newest_taken(low[k], high[k], slots[k], take[k], order, starts, first_slot, chosen)
            used[:] = chosen
            if looks:
                with_looks(
                    low[k], high[k], slots[k], np.uint64(p_seq[k]), chances, together, seed, starts, first_slot,
                    chosen, used,
                )  # fmt: skip
        for back in range(0 if all_selected else n):
            j = n - 1 - back
            if used[j] == 0:
                continue
            slot = slots[k] - j - first_slot
            end = min(high[k], starts[slot + 1])
            begin = end - used[j]
            if spans and to_[spans - 1] == begin:
                to_[spans - 1] = end
            else:
                from_[spans], to_[spans] = begin, end
                spans += 1
        for span in range(spans):
            compared[k] += to_[span] - from_[span]
        hits = 0
        if indexed:
            touches, mark = 0, (k + 1) * _COUNT
            # number of common items that makes a pair; for superset and equality the size of the other row counts too
            enough = int(np.ceil(max(1.0, threshold))) if predicate == OVERLAP else size
            for at in range(p_begin, p_end):
                item = p_items[at]
                if item + 1 >= len(ix_first):
                    steps += spans
                    continue
                begin, end = ix_first[item], ix_first[item + 1]
                for span in range(spans):
                    place = begin + np.searchsorted(ix_rows[begin:end], from_[span])
                    steps += 1 - place
                    while place < end and ix_rows[place] < to_[span]:
                        row, both = ix_rows[place], 1
                        if size > 1:  # another list may contain the row too
                            both = max(1, common[row] - mark + 1)
                            common[row] = mark + both
                        if weighted:
                            if both == 1:
                                touched[touches], product[row] = row, 0.0
                                touches += 1
                            product[row] += p_weights[at] * ix_weights[place]
                        else:
                            if predicate == SUPERSET:
                                enough = o_first[row + 1] - o_first[row]
                            if both == enough and (
                                predicate != EQUALITY or o_first[row + 1] - o_first[row] == size
                            ):
                                matching[hits] = row
                                hits += 1
                        place += 1
                    steps += place
            for touch in range(touches):
                row = touched[touch]
                if product[row] >= threshold:
                    matching[hits] = row
                    hits += 1
        else:
            for span in range(spans):
                for row in range(from_[span], to_[span]):
                    o_begin, o_end = o_first[row], o_first[row + 1]
                    both, sum_ = shared(
                        p_items, p_weights, p_begin, p_end, o_items, o_weights, o_begin, o_end
                    )
                    if both and makes_pair(predicate, threshold, both, sum_, size, o_end - o_begin):
                        matching[hits] = row
                        hits += 1
                steps += to_[span] - from_[span]
        spanned = hits
        for at in range(drawn_first[k], drawn_first[k + 1]):
            row, again = drawn_rows[at], False
            for span in range(spans):
                again = again or from_[span] <= row < to_[span]
            if again:  # it is compared already
                continue
            o_begin, o_end = o_first[row], o_first[row + 1]
            both, sum_ = shared(p_items, p_weights, p_begin, p_end, o_items, o_weights, o_begin, o_end)
            compared[k] += 1
            steps += 1
            if makes_pair(predicate, threshold, both, sum_, size, o_end - o_begin):
                matching[hits] = row
                hits += 1
        for hit in range(hits):
            row = matching[hit]
            if with_itself and o_seq[row] == p_seq[k]:
                continue
            # the basic window of the row: most often that of the previous row, or the next one
            if row >= starts[s + 1]:
                s += 1
            if not (starts[s] <= row < starts[s + 1]):
                s = np.searchsorted(starts, row, side="right") - 1
            j = slots[k] - first_slot - s
            beyond = not all_selected and row < min(high[k], starts[s + 1]) - chosen[j]
            if pairs == room:
                room *= 2
                bigger_probe, bigger_row = np.empty(room, np.int64), np.empty(room, np.int64)
                bigger_behind = np.empty(room, np.int64)
                bigger_probe[:pairs], bigger_row[:pairs] = out_probe[:pairs], out_row[:pairs]
                bigger_behind[:pairs] = out_behind[:pairs]
                out_probe, out_row, out_behind = bigger_probe, bigger_row, bigger_behind
            out_probe[pairs], out_row[pairs], out_behind[pairs] = k, row, j if beyond else SELECTED
            pairs += 1
            everything[k] += 1
            by_lag[j] += 1
            inside[k] += not beyond
            drawn += hit >= spanned
    return (
        out_probe[:pairs], out_row[:pairs], out_behind[:pairs], compared, inside, everything, by_lag, drawn, steps,
    )  # fmt: skip

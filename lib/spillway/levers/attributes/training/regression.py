"""Find exact relations and sparse regressions of a column on other attributes.

The basis has attributes that are never shed, of this row and of the key's previous row, and their products and ratios.
Terms are chosen by orthogonal matching pursuit (Pati, Rezaiifar, Krishnaprasad 1993): each step takes the term that
explains most of the residual. The error is relative, as the bound is. Outliers are left out of a second fit. A
regression predicts either the level, or the change since the key's previous row. The pursuit stops if only rounding is
left. Weights get as few digits as the fit allows.

Differences from a textbook fit: nothing is centred (a constant is a term like others), and the basis has at most
`WIDEST` attributes, those most related to the target, to limit the search.

>>> from spillway.levers.attributes.columns import Column
>>> rng = np.random.default_rng(1)
>>> a, b = rng.uniform(1, 9, 500).round(2), rng.uniform(1, 9, 500).round(2)
>>> columns = {"a": Column.real(a), "b": Column.real(b), "y": Column.real((a - b) / b * 100)}
>>> found = regressions("y", Frame(np.arange(500), np.zeros(500, int), columns), ["a", "b"])
>>> ["100*a/b", "-100"] in [[str(term) for term in predictor.terms] for predictor in found]
True
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement, permutations

import numpy as np

from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.synopsis.model import Predictor, Term
from spillway.levers.attributes.synopsis.predictors import RegressorReader, same_key_before

WIDEST = 6
MOST_TERMS = 4
_ROWS = 1000
_EXACT = 1e-9
_LARGEST = 1e150  # squares of larger numbers overflow


def basis(names: Sequence[str]) -> list[Term]:
    """Return the basis: a constant, each attribute now and in the key's previous row, products, and ratios."""
    terms = [Term(1.0)]
    terms += [Term(1.0, (name,)) for name in names]
    terms += [Term(1.0, (name + "@1",)) for name in names]
    terms += [Term(1.0, pair) for pair in combinations_with_replacement(names, 2)]
    terms += [Term(1.0, (over,), (under,)) for over, under in permutations(names, 2)]
    terms += [Term(1.0, (name,), (name + "@1",)) for name in names]
    terms += [Term(1.0, (a, b), (c,)) for a, b, c in permutations(names, 3) if a < b]
    return terms


def regressions(target: str, frame: Frame, names: Sequence[str]) -> list[Predictor]:
    """Return regressions of `target` on the attributes `names`, with up to MOST_TERMS terms, of levels and changes."""
    # terms that overflow count as useless, without a warning
    with np.errstate(all="ignore"):
        return _regressions(target, frame, names)


def _regressions(target: str, frame: Frame, names: Sequence[str]) -> list[Predictor]:
    column = frame.columns[target]
    truth = np.where(column.valid, column.values.astype(np.float64), np.nan)
    reader = RegressorReader(frame)
    usable = np.abs(truth) < _LARGEST
    names = [name for name in names if _known_share(reader.values(name), usable) > 0.5]
    if not names or usable.sum() < 32:
        return []
    names = _most_related(truth, reader, names)
    terms = basis(names)
    with np.errstate(all="ignore"):
        features = np.stack([reader.product(term) for term in terms], axis=1)
    usable &= np.isfinite(
        features[:, [i for i, t in enumerate(terms) if not _reads_previous_row(t)]][:, : len(names) + 1]
    ).all(1)
    found = _levels(truth, features, terms, usable)
    before = same_key_before(frame.key)
    pairs = usable & (before >= 0)
    pairs &= usable[np.maximum(before, 0)]
    rows = np.flatnonzero(pairs)
    if len(rows) >= 32:
        with np.errstate(all="ignore"):
            changes, change_features = (
                truth[rows] - truth[before[rows]],
                features[rows] - features[before[rows]],
            )
        for weights, chosen in _fit_terms(changes, change_features, np.abs(truth[rows]), MOST_TERMS - 1):
            found.append(_regression(terms, chosen, weights, 1.0))
        found += [
            p for p in (_persistent(p, truth, frame, rows, before) for p in tuple(found)) if p is not None
        ]
    return found


def _reads_previous_row(term: Term) -> bool:
    return any(name.endswith("@1") for name in term.numerators + term.denominators)


def _known_share(values: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.isfinite(values[wanted]).mean()) if bool(wanted.any()) else 0.0


def _most_related(truth: np.ndarray, reader: RegressorReader, names: list[str]) -> list[str]:
    """Return the attributes most correlated with the target, by value or by change, in the given order."""
    if len(names) <= WIDEST:
        return list(names)
    scores = []
    for name in names:
        values = reader.values(name)
        both = np.isfinite(values) & np.isfinite(truth)
        scores.append(
            max(_correlation(values[both], truth[both]), _correlation(*_changes(values[both], truth[both])))
        )
    best = sorted(range(len(names)), key=lambda i: -scores[i])[:WIDEST]
    return [names[i] for i in sorted(best)]


def _changes(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.diff(a), np.diff(b)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) < 3:
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return abs(float((a * b).sum())) / size if size > 0 else 0.0


def _levels(
    truth: np.ndarray, features: np.ndarray, terms: list[Term], usable: np.ndarray
) -> list[Predictor]:
    rows = np.flatnonzero(usable)
    size = np.abs(truth[rows])
    fits = _fit_terms(truth[rows], features[rows], size, MOST_TERMS)
    fits += [pair for even in (True, False) for pair in _best_pair(truth[rows], features[rows], size, even)]
    return [_regression(terms, chosen, weights, 0.0) for weights, chosen in fits]


def _regression(terms: list[Term], chosen: list[int], weights: np.ndarray, persistence: float) -> Predictor:
    parts = [
        Term(float(weight), terms[i].numerators, terms[i].denominators)
        for i, weight in zip(chosen, weights, strict=True)
    ]
    return Predictor("regression", tuple(parts), persistence)


def _complete_rows(
    target: np.ndarray, features: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return a sample of the rows that have a value in each feature that is mostly present; None if they are few."""
    step = max(1, len(target) // _ROWS)
    target, features, size = target[::step], features[::step], size[::step]
    whole = np.isfinite(features).mean(0) > 0.9
    kept = np.isfinite(features[:, whole]).all(1)
    if kept.sum() < 16:
        return None
    return target[kept], np.where(whole, features[kept], 0.0), size[kept]


def _fit_terms(
    target: np.ndarray, features: np.ndarray, size: np.ndarray, most: int
) -> list[tuple[np.ndarray, list[int]]]:
    """Return fits of 1, 2, ... terms as (weights, chosen features); stop if no residual is left."""
    sample = _complete_rows(target, features, size)
    if sample is None:
        return []
    target, features, size = sample
    floor = max(float(np.median(size)) * 1e-3, 1e-300)
    importance = 1.0 / np.maximum(size, floor)
    with np.errstate(over="ignore"):
        y, x = target * importance, features * importance[:, None]
        scale = np.sqrt((x * x).sum(0))
    live = np.isfinite(scale) & (scale > 0) & (scale < 1e150)
    x = np.where(live, x / np.where(live, scale, 1.0), 0.0)
    near = np.ones(len(y), np.bool_)
    fits: list[tuple[np.ndarray, list[int]]] = []
    chosen: list[int] = []
    rest, left_over = y, x.copy()
    for _ in range(most):
        norms = np.sqrt((left_over[near] ** 2).sum(0))
        gain = np.where(norms > 1e-6, np.abs(left_over[near].T @ rest[near]) / np.maximum(norms, 1e-6), 0.0)
        gain[chosen] = 0.0
        best = int(np.argmax(gain))
        if gain[best] <= 1e-12 * max(1.0, float(np.abs(y).max())):
            break
        chosen.append(best)
        weights = np.linalg.lstsq(x[near][:, chosen], y[near], rcond=None)[0]
        rest = y - x[:, chosen] @ weights
        spread = float(np.median(np.abs(rest)))
        near = np.abs(rest) <= max(12 * spread, _EXACT)
        weights = np.linalg.lstsq(x[near][:, chosen], y[near], rcond=None)[0]
        rest = y - x[:, chosen] @ weights
        basis_of = np.linalg.qr(x[near][:, chosen])[0]
        left_over = np.zeros_like(x)
        left_over[near] = x[near] - basis_of @ (basis_of.T @ x[near])
        fits.append(_prune_weights(weights / scale[chosen], [*chosen], features, target, importance))
        if float(np.median(np.abs(rest))) < _EXACT:
            break
    return fits


def _best_pair(
    target: np.ndarray, features: np.ndarray, size: np.ndarray, even: bool
) -> list[tuple[np.ndarray, list[int]]]:
    """Return the best fit with two terms, by absolute error (`even`) or by relative error.

    With unit vectors x_i and y, b = x'y and r = x_i'x_j, a pair explains (b_i^2 + b_j^2 - 2 r b_i b_j) / (1 - r^2) of
    y. One matrix product tries all pairs. It finds differences whose terms explain little alone.
    """
    sample = _complete_rows(target, features, size)
    if sample is None:
        return []
    target, features, size = sample
    importance = (
        np.ones(len(size)) if even else 1.0 / np.maximum(size, max(float(np.median(size)), 1e-300) * 1e-3)
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        y, x = target * importance, features * importance[:, None]
        norms, length = np.sqrt((x * x).sum(0)), float(np.sqrt((y * y).sum()))
        live = np.isfinite(norms) & (norms > 0) & (norms < 1e150)
        unit = np.where(live, x / norms, 0.0)
        if not 0 < length < 1e150:
            return []
        with_target, together = unit.T @ (y / length), unit.T @ unit
        own, other = with_target[:, None], with_target[None, :]
        explained = (own**2 + other**2 - 2 * together * own * other) / (1.0 - together**2)
    explained = np.where((together**2 < 1 - 1e-9) & live[:, None] & live[None, :], explained, -np.inf)
    best = int(np.argmax(explained))
    chosen = [best // len(live), best % len(live)]
    if not np.isfinite(explained.flat[best]):
        return []
    weights = np.linalg.lstsq(x[:, chosen], y, rcond=None)[0]
    return [_prune_weights(weights, chosen, features, target, importance)]


def _prune_weights(
    weights: np.ndarray, chosen: list[int], features: np.ndarray, target: np.ndarray, importance: np.ndarray
) -> tuple[np.ndarray, list[int]]:
    """Return the weights with as few digits and terms as possible without a worse fit."""

    def miss(candidate: np.ndarray) -> float:
        return float(np.median(np.abs((target - features[:, chosen] @ candidate) * importance)))

    allowed = miss(weights) * 1.001 + 1e-12
    for i in range(len(chosen)):
        without = np.where(np.arange(len(chosen)) == i, 0.0, weights)
        if np.count_nonzero(without) and miss(without) <= allowed:
            weights = without
    for digits in range(1, 12):
        short = np.array([float(f"{weight:.{digits}g}") for weight in weights])
        if miss(short) <= allowed:
            weights = short
            break
    kept = np.flatnonzero(weights)
    return (weights[kept], [chosen[i] for i in kept]) if len(kept) else (weights[:1], chosen[:1])


def _persistent(
    predictor: Predictor, truth: np.ndarray, frame: Frame, rows: np.ndarray, before: np.ndarray
) -> Predictor | None:
    """Return the level regression with the key's last residual carried over; None if residuals do not persist."""
    if predictor.persistence:
        return None
    reader = RegressorReader(frame)
    with np.errstate(all="ignore"):
        level = sum((term.weight * reader.product(term) for term in predictor.terms), np.zeros(len(frame)))
    miss = (truth - level) / np.maximum(np.abs(truth), 1e-300)
    now, then = miss[rows], miss[before[rows]]
    good = np.isfinite(now) & np.isfinite(then)
    good &= (np.abs(now) < 1) & (np.abs(then) < 1)
    power = float((then[good] ** 2).sum())
    if power <= 0:
        return None
    share = round(min(1.0, float((now[good] * then[good]).sum()) / power), 2)
    return Predictor("regression", predictor.terms, share) if share > 0.05 else None

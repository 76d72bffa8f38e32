"""Compare one predictor per key with the predictor that training chose for all keys.

Every predictor that training tries without blending runs alone over the later tuples, at the coarsest precision. The
entries of each key under its own predictor are packed. The best predictor of a key is chosen on the training tuples,
or in *hindsight* on the later ones, by the estimated bits of its entries. The assignment of predictors to keys and
the additional blocks are not counted; both favour the choice by key.

>>> estimated_bits(np.array([True, False]), np.array([3, 0])).tolist()
[6.0, 40.0]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evidence.attributes.codecs.ours import Trained
from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.option import PREDICTORS
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.synopsis.entries import Entries, Shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Predictor
from spillway.levers.attributes.training.candidates import simple_predictors
from spillway.levers.attributes.training.search import shed_all

WHOLE_BITS, ENTRY_BITS = 40.0, 2.0


def estimated_bits(is_step: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the approximate number of bits of each entry."""
    return np.where(is_step, ENTRY_BITS + 2.0 * np.log2(1.0 + np.abs(steps)), WHOLE_BITS)


def single_predictor_models(model: AttributeModel, frame: Frame) -> list[AttributeModel]:
    """Return the model with each predictor that training tries, one at a time; a regression with its fallback."""
    own = [one for one in model.predictors if one.name != "any"]
    tried: list[tuple[Predictor, ...]] = [(Predictor("previous"),)]
    tried += [(one,) for one in simple_predictors(frame, model.attribute, PREDICTORS)]
    tried += [(one, Predictor("previous")) if one.terms else (one,) for one in own if one.name != "last"]
    return [replace(model, predictors=one, blend=False) for one in dict.fromkeys(tried)]


def best_predictor_by_key(frame: Frame, walked: list[Shed], keys: np.ndarray) -> np.ndarray:
    """Return, for each key, the index of the predictor whose entries take the fewest bits."""
    bits = np.zeros((len(walked), len(keys)))
    for place, one in enumerate(walked):
        at = np.searchsorted(keys, frame.key[one.positions])
        np.add.at(bits[place], at, estimated_bits(one.entries.is_step, one.entries.steps))
    return np.asarray(bits.argmin(0))


def packed_by_key(frame: Frame, walked: list[Shed], keys: np.ndarray, choice: np.ndarray) -> int:
    """Return the packed bytes of the entries if each key has its own predictor."""
    found: Entries | None = None
    for place, one in enumerate(walked):
        at = np.minimum(np.searchsorted(keys, frame.key[one.positions]), len(keys) - 1)
        known = keys[at] == frame.key[one.positions]
        # a key that training did not see has the first
        mine = one.entries.take(np.where(known, choice[at], 0) == place)
        found = mine if found is None else found + mine
    assert found is not None, "one predictor at least is tried"
    return len(pack(found.take(np.argsort(found.seq, kind="stable")), frame))


def over_ours(trained: Trained, training: Frame, later: Frame) -> dict[str, float]:
    """Return the bytes with predictors by key over ours: chosen on training tuples, and in hindsight."""
    sizes = {"ours": 0, "training": 0, "hindsight": 0}
    for name in trained.order:
        model = trained.attributes[name].model
        ours = shed_all(model, later)
        mine = len(pack(ours.entries, later))
        sizes["ours"] += mine
        if model.kind == "text" or model.paper_form:
            sizes["training"] += mine
            sizes["hindsight"] += mine
        else:
            models = single_predictor_models(model, training)
            before, after = [shed_all(m, training) for m in models], [shed_all(m, later) for m in models]
            for when, frame, walked in (("training", training, before), ("hindsight", later, after)):
                keys = np.unique(frame.key)
                sizes[when] += packed_by_key(later, after, keys, best_predictor_by_key(frame, walked, keys))
        given = shed_all(model, training).reconstructed
        training = training.with_columns({name: given})
        later = later.with_columns({name: ours.reconstructed})
    return {when: sizes[when] / max(1, sizes["ours"]) for when in ("training", "hindsight")}

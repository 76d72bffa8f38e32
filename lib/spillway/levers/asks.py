"""What a lever asks of whoever wrote the contract: a line that training had to do without.

The question travels with the fact that was assumed, in its evidence, and whoever shows how things stand (`status`)
finds it there, of any lever. It is asked until a training was told.

>>> from spillway.levers.protocol import Fact, Facts
>>> fact = Fact("colour", "", "grey", asking("its colour is assumed", "write `colour:` in the contract"))
>>> list(open_questions(Facts(1, {("colour", ""): fact})))
[OpenQuestion(sentence='its colour is assumed', remedy='write `colour:` in the contract')]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from spillway.levers.protocol import Facts
from spillway.levers.telling import OpenQuestion

_ASKS = "asks"


def asking(sentence: str, remedy: str) -> dict[str, dict[str, str]]:
    """The evidence of a fact that was assumed."""
    return {_ASKS: asdict(OpenQuestion(sentence, remedy))}


def open_questions(facts: Facts) -> Iterator[OpenQuestion]:
    """What is asked of facts in force, in the order of their names."""
    for _, fact in sorted(facts.facts.items()):
        if isinstance(fact.evidence, dict) and _ASKS in fact.evidence:
            yield OpenQuestion(**fact.evidence[_ASKS])

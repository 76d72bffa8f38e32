"""What is timed is comparing and deciding, not what a process does once."""

from __future__ import annotations

import subprocess
import sys

ONCE = """
import importlib, pkgutil
from numba.core.registry import CPUDispatcher
import spillway.levers.joins as lever
from evidence.joins.driver import equality, overlap, run_join
from evidence.joins.workload import PaperStreams, constant_rate
from spillway.levers.joins.calibration import warm_up_kernels

modules = [importlib.import_module(f"{lever.__name__}.{one.name}") for one in pkgutil.iter_modules(lever.__path__)]

def made():
    each = [one for module in modules for one in vars(module).values() if isinstance(one, CPUDispatcher)]
    return {one.py_func.__qualname__: len(one.signatures) for one in each}

warm_up_kernels()
before = made()
budget = {"comparisons_per_second": 500}
several, single = (PaperStreams(mean_items=items, rates=constant_rate(20, 40)).both(1) for items in (5.0, 1.0))
for join in (overlap(20, True, budget=budget), overlap(20, False, budget=budget, adapt={"rate": "followed"})):
    run_join(*several, join, 20, 40)
for index in (True, False):
    run_join(*single, equality(20, index, budget=budget), 20, 40)
print({name: many for name, many in made().items() if many > before[name]})
"""


def test_nothing_is_left_to_compile_when_the_first_window_is_timed() -> None:
    """In a process of its own: here other tests have compiled what there is."""
    said = subprocess.run([sys.executable, "-c", ONCE], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "{}"

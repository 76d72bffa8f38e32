"""Run the torture tests: `python -m evidence.torture`."""

from evidence.torture.parts import run_torture

raise SystemExit(run_torture())

"""The demo: three streams, through the same DAGs and jobs as everything else."""

from __future__ import annotations

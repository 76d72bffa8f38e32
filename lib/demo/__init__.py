"""The demo: three streams, through the same DAGs and jobs as any other stream."""

from __future__ import annotations

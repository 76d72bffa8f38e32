"""The lake of the pipeline's tests, to be read."""

from __future__ import annotations

from tests.pipeline.conftest import world

__all__ = ["world"]

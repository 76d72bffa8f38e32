"""Build the HTML report: one self-contained page, read from the tables without Spark."""

from __future__ import annotations

from spillway.report.page.build import build_report, refresh_report

__all__ = ["build_report", "refresh_report"]

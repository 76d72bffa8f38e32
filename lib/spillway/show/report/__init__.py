"""Figures and the HTML report: one page, nothing fetched, read from the tables without Spark."""

from spillway.show.report.build import build_report

__all__ = ["build_report"]

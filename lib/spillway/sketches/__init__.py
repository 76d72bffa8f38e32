"""Answers from summaries: the rows are gone or too many (Deng 2007, better)."""

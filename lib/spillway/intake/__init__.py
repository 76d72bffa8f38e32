"""Intake: read the landing zone into `raw`. Find new files, number every tuple, and record every rejected record.

`landing` has the only rule for which files are delivered and which of them are new. All other modules use it.
"""

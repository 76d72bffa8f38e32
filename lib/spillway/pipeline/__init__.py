"""What a job does, as functions: the jobs, the command line and the tests call the same ones.

A step composes lake, plans and policies; it computes nothing itself. `jobs/` stay about forty lines each.
"""

"""The steps of a stream, independent of its levers: take in, train, shed, recover and validate.

A step receives its tables and its engine and opens neither. It composes the decisions of the levers, publishes the
results in the one safe order, and accounts for them. No lever is named here.
"""

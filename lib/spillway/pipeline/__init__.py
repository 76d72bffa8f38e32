"""What is done to a stream, step by step: taken in, trained, shed, recovered, validated; generic over its levers.

A step is handed its tables and its engine and opens neither; what the levers decide, it composes, publishes in the one
safe order, and accounts for. No lever is named here.
"""

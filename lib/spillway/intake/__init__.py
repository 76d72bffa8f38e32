"""From the landing zone to `raw`: what is delivered, what of it is new, and every tuple of it numbered or refused.

`landing` has the one rule for what is delivered and new; whoever asks, asks there.
"""

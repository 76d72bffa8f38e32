"""The words among which a contract chooses, shared by the settings that read them and the kernels that obey them.

Nothing is imported here: who reads contracts compiles no kernel, and a kernel knows of no contract.

>>> set(WAYS) > {"keep"}
True
"""

WAYS = ("keep", "round", "shed")
"""What may be done to a measure."""

PREDICTORS = ("last", "trend", "season", "any", "regression")
"""What may give a shed value back; `last` alone is the text's method."""

RANK_BY = ("stddev", "relative", "recoverability")
"""What makes an attribute go first."""

FITS = ("bits", "count")
"""How many go: by measured width, or by the text's formula."""

AVERAGES = ("ema", "sma", "none")
"""How a window is smoothed before it is ranked."""

SEEDS = ("first", "zero", "sma")
"""What smoothing starts from."""

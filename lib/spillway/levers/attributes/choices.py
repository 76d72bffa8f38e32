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

PLANS = ("least_loss", "prefix")
"""Who is touched: by what is lost, or the shortest prefix of the ranking (the text)."""

FITS = ("bits", "count")
"""How many of a prefix go: by measured width, or by the text's formula."""

CROSSINGS = ("auto", "send", "hold")
"""Whether a synopsis crosses with its batch or stays at the source until it is asked for (the text)."""

AVERAGES = ("ema", "sma", "none")
"""How a window is smoothed before it is ranked."""

SEEDS = ("first", "zero", "sma")
"""What smoothing starts from."""

BOUNDS = ("trained", "stated")
"""Whether what states no bound of its own has one that is trained, or none at all."""

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

SEEDS = ("first", "zero", "sma")
"""What smoothing starts from."""

PLANS = ("least_loss", "prefix")
"""How it is decided what goes: by what is lost, or, as the text, the shortest prefix of the ranking."""

SYNOPSES = ("auto", "send", "hold")
"""Where synopses go: across while there is room, always across, or nowhere until they are asked for."""

MINIMIZE = ("error", "bytes")
"""What a channel is for: the least error within its capacity, or the fewest bytes within the bounds."""

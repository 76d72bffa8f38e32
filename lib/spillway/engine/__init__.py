"""The door to where work runs: a function over pieces, by Spark's tasks or in this process.

Everything that is done to a stream's rows is a function of one piece (some files, some frames) that reads columns and
returns, or writes, columns. An engine runs it over many pieces; what comes out is the same whichever engine it was and
however many tasks it had. `engine.spark` is imported by whoever wants it, so that nothing else loads it.
"""

from spillway.engine.local import InProcess
from spillway.engine.protocol import Engine

__all__ = ["Engine", "InProcess"]

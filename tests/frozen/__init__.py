"""The frozen lake: one small lake, made again by each version of the code and compared with a committed reference."""

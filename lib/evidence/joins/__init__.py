"""Evidence of the lever `joins`: the paper's experiments on its own workload, with rivals on equal terms."""

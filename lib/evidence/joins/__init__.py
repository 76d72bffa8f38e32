"""The evidence of the lever `joins`: the paper's experiments on its own workload, rivals on equal terms."""

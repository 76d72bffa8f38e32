"""The demo: three real streams, through the same DAGs and jobs as everything else."""

"""The demo: three streams, through the same DAGs and jobs as everything else."""

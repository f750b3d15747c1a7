"""GPUs in nodes, which Slurm alone gives out: described, explained, checked."""

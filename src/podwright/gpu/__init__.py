"""Tools for GPU nodes that Slurm alone allocates: they describe, explain and check."""

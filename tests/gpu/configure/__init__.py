"""GPU clusters described to Slurm."""

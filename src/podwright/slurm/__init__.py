"""The rooms that serve Slurm."""

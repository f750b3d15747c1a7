"""GPU requests against real Slurm: device files stand for GPUs."""

"""Native mode on real Slurm: every promise of docs/slurm/, by jobs."""

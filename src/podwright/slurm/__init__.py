"""An unmodified Slurm: pods behind a fabric (pods), GPUs in nodes (gpus), what both need (site)."""

"""Devices behind a fabric, which Slurm counts and Podwright places."""

"""Carves pods of accelerators into partitions, launches programs on them, and serves Slurm."""

__version__ = "0.1.0"

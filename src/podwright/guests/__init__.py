"""Schedulers beside the controller, the guests: what they share, Slurm and Kubernetes."""

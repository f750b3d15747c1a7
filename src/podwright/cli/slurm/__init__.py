"""The verbs of `podwright slurm`, one small file each."""

"""What the words of `podwright slurm configure` mean for nodes with GPUs."""

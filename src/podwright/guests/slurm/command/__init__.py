"""What the words of `podwright slurm configure` mean for a pod behind a server."""

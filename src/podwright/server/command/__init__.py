"""What the words of `vipu-server` mean: what is served and where, and where the log goes."""

"""What the words of `vipu-agent` mean: which machine is served, and what guards its devices."""

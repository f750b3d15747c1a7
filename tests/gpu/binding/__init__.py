"""Which GPUs tasks get."""

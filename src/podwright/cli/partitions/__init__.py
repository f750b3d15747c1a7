"""The verbs of `vipu`: partitions, the queue, and the hardware."""

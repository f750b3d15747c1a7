"""Native mode without Slurm: its rules, its service against fakes, and what configure writes."""

"""The partitions of jobs at V-IPU controllers."""

"""Runs a plan: partition, lease, instances, MPI, and the loop that watches them."""

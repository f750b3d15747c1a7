"""Partitions and leases: created, acquired, replaced, expired."""

"""Moves: which launches and partitions make room, where they go, and how."""

"""Tests of what jobs make of their GPUs."""
